#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/comm_set.h"
#include "tessera/comm/local/run_ranks.h"
#include "tessera/comm/sim/sim_world.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tessera/device/sim/sim_device.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::StatusIs;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

DeviceMesh Mesh(absl::string_view text) {
  return DeviceMesh::Parse(text).value();
}

// A launch takes 7 ps; along tp a hop takes 100 and a byte 1, elsewhere a hop
// takes 1000 and a byte 10.
constexpr int64_t kLaunch = 7;
constexpr int64_t kTpHop = 100;
constexpr int64_t kDpHop = 1000;
constexpr int64_t kDpByte = 10;

Topology TwoTiers(int64_t tp_latency_ps = kTpHop) {
  return Topology::Create("two-tiers",
                          {.latency_ps = kDpHop,
                           .bytes_per_second = 1'000'000'000'000 / kDpByte},
                          kLaunch, 1'000'000'000)
      ->WithLink("tp", {.latency_ps = tp_latency_ps,
                        .bytes_per_second = 1'000'000'000'000})
      .value();
}

TensorView Floats(int64_t elements) {
  // Nobody looks there.
  return TensorView::Flat(nullptr, DType::kF32, elements);
}

TensorView Matrix(int64_t rows, int64_t columns) {
  return TensorView(nullptr,
                    TensorMeta::Create(DType::kF32, {rows, columns}).value());
}

// Rank 0 of "dp=2,tp=4", unless told otherwise.
class SimCommunicatorTest : public ::testing::Test {
 protected:
  void Join(const DeviceMesh& mesh, int rank, const Topology& topology) {
    world_ = SimWorld::Create(mesh, topology)->Join(rank, *stream_).value();
    comms_ = std::make_unique<CommSet>(*world_);
  }
  void SetUp() override { Join(mesh_, 0, TwoTiers()); }

  Communicator& Along(absl::Span<const int> axes) {
    return **comms_->Get(mesh_, axes, *stream_);
  }
  Communicator& tp() { return Along({1}); }
  Communicator& dp() { return Along({0}); }

  // What `issue` takes on the stream. It must be one launch.
  int64_t TimeOf(absl::FunctionRef<absl::Status()> issue) {
    device_.ClearTrace();
    EXPECT_OK(issue());
    const std::vector<TracedOperation> operations = device_.trace().operations;
    EXPECT_THAT(operations, SizeIs(1));
    return operations[0].end_ps - operations[0].begin_ps;
  }

  const DeviceMesh mesh_ = Mesh("dp=2,tp=4");
  SimDevice device_;
  const std::unique_ptr<Stream> stream_ = device_.NewStream("s").value();
  std::unique_ptr<Communicator> world_;
  std::unique_ptr<CommSet> comms_;
};

TEST_F(SimCommunicatorTest, AllReduceCostsTwoHopsAMessage) {
  // Pieces of 3 elements: 10 + 2 * 3 of them.
  EXPECT_EQ(TimeOf([&] {
              return tp().AllReduce(ReduceOp::kSum, Floats(10), Floats(10));
            }),
            kLaunch + 6 * kTpHop + 16 * 4);
}

TEST_F(SimCommunicatorTest, ReduceScatterCostsThePiecesOfTheOthers) {
  EXPECT_EQ(TimeOf([&] {
              return tp().ReduceScatter(ReduceOp::kSum, Floats(8), Floats(2));
            }),
            kLaunch + 3 * kTpHop + 3 * 2 * 4);
}

TEST_F(SimCommunicatorTest, AllGatherCostsAllButTheLeastPiece) {
  // 3 + 3 + 3 + 1 elements.
  EXPECT_EQ(TimeOf([&] { return tp().AllGather(Floats(3), Floats(10)); }),
            kLaunch + 3 * kTpHop + 9 * 4);
}

TEST_F(SimCommunicatorTest, ExplicitSplitsCostByTheirExtremes) {
  const ExtentSplit split = ExtentSplit::Explicit({2, 0, 5, 3}).value();
  EXPECT_EQ(
      TimeOf([&] { return tp().AllGather(Floats(2), Floats(10), 0, split); }),
      kLaunch + 3 * kTpHop + 10 * 4);
  EXPECT_EQ(TimeOf([&] {
              return tp().ReduceScatter(ReduceOp::kSum, Floats(10), Floats(2),
                                        0, split);
            }),
            kLaunch + 3 * kTpHop + 3 * 5 * 4);
}

TEST_F(SimCommunicatorTest, AllToAllCostsWhatThisRankReceives) {
  EXPECT_EQ(TimeOf([&] {
              return tp().AllToAll(Matrix(2, 8), 1, {}, Matrix(8, 2), 0, {});
            }),
            kLaunch + 3 * kTpHop + (16 - 4) * 4);
}

TEST_F(SimCommunicatorTest, BroadcastAndBarrier) {
  EXPECT_EQ(TimeOf([&] { return tp().Broadcast(Floats(10), 2); }),
            kLaunch + 3 * kTpHop + 10 * 4);
  EXPECT_EQ(TimeOf([&] { return tp().Barrier(); }), kLaunch + 3 * kTpHop);
}

TEST_F(SimCommunicatorTest, SlowAxesCostMore) {
  EXPECT_EQ(TimeOf([&] { return dp().AllGather(Floats(3), Floats(6)); }),
            kLaunch + kDpHop + 3 * 4 * kDpByte);
}

TEST_F(SimCommunicatorTest, AGroupOverBothAxesSharesOutItsBytes) {
  // Of 7 messages 4 go along dp, with a piece each; along tp the other 3.
  EXPECT_EQ(
      TimeOf([&] {
        return Along({0, 1}).AllGather(Floats(5), Floats(40));
      }),
      kLaunch + 4 * kDpHop + 4 * 5 * 4 * kDpByte + 3 * kTpHop + 3 * 5 * 4);
  // 8 + 6 * 1 elements, of which messages along dp carry 2 each.
  EXPECT_EQ(
      TimeOf([&] {
        return Along({0, 1}).AllReduce(ReduceOp::kSum, Floats(8), Floats(8));
      }),
      kLaunch + 8 * kDpHop + 8 * 4 * kDpByte + 6 * kTpHop + 6 * 4);
}

TEST_F(SimCommunicatorTest, MessagesCostTheAxesThatTheirEndsDifferAlong) {
  const std::vector<Transfer> sends = {{4, Floats(3)}, {0, Floats(100)}};
  const std::vector<Transfer> recvs = {
      {1, Floats(10)}, {4, Floats(2)}, {5, Floats(1)}, {0, Floats(100)}};
  EXPECT_EQ(TimeOf([&] { return world_->SendRecv(sends, recvs); }),
            kLaunch + (kTpHop + 40) + (2 * kDpHop + 12 * kDpByte));
  EXPECT_EQ(TimeOf([&] {
              return world_->SendRecv({{4, Floats(1)}}, {});
            }),
            kLaunch);
  EXPECT_EQ(TimeOf([&] { return world_->SendRecv({}, {}); }), kLaunch);
}

TEST_F(SimCommunicatorTest, TheHigherLatencyCountsWhereBothAxesAreCrossed) {
  Join(mesh_, 0, TwoTiers(/*tp_latency_ps=*/5000));
  EXPECT_EQ(TimeOf([&] { return dp().Barrier(); }), kLaunch + kDpHop);
  EXPECT_EQ(TimeOf([&] { return world_->Barrier(); }), kLaunch + 7 * 5000);
  // Two ranks that differ along both.
  const auto pair = world_->Subgroup({0, 5}, "pair", *stream_).value();
  EXPECT_EQ(TimeOf([&] { return pair->Barrier(); }), kLaunch + 5000);
}

TEST_F(SimCommunicatorTest, CallsOfOneLaunchShareItsMessages) {
  Collective gather;
  gather.kind = CollectiveKind::kAllGather;
  gather.send = Floats(2);
  gather.recv = Floats(8);
  Collective reduce;
  reduce.kind = CollectiveKind::kAllReduce;
  reduce.send = Floats(4);
  reduce.recv = Floats(4);
  const std::vector<Collective> calls = {gather, gather, reduce};
  EXPECT_EQ(TimeOf([&] { return tp().Issue(calls); }),
            kLaunch + 3 * kTpHop + 2 * 6 * 4 + 6 * kTpHop + 6 * 4);
  EXPECT_EQ(comms_->log().counters().at({"tp", CollectiveKind::kAllGather}),
            (CommCounter{.calls = 2, .bytes_received = 48}));
}

// The group is a slice of another mesh than the world's.
TEST_F(SimCommunicatorTest, FindsTheAxesOfAGroupByItsMembers) {
  const auto barrier = [&](absl::string_view mesh, int axis) {
    Communicator& group = **comms_->Get(Mesh(mesh), {axis}, *stream_);
    return TimeOf([&] { return group.Barrier(); });
  };
  EXPECT_EQ(barrier("other=2,name=4", 1), kLaunch + 3 * kTpHop);
  EXPECT_EQ(barrier("a=2,b=2,c=2", 1), kLaunch + kTpHop);
  EXPECT_EQ(barrier("all=8", 0), kLaunch + 4 * kDpHop + 3 * kTpHop);
  // By pairs: 0 2 4 6.
  EXPECT_EQ(barrier("x=4,y=2", 0), kLaunch + 2 * kDpHop + kTpHop);
}

TEST_F(SimCommunicatorTest, PricesDependOnWhereTheRankIs) {
  // 0 1 2 4: rank 0 has two near, rank 4 none.
  const auto time = [&](int rank, int index) {
    Join(mesh_, rank, TwoTiers());
    const auto group = world_->Subgroup({0, 1, 2, 4}, "g", *stream_).value();
    EXPECT_EQ(group->rank(), index);
    return TimeOf([&] { return group->Barrier(); });
  };
  EXPECT_EQ(time(0, 0), kLaunch + kDpHop + 2 * kTpHop);
  EXPECT_EQ(time(4, 3), kLaunch + 3 * kDpHop);
}

TEST_F(SimCommunicatorTest, EveryRankGivesWhatThisOneGives) {
  EXPECT_THAT(*world_->HostAllGather("x"),
              ElementsAreArray(std::vector<std::string>(8, "x")));
  EXPECT_OK(comms_->Agree(*world_, 17, [] { return std::string("no"); }));
  ASSERT_OK_AND_ASSIGN(const auto split,
                       world_->Split(3, -1, "split", *stream_));
  EXPECT_THAT(split->members(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_EQ(*world_->Split(-1, 0, "split", *stream_), nullptr);
  EXPECT_EQ(device_.NowNanos(), 0);
}

TEST_F(SimCommunicatorTest, AGroupOfOneCopiesAndCommunicatesNothing) {
  SimDevice device({.memory_bytes_per_second = 1'000'000'000'000});
  const auto stream = device.NewStream("s").value();
  const auto alone =
      SimWorld::Create(DeviceMesh(), TwoTiers())->Join(0, *stream).value();
  float a = 1;
  float b = 2;
  ASSERT_OK(alone->AllReduce(ReduceOp::kSum,
                             TensorView::Flat(&a, DType::kF32, 1),
                             TensorView::Flat(&b, DType::kF32, 1)));
  EXPECT_EQ(b, 2);
  EXPECT_THAT(device.trace().operations,
              ElementsAre(TracedOperation{.name = "copy", .end_ps = 8}));
  EXPECT_THAT(alone->log()->counters(), IsEmpty());
}

TEST_F(SimCommunicatorTest, CollectivesTakeTurnsWithTheirStream) {
  SimDevice device({.memory_bytes_per_second = 1'000'000'000'000});
  const auto compute = device.NewStream("compute").value();
  const auto gather = device.NewStream("gather").value();
  const auto world =
      SimWorld::Create(mesh_, TwoTiers())->Join(0, *compute).value();
  CommSet comms(*world);
  Communicator& dp = **comms.Get(mesh_, {0}, *gather);
  Communicator& tp = **comms.Get(mesh_, {1}, *compute);
  const auto work = [&](int64_t bytes) {
    return compute->Launch({.name = "work", .bytes = bytes}, nullptr);
  };
  // gather:            dp all_gather [500, 1627)
  // compute: work [0, 500)  work [500, 1100)  tp barrier [1100, 1407)
  //          work [1627, 1727)
  ASSERT_OK(work(500));
  ASSERT_OK(gather->Wait(compute->Record()));
  ASSERT_OK(dp.AllGather(Floats(3), Floats(6)));
  ASSERT_OK(work(600));
  ASSERT_OK(tp.Barrier());
  ASSERT_OK(compute->Wait(gather->Record()));
  ASSERT_OK(work(100));
  EXPECT_THAT(device.trace().operations,
              ElementsAre(TracedOperation{"work", 0, "", 0, 500},
                          TracedOperation{"all_gather", 1, "dp", 500, 1627},
                          TracedOperation{"work", 0, "", 500, 1100},
                          TracedOperation{"barrier", 0, "tp", 1100, 1407},
                          TracedOperation{"work", 0, "", 1627, 1727}));
  const TraceTimes times = TimesOf(device.trace(), "compute");
  EXPECT_EQ(times.total_ps, 1727);
  EXPECT_THAT(times.busy_ps, ElementsAre(500 + 600 + 307 + 100, 1127));
  using Communication = TraceTimes::Communication;
  EXPECT_THAT(times.communicators,
              ElementsAre(Pair("dp", Communication{1127, 1627 - 1100}),
                          Pair("tp", Communication{307, 307})));
  EXPECT_EQ(times.communication, (Communication{1127, 1627 - 1100}));
}

TEST_F(SimCommunicatorTest, RefusesEverythingOnceAborted) {
  Communicator& group = tp();
  group.Abort(absl::DataLossError("gone"));
  group.Abort(absl::DataLossError("again"));
  const auto is_aborted = StatusIs(
      absl::StatusCode::kAborted,
      AllOf(HasSubstr("'tp' is aborted: by rank 0"), HasSubstr("gone")));
  EXPECT_THAT(group.Barrier(), is_aborted);
  EXPECT_THAT(group.HostAllGather("x").status(), is_aborted);
  EXPECT_THAT(group.Subgroup({0}, "sub", *stream_).status(), is_aborted);
  EXPECT_OK(dp().Barrier());
}

TEST_F(SimCommunicatorTest, RejectsWhatDoesNotFit) {
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  for (const char* mesh : {"dp=2,tp=4@1", "dp=2:8,tp=4:1"}) {
    EXPECT_THAT(SimWorld::Create(Mesh(mesh), TwoTiers()).status(),
                StatusIs(kInvalid, AllOf(HasSubstr("[0,8)"), HasSubstr(mesh))));
  }
  ASSERT_OK_AND_ASSIGN(const SimWorld world,
                       SimWorld::Create(mesh_, TwoTiers()));
  EXPECT_EQ(world.num_ranks(), 8);
  EXPECT_THAT(world.Join(8, *stream_).status(),
              StatusIs(kInvalid, HasSubstr("rank 8")));
  CpuDevice cpu;
  const auto stream = cpu.NewStream("host").value();
  EXPECT_THAT(world.Join(0, *stream).status(),
              StatusIs(kInvalid, AllOf(HasSubstr("'host' of cpu"),
                                       HasSubstr("'world'"))));
  EXPECT_THAT(world_->Subgroup({0, 1}, "sub", *stream).status(),
              StatusIs(kInvalid, HasSubstr("'sub'")));
  // As on any backend.
  EXPECT_THAT(tp().AllGather(Floats(2), Floats(10)), StatusIs(kInvalid));
}

// Issues each kind of collective once, over groups of both axes, uneven pieces
// included.
absl::Status IssueAll(CommSet& comms, Stream& stream) {
  const DeviceMesh mesh = Mesh("dp=2,tp=3");
  TESSERA_ASSIGN_OR_RETURN(const Buffer memory,
                           stream.device().Allocate(1 << 16, "buffers"));
  // Views of distinct memory, one behind the other.
  int64_t used = 0;
  const auto floats = [&](std::vector<int64_t> extents) {
    const TensorView view(static_cast<char*>(memory.data()) + used,
                          TensorMeta::Create(DType::kF32, extents).value());
    used += view.num_bytes();
    return view;
  };
  for (const std::vector<int>& axes :
       std::vector<std::vector<int>>{{0}, {1}, {0, 1}}) {
    TESSERA_ASSIGN_OR_RETURN(Communicator* const group,
                             comms.Get(mesh, axes, stream));
    const int n = group->size();
    const int rank = group->rank();
    const int64_t piece = CeilSplit(10, n, rank).size();
    TESSERA_RETURN_IF_ERROR(
        group->AllReduce(ReduceOp::kSum, floats({10}), floats({10})));
    TESSERA_RETURN_IF_ERROR(
        group->ReduceScatter(ReduceOp::kMax, floats({10}), floats({piece})));
    TESSERA_RETURN_IF_ERROR(group->AllGather(floats({piece}), floats({10})));
    TESSERA_RETURN_IF_ERROR(group->AllToAll(floats({piece, 10}), 1, {},
                                            floats({10, piece}), 0, {}));
    TESSERA_RETURN_IF_ERROR(group->Broadcast(floats({7}), n - 1));
    TESSERA_RETURN_IF_ERROR(group->SendRecv(
        {{(rank + 1) % n, floats({4})}, {rank, floats({2})}},
        {{(rank + n - 1) % n, floats({4})}, {rank, floats({2})}}));
    TESSERA_RETURN_IF_ERROR(group->Barrier());
  }
  return stream.Synchronize();
}

TEST(SimCommLogTest, CountsWhatLocalRanksCount) {
  EXPECT_OK(RunLocalRanks(6, [](LocalRank& rank) -> absl::Status {
    TESSERA_RETURN_IF_ERROR(IssueAll(rank.comms, rank.stream));

    SimDevice device;
    TESSERA_ASSIGN_OR_RETURN(const auto stream, device.NewStream("s"));
    TESSERA_ASSIGN_OR_RETURN(const SimWorld world,
                             SimWorld::Create(Mesh("dp=2,tp=3"), TwoTiers()));
    TESSERA_ASSIGN_OR_RETURN(const auto comm, world.Join(rank.rank, *stream));
    CommSet comms(*comm);
    TESSERA_RETURN_IF_ERROR(IssueAll(comms, *stream));

    EXPECT_THAT(comms.log().counters(), SizeIs(3 * 6));
    EXPECT_EQ(comms.log().counters(), rank.comms.log().counters());
    return absl::OkStatus();
  }));
}

// 131,072 ranks: the figures of a world that no machine runs.
TEST(SimLargeWorldTest, HasThePricesOfItsSize) {
  constexpr int kRanks = 131'072;
  const DeviceMesh mesh = Mesh("dp=16384,tp=8");
  SimDevice device;
  const auto stream = device.NewStream("s").value();
  const auto world =
      SimWorld::Create(mesh, TwoTiers())->Join(77'777, *stream).value();
  ASSERT_EQ(world->size(), kRanks);
  CommSet comms(*world);
  Communicator& dp = **comms.Get(mesh, {0}, *stream);
  ASSERT_EQ(dp.size(), 16'384);
  EXPECT_EQ(dp.rank(), 77'777 / 8);
  constexpr int64_t kPiece = 1000;
  ASSERT_OK(dp.AllGather(Floats(kPiece), Floats(16'384 * kPiece)));
  ASSERT_OK(world->AllGather(Floats(kPiece), Floats(kRanks * kPiece)));
  ASSERT_OK(world->HostAllGather("x"));
  const int64_t dp_time =
      kLaunch + 16'383 * kDpHop + 16'383 * kPiece * 4 * kDpByte;
  const int64_t world_time = kLaunch + (kRanks - 8) * kDpHop +
                             (kRanks - 8) * kPiece * 4 * kDpByte + 7 * kTpHop +
                             7 * kPiece * 4;
  EXPECT_THAT(device.trace().operations,
              ElementsAre(TracedOperation{"all_gather", 0, "dp", 0, dp_time},
                          TracedOperation{"all_gather", 0, "world", dp_time,
                                          dp_time + world_time}));
  EXPECT_EQ(comms.log().counters().at({"dp", CollectiveKind::kAllGather}),
            (CommCounter{.calls = 1, .bytes_received = 16'383 * kPiece * 4}));
}

}  // namespace
}  // namespace tessera

#include "tests/comm/conformance/conformance.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tessera/base/status_macros.h"
#include "tests/comm/collective_cases.h"
#include "tests/status_matchers.h"

namespace tessera::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

// Memory of the host, and copies of it on a device, for the collectives of
// several streams.
class DeviceCopies {
 public:
  explicit DeviceCopies(ConformanceRank& rank) : stream_(rank.stream) {}
  ~DeviceCopies() {
    for (Copy& copy : copies_) copy.buffer.ResetAfter(stream_);
  }
  DeviceCopies(const DeviceCopies&) = delete;
  DeviceCopies& operator=(const DeviceCopies&) = delete;

  // The copy of `host`, which is dense and stays.
  absl::StatusOr<TensorView> Make(const TensorView& host) {
    TESSERA_ASSIGN_OR_RETURN(
        Buffer buffer, stream_.device().Allocate(host.num_bytes(), "copy"));
    const TensorView view(buffer.data(), host.meta());
    copies_.push_back({std::move(buffer), host});
    TESSERA_RETURN_IF_ERROR(
        stream_.device().kernels().CopyFromHost(stream_, view, host.data()));
    return view;
  }
  // All that has been copied is there.
  absl::Status Await() { return stream_.Synchronize(); }
  // Copies all of them back. REQUIRES: what uses them on other streams is done.
  absl::Status Return() {
    for (const Copy& copy : copies_) {
      const TensorView view(copy.buffer.data(), copy.host.meta());
      TESSERA_RETURN_IF_ERROR(stream_.device().kernels().CopyToHost(
          stream_, copy.host.data(), view));
    }
    return stream_.Synchronize();
  }

 private:
  struct Copy {
    Buffer buffer;
    TensorView host;
  };

  Stream& stream_;
  std::vector<Copy> copies_;
};

// The calls of this rank, on copies.
absl::StatusOr<std::vector<Collective>> CallsOn(
    DeviceCopies& copies, std::vector<CollectiveRun>& runs, int rank) {
  std::vector<Collective> calls;
  for (CollectiveRun& run : runs) {
    TESSERA_ASSIGN_OR_RETURN(const TensorView memory,
                             copies.Make(run.Memory(rank)));
    calls.push_back(run.Call(rank, memory.as<char>()));
  }
  return calls;
}

// Through the function of its kind.
absl::Status IssueByKind(Communicator& communicator, const Collective& c) {
  switch (c.kind) {
    case CollectiveKind::kAllReduce:
      return communicator.AllReduce(c.op, c.send, c.recv);
    case CollectiveKind::kReduceScatter:
      return communicator.ReduceScatter(c.op, c.send, c.recv, c.send_dim,
                                        c.send_split);
    case CollectiveKind::kAllGather:
      return communicator.AllGather(c.send, c.recv, c.recv_dim, c.recv_split);
    case CollectiveKind::kAllToAll:
      return communicator.AllToAll(c.send, c.send_dim, c.send_split, c.recv,
                                   c.recv_dim, c.recv_split);
    case CollectiveKind::kBroadcast:
      return communicator.Broadcast(c.recv, c.root);
    case CollectiveKind::kSendRecv:
    case CollectiveKind::kBarrier:
      break;
  }
  return absl::UnimplementedError("not a case");
}

// Runs issued on the world's communicator and on one of a second stream in
// turn, and checked by each rank.
absl::Status IssueAndCheck(std::vector<CollectiveRun>& runs,
                           ConformanceRank& rank) {
  TESSERA_ASSIGN_OR_RETURN(const auto side, rank.device.NewStream("side"));
  std::vector<int> all(rank.num_ranks);
  std::iota(all.begin(), all.end(), 0);
  TESSERA_ASSIGN_OR_RETURN(const auto comm,
                           rank.comms.world().Subgroup(all, "side", *side));
  Communicator* const comms[] = {&rank.comms.world(), comm.get()};
  DeviceCopies copies(rank);
  TESSERA_ASSIGN_OR_RETURN(const std::vector<Collective> calls,
                           CallsOn(copies, runs, rank.rank));
  TESSERA_RETURN_IF_ERROR(copies.Await());
  for (size_t i = 0; i < calls.size(); ++i) {
    TESSERA_RETURN_IF_ERROR(IssueByKind(*comms[i % 2], calls[i]));
  }
  TESSERA_RETURN_IF_ERROR(side->Synchronize());
  TESSERA_RETURN_IF_ERROR(copies.Return());
  for (const CollectiveRun& run : runs) EXPECT_EQ(run.Check(rank.rank), "");
  return absl::OkStatus();
}

TEST_P(CommConformance, GiveTheReferenceResultBitByBit) {
  const std::vector<CollectiveCase> cases = AllCollectiveCases(ranks());
  constexpr size_t kBatch = 200;  // bounds the memory in use
  std::vector<CollectiveRun> runs;
  for (size_t i = 0; i < cases.size(); i += GetParam().every) {
    runs.emplace_back(cases[i], 100 * i, GetParam().averaging);
    if (runs.size() < kBatch && i + GetParam().every < cases.size()) continue;
    ASSERT_OK(
        Run([&](ConformanceRank& rank) { return IssueAndCheck(runs, rank); }));
    ASSERT_FALSE(HasFailure());
    runs.clear();
  }
}

TEST_P(CommConformance, GiveTheReferenceResultForLargeTensors) {
  for (const CollectiveCase& c : LargeCollectiveCases(ranks())) {
    std::vector<CollectiveRun> runs;
    runs.emplace_back(c, /*seed=*/1, GetParam().averaging);
    ASSERT_OK(
        Run([&](ConformanceRank& rank) { return IssueAndCheck(runs, rank); }));
  }
}

// Any calls, up to seven at once.
TEST_P(CommConformance, GiveTheSameBitsSeveralInOneLaunch) {
  const std::vector<CollectiveCase> cases = AllCollectiveCases(ranks());
  std::mt19937 random(1);
  constexpr int kLaunches = 30;
  std::vector<std::vector<CollectiveRun>> launches(kLaunches);
  for (std::vector<CollectiveRun>& launch : launches) {
    const size_t calls = 1 + random() % 7;
    while (launch.size() < calls) {
      const CollectiveCase& c = cases[random() % cases.size()];
      launch.emplace_back(c, random(), GetParam().averaging);
    }
  }
  ASSERT_OK(Run([&](ConformanceRank& rank) -> absl::Status {
    DeviceCopies copies(rank);
    for (std::vector<CollectiveRun>& launch : launches) {
      TESSERA_ASSIGN_OR_RETURN(const std::vector<Collective> calls,
                               CallsOn(copies, launch, rank.rank));
      TESSERA_RETURN_IF_ERROR(rank.comms.world().Issue(calls));
    }
    TESSERA_RETURN_IF_ERROR(copies.Return());
    for (const std::vector<CollectiveRun>& launch : launches) {
      for (const CollectiveRun& run : launch) {
        EXPECT_EQ(run.Check(rank.rank), "");
      }
    }
    return absl::OkStatus();
  }));
}

// All-to-all along one dim with any counts: rank i sends counts[i][j] elements
// to rank j.
TEST_P(CommConformance, AllToAllTakesAnyMatrixOfCounts) {
  const int n = ranks();
  for (int seed = 0; seed < 10; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    std::vector<std::vector<int64_t>> to(n, std::vector<int64_t>(n));
    std::vector<std::vector<int64_t>> from(n, std::vector<int64_t>(n));
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j < n; ++j) {
        to[i][j] = from[j][i] = random() % 3 == 0 ? 0 : random() % 40;
      }
    }
    std::vector<std::string> sent(n);
    std::vector<std::string> received(n);
    std::vector<std::string> expected(n);
    constexpr int64_t kSize = sizeof(int32_t);
    for (int i = 0; i < n; ++i) {
      const int64_t out = std::accumulate(to[i].begin(), to[i].end(), 0);
      const int64_t in = std::accumulate(from[i].begin(), from[i].end(), 0);
      sent[i] = RandomElements(DType::kI32, out, 100 * seed + i);
      received[i] = std::string(in * kSize, '\xa5');
      const char* next = sent[i].data();
      for (int j = 0; j < n; next += to[i][j] * kSize, ++j) {
        expected[j].append(next, to[i][j] * kSize);
      }
    }
    ASSERT_OK(Run([&](ConformanceRank& rank) -> absl::Status {
      std::string& out = sent[rank.rank];
      std::string& in = received[rank.rank];
      TESSERA_ASSIGN_OR_RETURN(const ExtentSplit outs,
                               ExtentSplit::Explicit(to[rank.rank]));
      TESSERA_ASSIGN_OR_RETURN(const ExtentSplit ins,
                               ExtentSplit::Explicit(from[rank.rank]));
      DeviceCopies copies(rank);
      TESSERA_ASSIGN_OR_RETURN(
          const TensorView send,
          copies.Make(
              TensorView::Flat(out.data(), DType::kI32, out.size() / kSize)));
      TESSERA_ASSIGN_OR_RETURN(const TensorView recv,
                               copies.Make(TensorView::Flat(
                                   in.data(), DType::kI32, in.size() / kSize)));
      TESSERA_RETURN_IF_ERROR(
          rank.comms.world().AllToAll(send, 0, outs, recv, 0, ins));
      TESSERA_RETURN_IF_ERROR(copies.Return());
      EXPECT_EQ(in, expected[rank.rank]);
      return absl::OkStatus();
    }));
  }
}

TEST_P(CommConformance, SendRecvDeliversMessagesOfAPairInOrder) {
  const int n = ranks();
  struct Message {
    int from;
    int to;
    DType dtype;
    std::string sent;
    std::string received;
    TensorView View(std::string& bytes) const {
      return TensorView::Flat(
          bytes.data(), dtype,
          static_cast<int64_t>(bytes.size()) / SizeOf(dtype));
    }
  };
  for (int seed = 0; seed < 10; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    std::vector<Message> messages(random() % 30);
    for (Message& m : messages) {
      m.from = static_cast<int>(random() % n);
      m.to = static_cast<int>(random() % n);
      m.dtype = kAllDTypes[random() % std::size(kAllDTypes)];
      m.sent = RandomElements(m.dtype, random() % 50, random());
      m.received = std::string(m.sent.size(), '\xa5');
    }
    ASSERT_OK(Run([&](ConformanceRank& rank) -> absl::Status {
      std::vector<Transfer> sends;
      std::vector<Transfer> recvs;
      // Not copied back: the receiver looks at what was sent, too.
      DeviceCopies sent_copies(rank);
      DeviceCopies copies(rank);
      for (Message& m : messages) {
        if (m.from == rank.rank) {
          TESSERA_ASSIGN_OR_RETURN(const TensorView sent,
                                   sent_copies.Make(m.View(m.sent)));
          sends.push_back({m.to, sent});
        }
        if (m.to == rank.rank) {
          TESSERA_ASSIGN_OR_RETURN(const TensorView received,
                                   copies.Make(m.View(m.received)));
          recvs.push_back({m.from, received});
        }
      }
      TESSERA_RETURN_IF_ERROR(rank.comms.world().SendRecv(sends, recvs));
      TESSERA_RETURN_IF_ERROR(copies.Return());
      for (const Message& m : messages) {
        if (m.to != rank.rank) continue;
        EXPECT_EQ(m.received, m.sent);
      }
      return absl::OkStatus();
    }));
  }
}

int64_t Now() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

TEST_P(CommConformance, BarrierPassesOnceAllHaveCome) {
  ASSERT_OK(Run([&](ConformanceRank& rank) -> absl::Status {
    Communicator& world = rank.comms.world();
    for (int round = 0; round < 20; ++round) {
      const int64_t came = Now();
      TESSERA_RETURN_IF_ERROR(world.Barrier());
      TESSERA_RETURN_IF_ERROR(rank.stream.Synchronize());
      const int64_t passed = Now();
      TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> all_came,
                               world.HostAllGather(absl::StrCat(came)));
      for (const std::string& text : all_came) {
        int64_t other_came = 0;
        EXPECT_TRUE(absl::SimpleAtoi(text, &other_came));
        EXPECT_GE(passed, other_came);
      }
    }
    return absl::OkStatus();
  }));
}

TEST_P(CommConformance, HostAllGatherReturnsWhatEveryRankGave) {
  ASSERT_OK(Run([&](ConformanceRank& rank) -> absl::Status {
    for (int round = 0; round < 20; ++round) {
      std::vector<std::string> want;
      for (int r = 0; r < rank.num_ranks; ++r) {
        // Empty, short, and longer than what backends send at once.
        want.push_back(std::string(r * r * r * round * 100, 'a' + r));
      }
      TESSERA_ASSIGN_OR_RETURN(
          const std::vector<std::string> got,
          rank.comms.world().HostAllGather(want[rank.rank]));
      EXPECT_EQ(got, want);
    }
    return absl::OkStatus();
  }));
}

// Rows, columns and the whole of a grid, each on a stream of its own, work side
// by side.
TEST_P(CommConformance, ManyGroupsAndStreamsWorkAtOnce) {
  constexpr int kRounds = 30;
  const int rows = ranks() % 2 == 0 ? 2 : 1;
  ASSERT_OK(Run([&](ConformanceRank& rank) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(
        const DeviceMesh mesh,
        DeviceMesh::Create({{"y", rows}, {"x", rank.num_ranks / rows}}));
    struct Lane {
      std::unique_ptr<Stream> stream;
      Communicator* communicator;
      std::vector<int64_t> value;
      TensorView view;  // its copy
    };
    std::vector<Lane> lanes;
    DeviceCopies copies(rank);
    const std::vector<std::vector<int>> all_axes = {
        {0}, {1}, {0, 1}, {1, 0}, {0}};
    for (const std::vector<int>& axes : all_axes) {
      TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream,
                               rank.device.NewStream("lane"));
      TESSERA_ASSIGN_OR_RETURN(Communicator* const communicator,
                               rank.comms.GetTogether(mesh, axes, *stream));
      lanes.push_back({std::move(stream),
                       communicator,
                       std::vector<int64_t>(1000, rank.rank + 1),
                       {}});
      TESSERA_ASSIGN_OR_RETURN(lanes.back().view, copies.Make(TensorView::Flat(
                                                      lanes.back().value.data(),
                                                      DType::kI64, 1000)));
    }
    TESSERA_RETURN_IF_ERROR(copies.Await());
    for (int round = 0; round < kRounds; ++round) {
      for (Lane& lane : lanes) {
        TESSERA_RETURN_IF_ERROR(
            lane.communicator->AllReduce(ReduceOp::kSum, lane.view, lane.view));
      }
    }
    for (Lane& lane : lanes) {
      TESSERA_RETURN_IF_ERROR(lane.stream->Synchronize());
    }
    TESSERA_RETURN_IF_ERROR(copies.Return());
    for (Lane& lane : lanes) {
      uint64_t want = 0;  // wraps, as the sums do
      for (int member : lane.communicator->members()) want += member + 1;
      for (int round = 1; round < kRounds; ++round) {
        want *= lane.communicator->size();
      }
      EXPECT_THAT(lane.value, Each(static_cast<int64_t>(want)));
    }
    return absl::OkStatus();
  }));
}

// The last rank asks for another op in the second operation.
TEST_P(CommConformance, RanksThatDisagreeAllGetTheDifference) {
  if (ranks() == 1) GTEST_SKIP() << "one rank agrees with itself";
  if (!GetParam().compares_calls)
    GTEST_SKIP() << "the backend does not compare";
  ASSERT_OK(Run([&](ConformanceRank& rank) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(const auto stream,
                             rank.device.NewStream("tested"));
    TESSERA_ASSIGN_OR_RETURN(
        const auto group,
        rank.comms.world().Split(0, rank.rank, "dp", *stream));
    std::vector<float> memory(12, 1.0f);
    const TensorView view = TensorView::Flat(memory.data(), DType::kF32, 12);
    const bool odd = rank.rank == rank.num_ranks - 1;
    absl::Status status = group->AllReduce(ReduceOp::kSum, view, view);
    status.Update(
        group->AllReduce(odd ? ReduceOp::kMax : ReduceOp::kSum, view, view));
    status.Update(stream->Synchronize());
    EXPECT_THAT(
        status,
        StatusIs(absl::StatusCode::kFailedPrecondition,
                 AllOf(HasSubstr("ranks disagree at operation 1 of 'dp'"),
                       HasSubstr(" all_reduce sum f32[12]"),
                       HasSubstr(absl::StrCat("rank ", rank.num_ranks - 1,
                                              " calls all_reduce max")))));
    EXPECT_THAT(memory, Each(static_cast<float>(rank.num_ranks)));
    EXPECT_THAT(group->Barrier(), StatusIs(absl::StatusCode::kAborted,
                                           HasSubstr("ranks disagree")));
    return absl::OkStatus();
  }));
}

}  // namespace
}  // namespace tessera::testing

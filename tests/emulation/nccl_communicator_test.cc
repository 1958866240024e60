#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/nccl/nccl_world.h"
#include "tessera/mesh/device_mesh.h"
#include "tests/emulation/machine.h"
#include "tests/emulation/nccl_network.h"
#include "tests/emulation/run_emulated_ranks.h"
#include "tests/status_matchers.h"

namespace tessera::emulation {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOkAndHolds;
using testing::StatusIs;

constexpr int64_t kElements = 10;

// Runs of which some rank stays away: time has to pass.
EmulatedRunOptions WithTimeout(milliseconds timeout) {
  EmulatedRunOptions options;
  options.gpus.machine.time_passes = true;
  options.nccl.timeout = timeout;
  return options;
}

// A tensor of f32 on a rank's GPU.
class Floats {
 public:
  static absl::StatusOr<Floats> Create(Stream& stream, float value) {
    TESSERA_ASSIGN_OR_RETURN(
        Buffer buffer,
        stream.device().Allocate(kElements * sizeof(float), "x", &stream));
    Floats floats(stream, std::move(buffer));
    TESSERA_RETURN_IF_ERROR(
        stream.device().kernels().Fill(stream, floats.view(), value));
    return floats;
  }
  Floats(Floats&&) = default;
  ~Floats() { buffer_.ResetAfter(stream_); }

  TensorView view() const {
    return TensorView::Flat(buffer_.data(), DType::kF32, kElements);
  }
  absl::StatusOr<std::vector<float>> Read() {
    std::vector<float> values(kElements);
    TESSERA_RETURN_IF_ERROR(
        stream_.device().kernels().CopyToHost(stream_, values.data(), view()));
    TESSERA_RETURN_IF_ERROR(stream_.Synchronize());
    return values;
  }

 private:
  Floats(Stream& stream, Buffer buffer)
      : stream_(stream), buffer_(std::move(buffer)) {}

  Stream& stream_;
  Buffer buffer_;
};

absl::Status Sum(Communicator& communicator, const Floats& x) {
  return communicator.AllReduce(ReduceOp::kSum, x.view(), x.view());
}

std::vector<int> RanksBelow(int end) {
  std::vector<int> ranks;
  for (int rank = 0; rank < end; ++rank) ranks.push_back(rank);
  return ranks;
}

// Worlds and groups.

TEST(NcclWorldTest, JoinsEachStreamWithACommunicatorOfItsOwn) {
  EXPECT_OK(RunEmulatedRanks(3, [](EmulatedRank& rank) -> absl::Status {
    EXPECT_EQ(rank.world.rank(), rank.rank);
    EXPECT_EQ(rank.world.num_ranks(), 3);
    TESSERA_ASSIGN_OR_RETURN(const auto side, rank.device.NewStream("side"));
    TESSERA_ASSIGN_OR_RETURN(const auto comm, rank.world.Join(*side));
    EXPECT_EQ(comm->name(), "world");
    TESSERA_ASSIGN_OR_RETURN(Floats x, Floats::Create(*side, 1.0f));
    TESSERA_RETURN_IF_ERROR(Sum(*comm, x));
    EXPECT_THAT(x.Read(), IsOkAndHolds(Each(3.0f)));
    return absl::OkStatus();
  }));
}

TEST(NcclWorldTest, IsMadeFromAnotherBackendsRanks) {
  EXPECT_OK(RunEmulatedRanks(3, [](EmulatedRank& rank) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(
        NcclWorld world,
        NcclWorld::CreateFrom(rank.device, rank.comms.world()));
    TESSERA_ASSIGN_OR_RETURN(const auto comm, world.Join(rank.stream));
    EXPECT_EQ(comm->rank(), rank.rank);
    TESSERA_ASSIGN_OR_RETURN(Floats x, Floats::Create(rank.stream, 2.0f));
    TESSERA_RETURN_IF_ERROR(Sum(*comm, x));
    EXPECT_THAT(x.Read(), IsOkAndHolds(Each(6.0f)));
    return absl::OkStatus();
  }));
}

TEST(NcclWorldTest, IsMadeFromTheEnvironment) {
  EXPECT_OK(RunEmulatedGpus(1, [](GpuRank& rank) -> absl::Status {
    EXPECT_THAT(
        NcclWorld::CreateFromEnvironment(rank.device),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("WORLD_SIZE")));
    for (const auto& [name, value] :
         {std::pair("RANK", "0"), std::pair("WORLD_SIZE", "1"),
          std::pair("MASTER_ADDR", "localhost"),
          std::pair("MASTER_PORT", "1")}) {
      setenv(name, value, /*overwrite=*/1);
    }
    TESSERA_ASSIGN_OR_RETURN(NcclWorld world,
                             NcclWorld::CreateFromEnvironment(rank.device));
    EXPECT_EQ(world.num_ranks(), 1);
    TESSERA_ASSIGN_OR_RETURN(const auto stream, rank.device.NewStream("s"));
    TESSERA_ASSIGN_OR_RETURN(const auto comm, world.Join(*stream));
    EXPECT_THAT(comm->HostAllGather("x"),
                IsOkAndHolds(::testing::ElementsAre("x")));
    return absl::OkStatus();
  }));
}

TEST(NcclWorldTest, RejectsRanksAndStreamsThatAreNotItsOwn) {
  EXPECT_OK(RunEmulatedGpus(2, [](GpuRank& rank) -> absl::Status {
    EXPECT_THAT(NcclWorld::Create(rank.device, NcclId(), 2, 2),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("want a rank in [0,2), found 2")));
    TESSERA_ASSIGN_OR_RETURN(NcclWorld alone,
                             NcclWorld::Create(rank.device, NcclId(), 0, 1));
    TESSERA_ASSIGN_OR_RETURN(const auto other,
                             CudaDevice::Create(1 - rank.rank));
    TESSERA_ASSIGN_OR_RETURN(const auto stream, other->NewStream("foreign"));
    EXPECT_THAT(
        alone.Join(*stream),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 HasSubstr(absl::StrCat("'world' wants a stream of cuda:",
                                        rank.rank, ", found 'foreign'"))));
    return absl::OkStatus();
  }));
}

TEST(NcclWorldTest, MakesGroupsByTheirMembersAlone) {
  EXPECT_OK(RunEmulatedRanks(4, [](EmulatedRank& rank) -> absl::Status {
    if (rank.rank % 2 == 1) return absl::OkStatus();
    TESSERA_ASSIGN_OR_RETURN(const auto even, rank.comms.world().Subgroup(
                                                  {2, 0}, "even", rank.stream));
    EXPECT_EQ(even->rank(), rank.rank == 2 ? 0 : 1);
    TESSERA_ASSIGN_OR_RETURN(Floats x, Floats::Create(rank.stream, rank.rank));
    TESSERA_RETURN_IF_ERROR(even->Broadcast(x.view(), 0));
    EXPECT_THAT(x.Read(), IsOkAndHolds(Each(2.0f)));
    return absl::OkStatus();
  }));
}

int64_t NumIds() { return Machine::current()->nccl().num_ids(); }
int64_t NumSplits() { return Machine::current()->nccl().num_splits(); }

// The sum of 2^rank over the group tells who is in it.
absl::Status CheckGroup(Communicator& group) {
  const int own = group.members()[group.rank()];
  TESSERA_ASSIGN_OR_RETURN(
      Floats x, Floats::Create(group.stream(), static_cast<float>(1 << own)));
  TESSERA_RETURN_IF_ERROR(Sum(group, x));
  int sum = 0;
  for (int member : group.members()) sum += 1 << member;
  EXPECT_THAT(x.Read(), IsOkAndHolds(Each(static_cast<float>(sum))));
  return absl::OkStatus();
}

TEST(NcclWorldTest, SplitsGroupsThatAllRanksMakeAndNeedsNoId) {
  EXPECT_OK(RunEmulatedRanks(4, [](EmulatedRank& rank) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(const DeviceMesh mesh,
                             DeviceMesh::Parse("dp=2,tp=2"));
    TESSERA_ASSIGN_OR_RETURN(const auto side, rank.device.NewStream("side"));
    // Is under way, for all that the host knows.
    TESSERA_ASSIGN_OR_RETURN(Floats x, Floats::Create(rank.stream, 1.0f));
    TESSERA_RETURN_IF_ERROR(Sum(rank.comms.world(), x));
    for (Stream* stream : {&rank.stream, side.get()}) {
      for (const std::vector<int>& axes :
           std::vector<std::vector<int>>{{0}, {1}, {1, 0}}) {
        TESSERA_ASSIGN_OR_RETURN(Communicator* const group,
                                 rank.comms.GetTogether(mesh, axes, *stream));
        TESSERA_RETURN_IF_ERROR(CheckGroup(*group));
      }
    }
    TESSERA_RETURN_IF_ERROR(rank.comms.world().Barrier());
    TESSERA_RETURN_IF_ERROR(rank.stream.Synchronize());
    EXPECT_EQ(NumSplits(), 4 * 6);
    EXPECT_EQ(NumIds(), 0);
    return absl::OkStatus();
  }));
}

TEST(NcclWorldTest, SplitsByColorAndKey) {
  EXPECT_OK(RunEmulatedRanks(5, [](EmulatedRank& rank) -> absl::Status {
    Communicator& world = rank.comms.world();
    // Ranks 4, 2 and 0; 3 alone; 1 not at all.
    const int color = rank.rank == 1 ? -1 : rank.rank % 2;
    TESSERA_ASSIGN_OR_RETURN(
        const auto group, world.Split(color, -rank.rank, "part", rank.stream));
    EXPECT_EQ(NumIds(), 0);
    EXPECT_EQ(group == nullptr, rank.rank == 1);
    if (group == nullptr) return absl::OkStatus();
    EXPECT_EQ(group->rank(), rank.rank == 3 ? 0 : (4 - rank.rank) / 2);
    TESSERA_RETURN_IF_ERROR(CheckGroup(*group));
    TESSERA_ASSIGN_OR_RETURN(Floats x, Floats::Create(rank.stream, rank.rank));
    TESSERA_RETURN_IF_ERROR(group->Broadcast(x.view(), 0));
    EXPECT_THAT(x.Read(), IsOkAndHolds(Each(rank.rank == 3 ? 3.0f : 4.0f)));
    return absl::OkStatus();
  }));
}

// A mesh of some of the world's ranks, the others being elsewhere.
TEST(NcclWorldTest, SplitsACommunicatorOfTheMeshWhereThereIsOne) {
  EXPECT_OK(RunEmulatedRanks(5, [](EmulatedRank& rank) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(const DeviceMesh mesh,
                             DeviceMesh::Parse("dp=2:2,tp=2:1@1"));
    if (!mesh.Contains(rank.rank)) return absl::OkStatus();
    TESSERA_RETURN_IF_ERROR(rank.comms.Get(mesh, {0, 1}, rank.stream).status());
    for (int axis : {0, 1}) {
      TESSERA_ASSIGN_OR_RETURN(
          Communicator* const group,
          rank.comms.GetTogether(mesh, {axis}, rank.stream));
      TESSERA_RETURN_IF_ERROR(CheckGroup(*group));
    }
    EXPECT_EQ(NumIds(), 1);
    return absl::OkStatus();
  }));
}

TEST(NcclWorldTest, BorrowsTheCallersComm) {
  EXPECT_OK(RunEmulatedGpus(2, [](GpuRank& rank) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(const auto stream, rank.device.NewStream("s"));
    ncclComm_t lent = nullptr;
    cudaSetDevice(rank.rank);
    EXPECT_EQ(ncclCommInitRank(&lent, 2, ncclUniqueId{{'l', 'e', 'n', 't'}},
                               rank.rank),
              ncclSuccess);
    {
      TESSERA_ASSIGN_OR_RETURN(NcclWorld world,
                               NcclWorld::Borrow(rank.device, lent));
      EXPECT_EQ(world.rank(), rank.rank);
      TESSERA_ASSIGN_OR_RETURN(const auto comm, world.Join(*stream));
      TESSERA_ASSIGN_OR_RETURN(Floats x, Floats::Create(*stream, 1.0f));
      TESSERA_RETURN_IF_ERROR(Sum(*comm, x));
      EXPECT_THAT(x.Read(), IsOkAndHolds(Each(2.0f)));
      // It may be a blocking one: split, it would wait without a timeout.
      TESSERA_ASSIGN_OR_RETURN(const auto both,
                               comm->Partition({0, 1}, "both", *stream));
      TESSERA_RETURN_IF_ERROR(CheckGroup(*both));
      TESSERA_ASSIGN_OR_RETURN(const auto none,
                               comm->Partition({}, "none", *stream));
      EXPECT_EQ(none, nullptr);
      EXPECT_EQ(NumSplits(), 0);
      TESSERA_ASSIGN_OR_RETURN(const auto other,
                               CudaDevice::Create(1 - rank.rank));
      EXPECT_THAT(NcclWorld::Borrow(*other, lent),
                  StatusIs(absl::StatusCode::kInvalidArgument,
                           HasSubstr("want an ncclComm_t of cuda:")));
    }
    EXPECT_EQ(ncclCommDestroy(lent), ncclSuccess);
    Machine::current()->nccl().EndProgram(rank.rank);
    return absl::OkStatus();
  }));
}

// Failures.

TEST(NcclFailuresTest, ARankThatStaysAwayMakesTheOthersTimeOut) {
  EXPECT_OK(RunEmulatedRanks(
      3,
      [](EmulatedRank& rank) -> absl::Status {
        if (rank.rank == 2) return absl::OkStatus();
        TESSERA_ASSIGN_OR_RETURN(Floats x, Floats::Create(rank.stream, 1.0f));
        Communicator& world = rank.comms.world();
        world.SetTimeout(milliseconds(30));
        TESSERA_RETURN_IF_ERROR(Sum(world, x));
        EXPECT_THAT(
            rank.stream.Synchronize(),
            StatusIs(absl::StatusCode::kDeadlineExceeded,
                     AllOf(HasSubstr("all_reduce, operation 0 of 'world'"),
                           HasSubstr("within 30 ms"))));
        EXPECT_THAT(Sum(world, x), StatusIs(absl::StatusCode::kAborted,
                                            HasSubstr("within 30 ms")));
        EXPECT_THAT(world.HostAllGather("x"),
                    StatusIs(absl::StatusCode::kAborted));
        EXPECT_THAT(world.Subgroup({0, 1}, "rest", rank.stream),
                    StatusIs(absl::StatusCode::kAborted));
        EXPECT_THAT(rank.world.Check(),
                    StatusIs(absl::StatusCode::kDeadlineExceeded));
        return absl::OkStatus();
      },
      WithTimeout(std::chrono::minutes(1))));
}

// The host waits for a stream that waits for another one.
TEST(NcclFailuresTest, StreamsThatWaitForTheCollectivesStreamFailWithIt) {
  EXPECT_OK(RunEmulatedRanks(
      2,
      [](EmulatedRank& rank) -> absl::Status {
        TESSERA_ASSIGN_OR_RETURN(const auto between,
                                 rank.device.NewStream("between"));
        TESSERA_ASSIGN_OR_RETURN(const auto last,
                                 rank.device.NewStream("last"));
        if (rank.rank == 1) return absl::OkStatus();
        TESSERA_ASSIGN_OR_RETURN(Floats x, Floats::Create(rank.stream, 1.0f));
        const Event before = rank.stream.Record();
        rank.comms.world().SetTimeout(milliseconds(30));
        TESSERA_RETURN_IF_ERROR(Sum(rank.comms.world(), x));
        TESSERA_RETURN_IF_ERROR(between->Wait(rank.stream.Record()));
        TESSERA_RETURN_IF_ERROR(last->Wait(between->Record()));
        TESSERA_RETURN_IF_ERROR(rank.stream.Wait(last->Record()));
        EXPECT_OK(before.Synchronize());
        EXPECT_THAT(last->Synchronize(),
                    StatusIs(absl::StatusCode::kDeadlineExceeded,
                             HasSubstr("operation 0 of 'world'")));
        EXPECT_THAT(between->Synchronize(),
                    StatusIs(absl::StatusCode::kDeadlineExceeded));
        return absl::OkStatus();
      },
      WithTimeout(std::chrono::minutes(1))));
}

TEST(NcclFailuresTest, ARankThatDoesNotJoinMakesTheOthersTimeOut) {
  EXPECT_OK(RunEmulatedGpus(
      2,
      [](GpuRank& rank) -> absl::Status {
        if (rank.rank == 1) return absl::OkStatus();
        EXPECT_THAT(
            NcclWorld::Create(rank.device, NcclId(), 0, 2,
                              {.timeout = milliseconds(30)}),
            StatusIs(absl::StatusCode::kDeadlineExceeded,
                     HasSubstr("ncclCommInitRankConfig of 'world' waited 30 "
                               "ms for other ranks")));
        Machine::current()->nccl().EndProgram(rank.rank);
        return absl::OkStatus();
      },
      {.machine = {.time_passes = true}}));
}

TEST(NcclFailuresTest, ARankThatDoesNotSplitMakesTheOthersTimeOut) {
  EXPECT_OK(RunEmulatedRanks(
      3,
      [](EmulatedRank& rank) -> absl::Status {
        if (rank.rank == 2) return absl::OkStatus();
        Communicator& world = rank.comms.world();
        world.SetTimeout(milliseconds(30));
        EXPECT_THAT(world.Partition({0, 1}, "two", rank.stream),
                    StatusIs(absl::StatusCode::kDeadlineExceeded,
                             HasSubstr("ncclCommSplit of 'world' waited 30 ms "
                                       "for other ranks")));
        EXPECT_THAT(world.Partition({}, "two", rank.stream),
                    StatusIs(absl::StatusCode::kAborted));
        return absl::OkStatus();
      },
      WithTimeout(std::chrono::minutes(1))));
}

// What it has come too late for is an error there, too.
TEST(NcclFailuresTest, ACollectiveThatIsStuckKeepsGroupsFromBeingSplit) {
  EXPECT_OK(RunEmulatedRanks(
      2,
      [](EmulatedRank& rank) -> absl::Status {
        if (rank.rank == 1) return absl::OkStatus();
        Communicator& world = rank.comms.world();
        world.SetTimeout(milliseconds(30));
        TESSERA_RETURN_IF_ERROR(world.Barrier());
        EXPECT_THAT(world.Partition({0, 1}, "two", rank.stream),
                    StatusIs(absl::StatusCode::kDeadlineExceeded,
                             HasSubstr("barrier, operation 0 of 'world'")));
        EXPECT_EQ(NumSplits(), 0);
        return absl::OkStatus();
      },
      WithTimeout(std::chrono::minutes(1))));
}

TEST(NcclFailuresTest, AnErrorOfNcclFailsTheStreamWithItsText) {
  EXPECT_OK(RunEmulatedRanks(
      2,
      [](EmulatedRank& rank) -> absl::Status {
        TESSERA_ASSIGN_OR_RETURN(Floats x, Floats::Create(rank.stream, 1.0f));
        if (rank.rank == 1) return absl::OkStatus();
        TESSERA_RETURN_IF_ERROR(Sum(rank.comms.world(), x));
        Machine::current()->nccl().FailFromOutside(0, ncclSystemError);
        EXPECT_THAT(rank.stream.Synchronize(),
                    StatusIs(absl::StatusCode::kInternal,
                             HasSubstr("'world': unhandled system error: "
                                       "emulated")));
        return absl::OkStatus();
      },
      WithTimeout(std::chrono::minutes(1))));
}

TEST(NcclFailuresTest, AnErrorOfNcclIsFoundByTheNextCollective) {
  EXPECT_OK(RunEmulatedRanks(2, [](EmulatedRank& rank) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(Floats x, Floats::Create(rank.stream, 1.0f));
    TESSERA_RETURN_IF_ERROR(Sum(rank.comms.world(), x));
    TESSERA_RETURN_IF_ERROR(rank.stream.Synchronize());
    Machine::current()->nccl().FailFromOutside(rank.rank, ncclSystemError);
    EXPECT_THAT(Sum(rank.comms.world(), x),
                StatusIs(absl::StatusCode::kInternal));
    EXPECT_THAT(rank.stream.status(), StatusIs(absl::StatusCode::kInternal));
    return absl::OkStatus();
  }));
}

TEST(NcclFailuresTest, AnAbortFailsThisRankAtOnceAndItsPeersByNccl) {
  EXPECT_OK(RunEmulatedRanks(
      3,
      [](EmulatedRank& rank) -> absl::Status {
        Machine::current()->nccl().set_tells_of_aborts(true);
        TESSERA_ASSIGN_OR_RETURN(Floats x, Floats::Create(rank.stream, 1.0f));
        Communicator& world = rank.comms.world();
        TESSERA_RETURN_IF_ERROR(world.Barrier());
        TESSERA_RETURN_IF_ERROR(rank.stream.Synchronize());
        if (rank.rank == 0) {
          world.Abort(absl::CancelledError("enough"));
          EXPECT_THAT(Sum(world, x),
                      StatusIs(absl::StatusCode::kAborted,
                               HasSubstr("by rank 0: CANCELLED: enough")));
          return absl::OkStatus();
        }
        absl::Status status = Sum(world, x);
        status.Update(rank.stream.Synchronize());
        EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal,
                                     HasSubstr("remote process exited")));
        return absl::OkStatus();
      },
      WithTimeout(std::chrono::minutes(1))));
}

TEST(NcclFailuresTest, ABorrowedCommIsLeftToItsOwner) {
  EXPECT_OK(RunEmulatedGpus(
      2,
      [](GpuRank& rank) -> absl::Status {
        TESSERA_ASSIGN_OR_RETURN(const auto stream, rank.device.NewStream("s"));
        ncclComm_t lent = nullptr;
        cudaSetDevice(rank.rank);
        EXPECT_EQ(ncclCommInitRank(&lent, 2, ncclUniqueId{{'l'}}, rank.rank),
                  ncclSuccess);
        if (rank.rank == 0) {
          TESSERA_ASSIGN_OR_RETURN(
              NcclWorld world,
              NcclWorld::Borrow(rank.device, lent,
                                {.timeout = milliseconds(30)}));
          TESSERA_ASSIGN_OR_RETURN(const auto comm, world.Join(*stream));
          TESSERA_RETURN_IF_ERROR(comm->Barrier());
          EXPECT_THAT(stream->Synchronize(),
                      StatusIs(absl::StatusCode::kDeadlineExceeded));
        }
        EXPECT_EQ(ncclCommDestroy(lent), ncclSuccess);
        Machine::current()->nccl().EndProgram(rank.rank);
        return absl::OkStatus();
      },
      {.machine = {.time_passes = true}}));
}

// On the group's stream, between what is before and behind it on `stream`.
// Where that fails, waits for it: the memory may go then.
absl::Status SumBeside(Communicator& group, const Floats& x, Stream& stream) {
  absl::Status status = group.stream().Wait(stream.Record());
  if (status.ok()) status = Sum(group, x);
  if (status.ok()) status = stream.Wait(group.stream().Record());
  if (!status.ok()) group.stream().Synchronize().IgnoreError();
  return status;
}

// A short program that uses all there is.
absl::Status UseAll(EmulatedRank& rank) {
  Communicator& world = rank.comms.world();
  TESSERA_ASSIGN_OR_RETURN(const auto side, rank.device.NewStream("side"));
  TESSERA_ASSIGN_OR_RETURN(
      const auto group,
      world.Subgroup(RanksBelow(rank.num_ranks), "group", *side));
  TESSERA_ASSIGN_OR_RETURN(Floats x, Floats::Create(rank.stream, 1.0f));
  TESSERA_RETURN_IF_ERROR(SumBeside(*group, x, rank.stream));
  TESSERA_RETURN_IF_ERROR(world.Barrier());
  TESSERA_ASSIGN_OR_RETURN(const std::vector<float> values, x.Read());
  EXPECT_THAT(values, Each(static_cast<float>(rank.num_ranks)));
  return world.HostAllGather("x").status();
}

// One that makes groups in both ways, by ranks 0 and 1, and by all.
absl::Status MakeGroups(EmulatedRank& rank) {
  Communicator& world = rank.comms.world();
  const bool is_member = rank.rank < 2;
  if (is_member) {
    TESSERA_ASSIGN_OR_RETURN(const auto two,
                             world.Subgroup({0, 1}, "two", rank.stream));
    TESSERA_RETURN_IF_ERROR(CheckGroup(*two));
  }
  TESSERA_ASSIGN_OR_RETURN(
      const auto part,
      world.Partition(is_member ? RanksBelow(2) : std::vector<int>(), "part",
                      rank.stream));
  return is_member ? CheckGroup(*part) : absl::OkStatus();
}

// Each call of rank 1 in turn.
void ExpectThatEveryFailingCallIsAnError(
    int num_ranks, absl::FunctionRef<absl::Status(EmulatedRank&)> program) {
  EmulatedRunOptions options = WithTimeout(milliseconds(20));
  GpuReport sound;
  ASSERT_OK(RunEmulatedRanks(num_ranks, program, {}, &sound));
  int unnoticed = 0;
  for (int64_t call = 0; call < sound.calls[1]; ++call) {
    SCOPED_TRACE(absl::StrCat("call ", call));
    options.gpus.machine.failing_call = Machine::FailingCall{1, call};
    GpuReport report;
    const absl::Status status =
        RunEmulatedRanks(num_ranks, program, options, &report);
    EXPECT_THAT(report.problems, IsEmpty());
    // What fails while all is taken down is nobody's error any more.
    if (status.ok()) ++unnoticed;
  }
  EXPECT_LT(unnoticed, 10);
}

TEST(NcclFailuresTest, EveryCallThatFailsIsAnErrorAndNobodyHangs) {
  ExpectThatEveryFailingCallIsAnError(2, UseAll);
}

TEST(NcclFailuresTest, EveryCallThatFailsWhereGroupsAreMadeIsAnError) {
  ExpectThatEveryFailingCallIsAnError(3, MakeGroups);
}

// What is left out is found.

TEST(NcclRacesTest, EveryWaitOfTheProgramIsNeeded) {
  GpuReport sound;
  ASSERT_OK(RunEmulatedRanks(2, UseAll, {}, &sound));
  const auto waits = static_cast<int64_t>(sound.waits[0].size());
  int64_t found = 0;
  for (int64_t wait = 0; wait < waits; ++wait) {
    if (sound.waits[0][wait].redundant) continue;
    EmulatedRunOptions options;
    options.gpus.drop_wait = testing::DroppedWait{.rank = 0, .call = wait};
    EXPECT_THAT(RunEmulatedRanks(2, UseAll, options),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("not ordered after")))
        << "wait " << wait;
    ++found;
  }
  EXPECT_EQ(found, 2);  // one in front of the sum, one behind
}

TEST(NcclRacesTest, OrdersThatDifferBetweenRanksGetStuck) {
  const auto run = [](bool differs) {
    return RunEmulatedRanks(2, [&](EmulatedRank& rank) -> absl::Status {
      TESSERA_ASSIGN_OR_RETURN(const auto side, rank.device.NewStream("side"));
      TESSERA_ASSIGN_OR_RETURN(const auto other, rank.comms.world().Subgroup(
                                                     {0, 1}, "other", *side));
      Communicator* first = &rank.comms.world();
      Communicator* second = other.get();
      if (differs && rank.rank == 1) std::swap(first, second);
      TESSERA_RETURN_IF_ERROR(first->Barrier());
      TESSERA_RETURN_IF_ERROR(second->Barrier());
      TESSERA_RETURN_IF_ERROR(side->Synchronize());
      return rank.stream.Synchronize();
    });
  };
  EXPECT_OK(run(false));
  EXPECT_THAT(run(true), StatusIs(absl::StatusCode::kFailedPrecondition,
                                  HasSubstr("nothing can go on")));
}

// Memory that NCCL registers.

TEST(NcclAllocatorTest, GroupsRegisterItsBlocksOnce) {
  EXPECT_OK(RunEmulatedGpus(2, [](GpuRank& gpu) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(const auto memory, NcclAllocator::Create());
    TESSERA_ASSIGN_OR_RETURN(
        const auto device,
        CudaDevice::Create(gpu.rank, {.allocator = memory.get()}));
    {
      TESSERA_ASSIGN_OR_RETURN(const auto stream, device->NewStream("s"));
      TESSERA_ASSIGN_OR_RETURN(
          NcclWorld world,
          NcclWorld::Create(*device, NcclId(), gpu.rank, gpu.num_ranks));
      TESSERA_ASSIGN_OR_RETURN(const auto comm, world.Join(*stream));
      TESSERA_ASSIGN_OR_RETURN(Floats x, Floats::Create(*stream, 1.0f));
      const MemoryRange block = memory->BlockOf(x.view().data());
      EXPECT_GE(block.bytes, 64 << 20);
      EXPECT_EQ(memory->BlockOf(&block).begin, nullptr);
      const auto registered = [&] {
        return Machine::current()->nccl().num_registered(gpu.rank);
      };
      EXPECT_EQ(registered(), 0);
      TESSERA_RETURN_IF_ERROR(Sum(*comm, x));
      TESSERA_RETURN_IF_ERROR(Sum(*comm, x));
      EXPECT_EQ(registered(), 1);
      EXPECT_THAT(x.Read(), IsOkAndHolds(Each(4.0f)));
    }
    Machine::current()->nccl().EndProgram(gpu.rank);
    return absl::OkStatus();
  }));
}

// What one stream frees, another one gets, in the order of their work.
TEST(NcclAllocatorTest, HandsMemoryFromStreamToStreamInOrder) {
  EXPECT_OK(RunEmulatedGpus(1, [](GpuRank& gpu) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(const auto memory, NcclAllocator::Create());
    TESSERA_ASSIGN_OR_RETURN(
        const auto device,
        CudaDevice::Create(gpu.rank, {.allocator = memory.get()}));
    TESSERA_ASSIGN_OR_RETURN(const auto one, device->NewStream("one"));
    TESSERA_ASSIGN_OR_RETURN(const auto two, device->NewStream("two"));
    std::vector<void*> first;
    for (int round = 0; round < 3; ++round) {
      for (Stream* stream : {one.get(), two.get()}) {
        std::vector<Buffer> buffers;
        for (int64_t bytes : {1000, 40, 3000}) {
          TESSERA_ASSIGN_OR_RETURN(Buffer buffer,
                                   device->Allocate(bytes, "x", stream));
          TESSERA_RETURN_IF_ERROR(device->kernels().Fill(
              *stream, TensorView::Flat(buffer.data(), DType::kF32, bytes / 4),
              1.0));
          buffers.push_back(std::move(buffer));
        }
        if (first.empty()) {
          for (const Buffer& buffer : buffers) first.push_back(buffer.data());
        }
        // All that was freed has become one piece again.
        for (size_t i = 0; i < buffers.size(); ++i) {
          EXPECT_EQ(buffers[i].data(), first[i]);
        }
        for (size_t i : {0, 2, 1}) buffers[i].ResetAfter(*stream);
      }
    }
    // Without a stream, everybody may use it at once.
    TESSERA_ASSIGN_OR_RETURN(Buffer all, device->Allocate(5000, "all"));
    EXPECT_EQ(all.data(), first[0]);
    TESSERA_RETURN_IF_ERROR(device->kernels().Fill(
        *two, TensorView::Flat(all.data(), DType::kF32, 1250), 2.0));
    TESSERA_RETURN_IF_ERROR(two->Synchronize());
    return absl::OkStatus();
  }));
}

}  // namespace
}  // namespace tessera::emulation

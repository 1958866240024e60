#include "tessera/testing/run_scheduled_ranks.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <latch>
#include <limits>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tests/sanitized.h"
#include "tests/status_matchers.h"

namespace tessera::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::SizeIs;

constexpr auto kFailedPrecondition = absl::StatusCode::kFailedPrecondition;

// A stream beside the compute stream, a communicator on it, and memory.
struct Kit {
  static absl::StatusOr<Kit> Create(ScheduledRank& rank) {
    Kit kit;
    TESSERA_ASSIGN_OR_RETURN(kit.side, rank.device.NewStream("side"));
    std::vector<int> all(rank.num_ranks);
    for (int i = 0; i < rank.num_ranks; ++i) all[i] = i;
    TESSERA_ASSIGN_OR_RETURN(
        kit.comm, rank.comms.world().Subgroup(all, "side_comm", *kit.side));
    TESSERA_ASSIGN_OR_RETURN(kit.buffer,
                             rank.device.Allocate(64 * sizeof(float), "grad"));
    return kit;
  }

  // 16 elements of the memory, from `first`.
  TensorView Part(int first) const {
    return TensorView::Flat(static_cast<float*>(buffer.data()) + first,
                            DType::kF32, 16);
  }

  std::unique_ptr<Stream> side;
  std::unique_ptr<Communicator> comm;
  Buffer buffer;
};

// Runs the program on two ranks with a kit each, under a few seeds, and gives
// what is found under the last one: what has no order must not depend on them.
template <typename F>
absl::Status RunBoth(F program, ScheduledRunOptions options = {},
                     ScheduledReport* report = nullptr) {
  std::set<std::string> found;
  absl::Status status;
  ScheduledReport last;
  for (options.seed = 0; options.seed < 5; ++options.seed) {
    status = RunScheduledRanks(
        2,
        [&](ScheduledRank& rank) -> absl::Status {
          TESSERA_ASSIGN_OR_RETURN(Kit kit, Kit::Create(rank));
          absl::Status end = program(rank, kit);
          // Before the memory is freed.
          end.Update(kit.side->Synchronize());
          end.Update(rank.stream.Synchronize());
          return end;
        },
        options, &last);
    std::string problems;
    for (const std::string& problem : last.problems) {
      if (!absl::StrContains(problem, "was written")) problems += problem;
    }
    found.insert(problems);
  }
  EXPECT_THAT(found, SizeIs(1));
  if (report != nullptr) *report = last;
  return status;
}

Kernels& KernelsOf(ScheduledRank& rank) { return rank.device.kernels(); }

// --- Ranks -----------------------------------------------------------------

TEST(RunScheduledRanksTest, RunsEveryRank) {
  int sum = 0;
  EXPECT_OK(RunScheduledRanks(4, [&](ScheduledRank& rank) {
    sum += rank.rank;
    return rank.comms.world().Barrier();
  }));
  EXPECT_EQ(sum, 6);
}

TEST(RunScheduledRanksTest, RejectsNoRanks) {
  EXPECT_THAT(
      RunScheduledRanks(0, [](ScheduledRank&) { return absl::OkStatus(); }),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("want at least 1 rank")));
}

absl::Status FillAndReduce(ScheduledRank& rank) {
  TESSERA_ASSIGN_OR_RETURN(const Kit kit, Kit::Create(rank));
  for (int i = 0; i < 3; ++i) {
    TESSERA_RETURN_IF_ERROR(
        KernelsOf(rank).Fill(rank.stream, kit.Part(0), 1.0));
    TESSERA_RETURN_IF_ERROR(KernelsOf(rank).Fill(*kit.side, kit.Part(16), 2.0));
    TESSERA_RETURN_IF_ERROR(
        kit.comm->AllReduce(ReduceOp::kSum, kit.Part(16), kit.Part(16)));
  }
  TESSERA_RETURN_IF_ERROR(kit.side->Synchronize());
  return rank.stream.Synchronize();
}

std::vector<std::string> StepsOf(uint64_t seed) {
  ScheduledReport report;
  EXPECT_OK(RunScheduledRanks(3, FillAndReduce, {.seed = seed}, &report));
  return report.steps;
}

TEST(RunScheduledRanksTest, TheSameSeedGivesTheSameSteps) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    EXPECT_EQ(StepsOf(seed), StepsOf(seed)) << seed;
  }
}

TEST(RunScheduledRanksTest, SeedsGiveDifferentSteps) {
  std::set<std::vector<std::string>> runs;
  for (uint64_t seed = 0; seed < 10; ++seed) runs.insert(StepsOf(seed));
  EXPECT_THAT(runs, SizeIs(10));
  EXPECT_THAT(*runs.begin(),
              IsSupersetOf({"rank 2", "fill on stream 'compute' of rank 1",
                            "all_reduce of 'side_comm' on stream 'side' of "
                            "rank 0"}));
}

TEST(RunScheduledRanksTest, ReportsTheRanksThatFailed) {
  EXPECT_THAT(
      RunScheduledRanks(3,
                        [](ScheduledRank& rank) -> absl::Status {
                          if (rank.rank == 1)
                            return absl::NotFoundError("gone");
                          return rank.comms.world().Barrier();
                        }),
      StatusIs(absl::StatusCode::kNotFound,
               AllOf(HasSubstr("3 of 3 ranks failed, first rank 1: gone"),
                     HasSubstr("\n  rank 0: ABORTED: comm: rank 1 has left "
                               "before barrier, operation 0 of 'world': "
                               "NOT_FOUND: gone"),
                     HasSubstr("\n  rank 1: NOT_FOUND: gone"))));
}

TEST(RunScheduledRanksTest, ReportsExceptions) {
  EXPECT_THAT(RunScheduledRanks(2,
                                [](ScheduledRank& rank) -> absl::Status {
                                  if (rank.rank == 0) {
                                    throw std::runtime_error("oops");
                                  }
                                  return absl::OkStatus();
                                }),
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("the program threw: oops")));
}

// --- Races -----------------------------------------------------------------

TEST(ScheduledRacesTest, FindsWhatNoEventOrders) {
  const auto program = [](ScheduledRank& rank, Kit& kit) -> absl::Status {
    TESSERA_RETURN_IF_ERROR(
        KernelsOf(rank).Fill(rank.stream, kit.Part(0), 1.0));
    if (rank.rank == 0) {
      TESSERA_RETURN_IF_ERROR(kit.side->Wait(rank.stream.Record()));
    }
    return KernelsOf(rank).Scale(*kit.side, kit.Part(8), 2.0);
  };
  EXPECT_THAT(
      RunBoth(program),
      StatusIs(kFailedPrecondition,
               AllOf(HasSubstr("testing: problems in the run of seed 4:"),
                     HasSubstr("\n  rank 1: scale #1 on 'side' reads bytes "
                               "[32,96) of 'grad' (allocation 0), not ordered "
                               "after fill #1 on 'compute', which writes bytes "
                               "[0,64)"),
                     HasSubstr("\n  rank 1: scale #1 on 'side' writes"),
                     Not(HasSubstr("rank 0")))));
}

TEST(ScheduledRacesTest, TheHostOrdersWhereItWaits) {
  EXPECT_OK(RunBoth([](ScheduledRank& rank, Kit& kit) -> absl::Status {
    TESSERA_RETURN_IF_ERROR(
        KernelsOf(rank).Fill(rank.stream, kit.Part(0), 1.0));
    TESSERA_RETURN_IF_ERROR(rank.stream.Record().Synchronize());
    return KernelsOf(rank).Scale(*kit.side, kit.Part(0), 2.0);
  }));
}

TEST(ScheduledRacesTest, FindsACollectiveThatOverlapsWithCompute) {
  const auto program = [](bool waits, ScheduledRank& rank,
                          Kit& kit) -> absl::Status {
    TESSERA_RETURN_IF_ERROR(
        KernelsOf(rank).Fill(rank.stream, kit.Part(0), 1.0));
    TESSERA_RETURN_IF_ERROR(kit.side->Wait(rank.stream.Record()));
    TESSERA_RETURN_IF_ERROR(
        kit.comm->AllReduce(ReduceOp::kSum, kit.Part(0), kit.Part(16)));
    // Reads beside it are fine.
    TESSERA_RETURN_IF_ERROR(
        KernelsOf(rank).Copy(rank.stream, kit.Part(32), kit.Part(0)));
    if (waits) {
      TESSERA_RETURN_IF_ERROR(rank.stream.Wait(kit.side->Record()));
    }
    TESSERA_RETURN_IF_ERROR(
        KernelsOf(rank).Copy(rank.stream, kit.Part(48), kit.Part(16)));
    TESSERA_RETURN_IF_ERROR(rank.stream.Synchronize());
    if (waits) {
      EXPECT_THAT(std::vector<float>(kit.Part(48).as<float>(),
                                     kit.Part(48).as<float>() + 16),
                  Each(2.0f));
    }
    return absl::OkStatus();
  };
  const auto with = [&](bool waits) {
    return RunBoth([&](ScheduledRank& rank, Kit& kit) {
      return program(waits, rank, kit);
    });
  };
  EXPECT_OK(with(true));
  EXPECT_THAT(
      with(false),
      StatusIs(kFailedPrecondition,
               HasSubstr("copy #3 on 'compute' reads bytes [64,128) of 'grad' "
                         "(allocation 0), not ordered after all_reduce of "
                         "'side_comm' #1 on 'side', which writes")));
}

// A collective has an order with the other ranks, not with what they order.
TEST(ScheduledRacesTest, ACollectiveDoesNotOrderTwoStreamsOfARank) {
  EXPECT_THAT(
      RunBoth([](ScheduledRank& rank, Kit& kit) -> absl::Status {
        TESSERA_RETURN_IF_ERROR(
            KernelsOf(rank).Fill(rank.stream, kit.Part(0), 1.0));
        TESSERA_RETURN_IF_ERROR(rank.comms.world().Barrier());
        TESSERA_RETURN_IF_ERROR(rank.comms.world().HostAllGather("").status());
        TESSERA_RETURN_IF_ERROR(kit.comm->Barrier());
        return KernelsOf(rank).Fill(*kit.side, kit.Part(0), 2.0);
      }),
      StatusIs(kFailedPrecondition, HasSubstr("not ordered after fill #1")));
}

TEST(ScheduledRacesTest, ListsSoManyProblemsAndCountsTheRest) {
  const auto program = [](ScheduledRank& rank, Kit& kit) {
    for (int i = 0; i < 8; ++i) {
      Stream& stream = i % 2 == 0 ? rank.stream : *kit.side;
      KernelsOf(rank).Fill(stream, kit.Part(0), 1.0).IgnoreError();
    }
    return absl::OkStatus();
  };
  EXPECT_THAT(RunBoth(program, {.max_problems = 3}),
              StatusIs(kFailedPrecondition, HasSubstr("\n  and 8 more")));
}

// --- Memory ----------------------------------------------------------------

TEST(ScheduledMemoryTest, FindsUseAfterFree) {
  EXPECT_THAT(
      RunBoth([](ScheduledRank& rank, Kit& kit) -> absl::Status {
        const TensorView part = kit.Part(0);
        kit.buffer.ResetAfter(rank.stream);
        return KernelsOf(rank).Fill(rank.stream, part, 1.0);
      }),
      StatusIs(kFailedPrecondition,
               HasSubstr("fill #2 on 'compute' writes bytes [0,64) of 'grad' "
                         "(allocation 0), which free #1 on 'compute' has "
                         "freed")));
}

TEST(ScheduledMemoryTest, FindsFreesThatDoNotWaitForTheLastUse) {
  const auto program = [](ScheduledRank& rank, Kit& kit) -> absl::Status {
    TESSERA_RETURN_IF_ERROR(KernelsOf(rank).Fill(*kit.side, kit.Part(0), 1.0));
    if (rank.rank == 0) {
      kit.buffer.Reset();
    } else {
      kit.buffer.ResetAfter(rank.stream);
    }
    return absl::OkStatus();
  };
  EXPECT_THAT(
      RunBoth(program),
      StatusIs(kFailedPrecondition,
               AllOf(HasSubstr("rank 0: the host frees 'grad' (allocation 0), "
                               "not ordered after fill #1 on 'side'"),
                     HasSubstr("rank 1: free #1 on 'compute' writes bytes "
                               "[0,256) of 'grad' (allocation 0), not ordered "
                               "after fill #1 on 'side'"))));
}

TEST(ScheduledMemoryTest, IsFullOfPoisonWhenNewAndNeverUsedTwice) {
  EXPECT_OK(RunBoth([](ScheduledRank& rank, Kit& kit) -> absl::Status {
    const auto* const values = static_cast<float*>(kit.buffer.data());
    EXPECT_TRUE(std::all_of(values, values + 64,
                            [](float value) { return std::isnan(value); }));
    kit.buffer.ResetAfter(rank.stream);
    TESSERA_RETURN_IF_ERROR(rank.stream.Synchronize());
    TESSERA_ASSIGN_OR_RETURN(const Buffer other,
                             rank.device.Allocate(256, "other"));
    EXPECT_NE(other.data(), values);
    return absl::OkStatus();
  }));
}

// Memory that was allocated for one stream first may be another's until that
// stream comes there.
TEST(ScheduledMemoryTest, FindsUsesThatDoNotWaitForTheFirstStream) {
  const auto program = [](ScheduledRank& rank, Kit& kit) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(
        Buffer buffer, rank.device.Allocate(64, "scratch", kit.side.get()));
    const TensorView view = TensorView::Flat(buffer.data(), DType::kF32, 16);
    if (rank.rank == 0) {
      TESSERA_RETURN_IF_ERROR(rank.stream.Wait(kit.side->Record()));
    }
    TESSERA_RETURN_IF_ERROR(KernelsOf(rank).Fill(rank.stream, view, 1.0));
    TESSERA_RETURN_IF_ERROR(kit.side->Wait(rank.stream.Record()));
    buffer.ResetAfter(*kit.side);
    return absl::OkStatus();
  };
  EXPECT_THAT(
      RunBoth(program),
      StatusIs(kFailedPrecondition,
               AllOf(HasSubstr("rank 1: fill #1 on 'compute' writes bytes "
                               "[0,64) of 'scratch' (allocation 1), not "
                               "ordered after allocate #1 on 'side'"),
                     Not(HasSubstr("rank 0: ")))));
}

// The kernels of a launch may do other things than it says.
absl::Status WriteUndeclared(ScheduledRank& rank, float* where) {
  TESSERA_RETURN_IF_ERROR(rank.stream.Launch({.name = "careless"}, [where] {
    *where = 1;
    return absl::OkStatus();
  }));
  return rank.stream.Synchronize();
}

TEST(ScheduledMemoryTest, FindsUndeclaredWritesToFreedMemory) {
  EXPECT_THAT(
      RunBoth([](ScheduledRank& rank, Kit& kit) {
        auto* const values = static_cast<float*>(kit.buffer.data());
        kit.buffer.Reset();
        return WriteUndeclared(rank, values + 3);
      }),
      StatusIs(kFailedPrecondition,
               HasSubstr("rank 0: 'grad' of 256 bytes was written after it was "
                         "freed")));
}

TEST(ScheduledMemoryTest, FindsUndeclaredWritesBesideMemory) {
  for (int where : {-1, 64}) {
    EXPECT_THAT(
        RunBoth([where](ScheduledRank& rank, Kit& kit) {
          auto* const values = static_cast<float*>(kit.buffer.data());
          return WriteUndeclared(rank, values + where);
        }),
        StatusIs(kFailedPrecondition,
                 HasSubstr("memory beside 'grad' of 256 bytes was written")));
  }
}

TEST(ScheduledMemoryTest, HasALimit) {
  EXPECT_THAT(RunBoth([](ScheduledRank&, Kit&) { return absl::OkStatus(); },
                      {.memory_limit_bytes = 100}),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("no memory for 256 bytes of 'grad'")));
}

// As much as there is on no host. AddressSanitizer ends a program that asks the
// system for it.
TEST(ScheduledMemoryTest, IsRefusedAsOnOtherDevices) {
  EXPECT_OK(RunScheduledRanks(1, [](ScheduledRank& rank) -> absl::Status {
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
    for (int64_t bytes : {kSanitized ? kMost : int64_t{1} << 46, kMost}) {
      EXPECT_THAT(rank.device.Allocate(bytes, "huge").status(),
                  StatusIs(absl::StatusCode::kResourceExhausted));
    }
    return absl::OkStatus();
  }));
}

// --- Streams ---------------------------------------------------------------

TEST(ScheduledStreamTest, KeepsTheFirstErrorAndHandsItOn) {
  EXPECT_THAT(
      RunBoth([](ScheduledRank& rank, Kit& kit) -> absl::Status {
        std::vector<int> ran;
        const auto launch = [&](Stream& stream, int i, absl::Status result) {
          stream
              .Launch({.name = "work"},
                      [&ran, i, result] {
                        ran.push_back(i);
                        return result;
                      })
              .IgnoreError();
        };
        launch(*kit.side, 0, absl::OkStatus());
        const Event before = kit.side->Record();
        launch(*kit.side, 1, absl::DataLossError("first"));
        launch(*kit.side, 2, absl::InternalError("second"));
        const Event behind = kit.side->Record();
        EXPECT_OK(before.Synchronize());
        EXPECT_THAT(behind.Synchronize(),
                    StatusIs(absl::StatusCode::kDataLoss));
        EXPECT_THAT(kit.side->status(), StatusIs(absl::StatusCode::kDataLoss));
        EXPECT_THAT(ran, ElementsAre(0, 1));

        TESSERA_ASSIGN_OR_RETURN(auto third, rank.device.NewStream("third"));
        EXPECT_OK(third->Wait(before));
        EXPECT_OK(third->Synchronize());
        third->Wait(behind).IgnoreError();
        EXPECT_THAT(third->Synchronize(),
                    StatusIs(absl::StatusCode::kDataLoss));
        EXPECT_THAT(
            third->Launch({.name = "work"}, [] { return absl::OkStatus(); }),
            StatusIs(absl::StatusCode::kDataLoss));
        return absl::OkStatus();
      }),
      StatusIs(absl::StatusCode::kDataLoss,
               HasSubstr("rank 1: DATA_LOSS: first")));
}

TEST(ScheduledStreamTest, AFailureFailsTheCollectiveForAll) {
  EXPECT_THAT(
      RunScheduledRanks(2,
                        [](ScheduledRank& rank) -> absl::Status {
                          if (rank.rank == 1) {
                            rank.stream
                                .Launch({.name = "work"},
                                        [] { return absl::DataLossError("x"); })
                                .IgnoreError();
                          }
                          rank.comms.world().Barrier().IgnoreError();
                          return rank.stream.Synchronize();
                        }),
      StatusIs(absl::StatusCode::kDataLoss,
               AllOf(HasSubstr("rank 0: ABORTED: comm: 'world' is aborted: the "
                               "stream of rank 1 failed before operation 0: x"),
                     HasSubstr("rank 1: DATA_LOSS: x"))));
}

TEST(ScheduledStreamTest, RejectsEventsOfOtherDevices) {
  EXPECT_OK(RunScheduledRanks(1, [](ScheduledRank& rank) -> absl::Status {
    CpuDevice cpu({.streams = CpuStreams::kWorker});
    TESSERA_ASSIGN_OR_RETURN(const auto other, cpu.NewStream("cpu"));
    std::latch checked(1);
    TESSERA_RETURN_IF_ERROR(other->Launch({.name = "work"}, [&checked] {
      checked.wait();
      return absl::OkStatus();
    }));
    EXPECT_OK(rank.stream.Wait(Event()));
    const Event event = other->Record();  // cannot have passed
    EXPECT_THAT(rank.stream.Wait(event),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("an event of another device")));
    checked.count_down();
    return other->Synchronize();
  }));
}

TEST(ScheduledStreamTest, RejectsCommunicatorsOnOtherDevices) {
  EXPECT_OK(RunScheduledRanks(1, [](ScheduledRank& rank) -> absl::Status {
    CpuDevice cpu;
    TESSERA_ASSIGN_OR_RETURN(const auto other, cpu.NewStream("other"));
    EXPECT_THAT(rank.comms.world().Subgroup({0}, "group", *other),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("found 'other' of cpu")));
    return absl::OkStatus();
  }));
}

// --- Waits -----------------------------------------------------------------

absl::Status FillThenScale(ScheduledRank& rank, Kit& kit) {
  TESSERA_RETURN_IF_ERROR(KernelsOf(rank).Fill(rank.stream, kit.Part(0), 1.0));
  TESSERA_RETURN_IF_ERROR(kit.side->Wait(rank.stream.Record()));
  TESSERA_RETURN_IF_ERROR(kit.side->Wait(rank.stream.Record()));
  TESSERA_RETURN_IF_ERROR(KernelsOf(rank).Scale(*kit.side, kit.Part(0), 2.0));
  TESSERA_RETURN_IF_ERROR(rank.stream.Wait(kit.side->Record()));
  return KernelsOf(rank).Scale(rank.stream, kit.Part(0), 2.0);
}

TEST(ScheduledWaitsTest, AreListedByRank) {
  ScheduledReport report;
  ASSERT_OK(RunBoth(FillThenScale, {}, &report));
  ASSERT_THAT(report.waits, ElementsAre(SizeIs(3), SizeIs(3)));
  EXPECT_TRUE(report.waits[1][0].redundant);
  EXPECT_TRUE(report.waits[1][1].redundant);
  const StreamWait& wait = report.waits[1][2];
  EXPECT_FALSE(wait.redundant);
  EXPECT_EQ(wait.stream, "compute");
  EXPECT_EQ(wait.recorded_on, "side");
  EXPECT_EQ(wait.before, "scale #1");
  EXPECT_EQ(wait.after, "scale #2");
}

TEST(ScheduledWaitsTest, OneThatIsDroppedIsMissed) {
  EXPECT_OK(RunBoth(FillThenScale));
  EXPECT_OK(RunBoth(FillThenScale, {.drop_wait = {{.rank = 1, .call = 0}}}));
  EXPECT_THAT(RunBoth(FillThenScale, {.drop_wait = {{.rank = 1, .call = 2}}}),
              StatusIs(kFailedPrecondition,
                       AllOf(HasSubstr("rank 1: scale #2 on 'compute' reads"),
                             Not(HasSubstr("rank 0: ")))));
}

// --- Disagreement ----------------------------------------------------------

TEST(ScheduledDisagreementTest, IsAnErrorOnEveryRank) {
  EXPECT_THAT(
      RunBoth([](ScheduledRank& rank, Kit& kit) -> absl::Status {
        const TensorView part = kit.Part(0).Slice(0, {0, 8 + rank.rank});
        rank.comms.world().AllReduce(ReduceOp::kSum, part, part).IgnoreError();
        EXPECT_THAT(rank.stream.Synchronize(),
                    StatusIs(kFailedPrecondition,
                             HasSubstr("ranks disagree at operation 0 of "
                                       "'world': rank 0 calls all_reduce sum "
                                       "f32[8], rank 1 calls all_reduce sum "
                                       "f32[9]")));
        EXPECT_THAT(rank.comms.world().Barrier(),
                    StatusIs(absl::StatusCode::kAborted,
                             HasSubstr("'world' is aborted: ranks disagree")));
        return absl::OkStatus();
      }),
      StatusIs(kFailedPrecondition, HasSubstr("ranks disagree")));
}

TEST(ScheduledDisagreementTest, AnAbortEndsWhatIsPending) {
  EXPECT_THAT(RunBoth([](ScheduledRank& rank, Kit& kit) -> absl::Status {
                if (rank.rank == 1) {
                  kit.comm->Abort(absl::CancelledError("enough"));
                  return absl::OkStatus();
                }
                absl::Status status = kit.comm->Barrier();
                status.Update(kit.side->Synchronize());
                EXPECT_THAT(
                    status,
                    StatusIs(absl::StatusCode::kAborted,
                             HasSubstr("'side_comm' is aborted: by rank 1: "
                                       "CANCELLED: enough")));
                return status;
              }),
              StatusIs(absl::StatusCode::kAborted,
                       HasSubstr("1 of 2 ranks failed, first rank 0")));
}

TEST(ScheduledDisagreementTest, FindsOrdersThatDifferBetweenRanks) {
  const auto program = [](ScheduledRank& rank, Kit& kit) -> absl::Status {
    Communicator* comms[] = {&rank.comms.world(), kit.comm.get()};
    TESSERA_RETURN_IF_ERROR(comms[rank.rank]->Barrier());
    return comms[1 - rank.rank]->Barrier();
  };
  EXPECT_THAT(
      RunBoth(program),
      StatusIs(kFailedPrecondition,
               HasSubstr("ranks 0 and 1 issue what they share in different "
                         "orders: as 0 rank 0 issues barrier, operation 0 of "
                         "'world', rank 1 barrier, operation 0 of "
                         "'side_comm'")));
}

TEST(ScheduledDisagreementTest, WaitsInACircleAreAnErrorOnEveryRank) {
  const auto program = [](ScheduledRank& rank, Kit& kit) -> absl::Status {
    Communicator* comms[] = {&rank.comms.world(), kit.comm.get()};
    Communicator& first = *comms[rank.rank];
    TESSERA_RETURN_IF_ERROR(first.Barrier());
    EXPECT_THAT(first.stream().Synchronize(),
                StatusIs(kFailedPrecondition,
                         AllOf(HasSubstr("nothing can go on:"),
                               HasSubstr("\n  rank 0 waits for stream "
                                         "'compute'"),
                               HasSubstr("\n  stream 'compute' of rank 0 is at "
                                         "barrier of 'world'"),
                               HasSubstr("\n  stream 'side' of rank 1 is at "
                                         "barrier of 'side_comm'"))));
    return first.stream().status();
  };
  EXPECT_THAT(
      RunBoth(program),
      StatusIs(kFailedPrecondition, AllOf(HasSubstr("in different orders"),
                                          HasSubstr("2 of 2 ranks failed"))));
}

TEST(ScheduledDisagreementTest, HostsThatWaitForEachOtherAreAnError) {
  EXPECT_THAT(
      RunBoth([](ScheduledRank& rank, Kit& kit) -> absl::Status {
        Communicator* comms[] = {&rank.comms.world(), kit.comm.get()};
        return comms[rank.rank]->HostAllGather("").status();
      }),
      StatusIs(kFailedPrecondition,
               HasSubstr("rank 1 waits at host_all_gather, operation 0 of "
                         "'side_comm'")));
}

TEST(ScheduledDisagreementTest, ARankThatEndsIsNamed) {
  EXPECT_THAT(
      RunBoth([](ScheduledRank& rank, Kit& kit) -> absl::Status {
        if (rank.rank == 1) return absl::OkStatus();
        return kit.comm->HostAllGather("").status();
      }),
      StatusIs(absl::StatusCode::kAborted,
               HasSubstr("rank 1 has left before host_all_gather, operation 0 "
                         "of 'side_comm': its program has ended")));
}

// What was asked for on a stream goes back in its order.
TEST(RunScheduledRanksTest, RefusedMemoryIsNoRace) {
  EXPECT_OK(RunScheduledRanks(
      1,
      [](ScheduledRank& rank) -> absl::Status {
        TESSERA_ASSIGN_OR_RETURN(
            Buffer first, rank.device.Allocate(600, "first", &rank.stream));
        EXPECT_THAT(rank.device.Allocate(600, "second", &rank.stream).status(),
                    StatusIs(absl::StatusCode::kResourceExhausted));
        first.ResetAfter(rank.stream);
        return absl::OkStatus();
      },
      {.memory_limit_bytes = 1000}));
}

}  // namespace
}  // namespace tessera::testing

#include <chrono>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/run_ranks.h"
#include "tests/cpu_streams.h"
#include "tests/fsdp/toy_training.h"
#include "tests/status_matchers.h"

namespace tessera::testing {
namespace {

class ContextTeardown : public ::testing::TestWithParam<CpuStreams> {
 protected:
  static ToyRun Run() {
    ToyRun run;
    run.units = DefaultToyUnits();
    run.steps = 1;
    return run;
  }
  static LocalRunOptions Options() {
    LocalRunOptions options;
    options.device.streams = GetParam();
    options.world.timeout = std::chrono::seconds(100);
    return options;
  }
};

INSTANTIATE_TEST_SUITE_P(Streams, ContextTeardown, BothStreams(), StreamsName);

// Every rank destroys its context behind the first forwards, with gathered
// weights, an outstanding forward and collectives under way; a new one trains.
TEST_P(ContextTeardown, MidStepOnAllRanksLeavesTheWorldFit) {
  const ToyRun run = Run();
  const ToyHistory expected = OracleHistory(run);
  EXPECT_OK(RunLocalRanks(
      4,
      [&](LocalRank& rank) -> absl::Status {
        for (const bool after_backward : {false, true}) {
          TESSERA_ASSIGN_OR_RETURN(
              const auto toy, ToyRank::Create(run, rank.comms, rank.stream));
          TESSERA_RETURN_IF_ERROR(toy->Forward(expected.weights[0]));
          if (after_backward) {
            TESSERA_RETURN_IF_ERROR(toy->Backward(0, 0, /*is_last=*/false));
          }
        }
        EXPECT_EQ(rank.device.memory().total.current_bytes, 0);
        TESSERA_ASSIGN_OR_RETURN(const auto toy,
                                 ToyRank::Create(run, rank.comms, rank.stream));
        TESSERA_RETURN_IF_ERROR(toy->TrainStep(0, expected.weights[0]));
        TESSERA_RETURN_IF_ERROR(toy->CheckWeights(expected.weights[1]));
        return toy->context().Synchronize();
      },
      Options()));
}

// A step on all ranks but rank 2, whose context goes in the middle of it.
// Others may meet with that even before they begin.
absl::Status TrainUnlessLeaving(const ToyRun& run, const ToyHistory& expected,
                                LocalRank& rank, Stream& compute) {
  TESSERA_ASSIGN_OR_RETURN(const auto toy,
                           ToyRank::Create(run, rank.comms, compute));
  if (rank.rank == 2) return toy->Forward(expected.weights[0]);
  TESSERA_RETURN_IF_ERROR(toy->TrainStep(0, expected.weights[0]));
  return toy->context().Synchronize();
}

// The others get an error instead of waiting for what never comes.
TEST_P(ContextTeardown, MidStepOnOneRankEndsTheStepOfTheOthers) {
  const ToyRun run = Run();
  const ToyHistory expected = OracleHistory(run);
  std::vector<absl::Status> statuses(4);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_OK(RunLocalRanks(
      4,
      [&](LocalRank& rank) -> absl::Status {
        {
          // It fails with the context.
          TESSERA_ASSIGN_OR_RETURN(const auto compute,
                                   rank.device.NewStream("trainer"));
          statuses[rank.rank] =
              TrainUnlessLeaving(run, expected, rank, *compute);
        }
        // The program goes on: only the context is gone.
        return rank.comms.world().HostAllGather("done").status().ok()
                   ? absl::OkStatus()
                   : absl::InternalError("the world has failed");
      },
      Options()));
  for (int rank : {0, 1, 3}) {
    EXPECT_THAT(statuses[rank], StatusIs(absl::StatusCode::kAborted));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

}  // namespace
}  // namespace tessera::testing

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/testing/run_scheduled_ranks.h"
#include "tests/fsdp/toy_training.h"
#include "tests/status_matchers.h"

namespace tessera::testing {
namespace {

TEST(StreamRacesTest, Try) {
  ToyRun run;
  run.units = DefaultToyUnits();
  const ToyHistory expected = OracleHistory(run);
  ScheduledReport report;
  EXPECT_OK(RunScheduledRanks(
      4,
      [&](ScheduledRank& rank) -> absl::Status {
        TESSERA_ASSIGN_OR_RETURN(auto toy,
                                 ToyRank::Create(run, rank.comms, rank.stream));
        for (int step = 0; step < run.steps; ++step) {
          TESSERA_RETURN_IF_ERROR(toy->TrainStep(step, expected.weights[step]));
          TESSERA_RETURN_IF_ERROR(
              toy->CheckWeights(expected.weights[step + 1]));
        }
        return toy->context().Synchronize();
      },
      {.seed = 1}, &report));
  std::cout << report.steps.size() << "\n";
  for (const StreamWait& w : report.waits[0]) {
    std::cout << w.stream << " waits for " << w.recorded_on << ": " << w.before
              << " -> " << w.after << (w.redundant ? " redundant" : "") << "\n";
  }
}

}  // namespace
}  // namespace tessera::testing

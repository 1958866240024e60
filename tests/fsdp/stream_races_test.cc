// The unchanged runtime on streams that run in any order: no order may give
// other bits than the oracle's, and no two accesses may lack an order.

#include <cstdint>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/scheduled_training.h"
#include "tests/sanitized.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::kSanitized;
using ::tessera::testing::RunsOfAllStrategies;
using ::tessera::testing::ScheduledTraining;
using ::tessera::testing::ToyRun;

constexpr uint64_t kNumSeeds = kSanitized ? 2 : TESSERA_NUM_SEEDS;

void ExpectNoRaces(const ScheduledTraining& training) {
  for (uint64_t seed = 0; seed < kNumSeeds; ++seed) {
    ASSERT_OK(training.Run({.seed = seed})) << training.ToString();
  }
}

TEST(StreamRacesTest, EveryStrategyEqualsTheOracleInAnyOrder) {
  for (const ToyRun& run : RunsOfAllStrategies()) {
    ExpectNoRaces(ScheduledTraining(run));
  }
}

TEST(StreamRacesTest, SoItDoesWhereFinalGradientsAreAddedTo) {
  for (const ToyRun& run : RunsOfAllStrategies()) {
    ExpectNoRaces(ScheduledTraining(run, {.finalizes_often = true}));
  }
}

TEST(StreamRacesTest, SoItDoesWhereWeightsAreKept) {
  for (ReleaseWeights release :
       {ReleaseWeights::kAfterBackward, ReleaseWeights::kNever}) {
    for (ToyRun run : RunsOfAllStrategies()) {
      run.release = release;
      ExpectNoRaces(ScheduledTraining(run));
    }
  }
}

TEST(StreamRacesTest, SoItDoesWhereUnitsAreSkipped) {
  for (const ToyRun& run : RunsOfAllStrategies()) {
    ExpectNoRaces(ScheduledTraining(run, {.skips_units = true}));
  }
}

}  // namespace
}  // namespace tessera

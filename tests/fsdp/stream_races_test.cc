#include "gtest/gtest.h"
#include "tests/fsdp/scheduled_training.h"
#include "tests/sanitized.h"

namespace tessera::testing {
namespace {

TEST(StreamRacesTest, TrainingEqualsTheOracleInAnyOrder) {
  ExpectNoRaces(AllTrainings(), /*num_seeds=*/kSanitized ? 2 : 10);
}

TEST(StreamRacesTest, WholeParametersEqualTheOracleInAnyOrder) {
  ExpectNoRaces(TrainingsWithWholeParameters(),
                /*num_seeds=*/kSanitized ? 2 : 10);
}

TEST(StreamRacesTest, NoOverlapChangesABitInAnyOrder) {
  ExpectNoRaces(TrainingsWithOverlap("hsdp"),
                /*num_seeds=*/kSanitized ? 1 : 10);
}

}  // namespace
}  // namespace tessera::testing

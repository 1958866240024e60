#include "gtest/gtest.h"
#include "tests/fsdp/scheduled_training.h"

namespace tessera::testing {
namespace {

TEST(ManyStreamRacesTest, TrainingEqualsTheOracleInAnyOrder) {
  ExpectNoRaces(/*num_seeds=*/200);
}

}  // namespace
}  // namespace tessera::testing

#include "gtest/gtest.h"
#include "tests/fsdp/scheduled_training.h"

namespace tessera::testing {
namespace {

TEST(ManyStreamRacesTest, TrainingEqualsTheOracleInAnyOrder) {
  ExpectNoRaces(AllTrainings(), /*num_seeds=*/200);
}

TEST(ManyStreamRacesTest, NoOverlapChangesABitInAnyOrder) {
  ExpectNoRaces(TrainingsWithOverlap("hsdp"), /*num_seeds=*/200);
}

TEST(ManyStreamRacesTest, NoOverlapChangesABitUnderAnyStrategy) {
  for (const char* strategy : {"ddp", "zero1", "zero2", "zero3", "hfsdp"}) {
    ExpectNoRaces(TrainingsWithOverlap(strategy), /*num_seeds=*/20);
  }
}

}  // namespace
}  // namespace tessera::testing

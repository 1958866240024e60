#include "tessera/testing/run_scheduled_ranks.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/status_matchers.h"

namespace tessera::testing {
namespace {

TEST(RunScheduledRanksTest, RunsEveryRank) {
  int sum = 0;
  EXPECT_OK(RunScheduledRanks(4, [&](ScheduledRank& rank) {
    sum += rank.rank;
    return rank.comms.world().Barrier();
  }));
  EXPECT_EQ(sum, 6);
}

}  // namespace
}  // namespace tessera::testing

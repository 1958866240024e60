#include "tessera/base/rate.h"

#include <cstdint>
#include <limits>

#include "gtest/gtest.h"

namespace tessera::internal {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

TEST(RateTest, TakesPicosecondsRoundedUp) {
  EXPECT_EQ(Rate(1'000'000'000'000).TimeFor(7), 7);
  EXPECT_EQ(Rate(500'000'000'000).TimeFor(7), 14);
  // 1e12 / 3e12 and 2e12 / 3e12.
  EXPECT_EQ(Rate(3'000'000'000'000).TimeFor(1), 1);
  EXPECT_EQ(Rate(3'000'000'000'000).TimeFor(5), 2);
  EXPECT_EQ(Rate(1).TimeFor(0), 0);
}

TEST(RateTest, RoundsDownForTheLeastTime) {
  EXPECT_EQ(Rate(3'000'000'000'000).LeastTimeFor(5), 1);
  EXPECT_EQ(Rate(500'000'000'000).LeastTimeFor(7), 14);
}

TEST(RateTest, TakesNoTimeByDefault) { EXPECT_EQ(Rate().TimeFor(kMax), 0); }

TEST(RateTest, SaturatesWhereTheTimeDoesNotFit) {
  EXPECT_EQ(Rate(1).TimeFor(kMax), kMax);
  // The product with 1e12 does not fit, the quotient does.
  EXPECT_EQ(Rate(999'999'999'999).TimeFor(999'999'999'999'000),
            1'000'000'000'000'000);
}

}  // namespace
}  // namespace tessera::internal

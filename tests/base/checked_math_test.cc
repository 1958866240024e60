#include "tessera/base/checked_math.h"

#include <cstdint>
#include <limits>
#include <optional>

#include "gtest/gtest.h"

namespace tessera {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

TEST(CheckedMulTest, FitsOrSaysThatItDoesNot) {
  EXPECT_EQ(CheckedMul(6, 7), 42);
  EXPECT_EQ(CheckedMul(0, kMax), 0);
  EXPECT_EQ(CheckedMul(1, kMax), kMax);
  EXPECT_EQ(CheckedMul(2, kMax), std::nullopt);
  EXPECT_EQ(CheckedMul(int64_t{1} << 32, int64_t{1} << 30), int64_t{1} << 62);
  EXPECT_EQ(CheckedMul(int64_t{1} << 32, int64_t{1} << 31), std::nullopt);
}

TEST(CheckedAddTest, FitsOrSaysThatItDoesNot) {
  EXPECT_EQ(CheckedAdd(kMax - 1, 1), kMax);
  EXPECT_EQ(CheckedAdd(kMax, 1), std::nullopt);
}

TEST(SaturatingTest, StaysAtTheGreatestValue) {
  EXPECT_EQ(SaturatingMul(6, 7), 42);
  EXPECT_EQ(SaturatingMul(2, kMax), kMax);
  EXPECT_EQ(SaturatingAdd(kMax - 1, 1), kMax);
  EXPECT_EQ(SaturatingAdd(kMax, kMax), kMax);
}

TEST(CeilDivTest, IsTheLeastCoveringQuotient) {
  for (int64_t value = 0; value <= 40; ++value) {
    for (int64_t divisor = 1; divisor <= 9; ++divisor) {
      int64_t quotient = 0;
      while (quotient * divisor < value) ++quotient;
      EXPECT_EQ(CeilDiv(value, divisor), quotient) << value << "/" << divisor;
    }
  }
}

TEST(CeilDivTest, DoesNotOverflowAtTheLimit) {
  EXPECT_EQ(CeilDiv(kMax, 1), kMax);
  EXPECT_EQ(CeilDiv(kMax, 2), (int64_t{1} << 62));
  EXPECT_EQ(CeilDiv(kMax, kMax), 1);
}

TEST(CheckedRoundUpTest, RoundsToTheUnitOrSaysThatItDoesNotFit) {
  EXPECT_EQ(CheckedRoundUp(0, 16), 0);
  EXPECT_EQ(CheckedRoundUp(1, 16), 16);
  EXPECT_EQ(CheckedRoundUp(16, 16), 16);
  EXPECT_EQ(CheckedRoundUp(kMax, 1), kMax);
  EXPECT_EQ(CheckedRoundUp(kMax, 2), std::nullopt);
}

}  // namespace
}  // namespace tessera

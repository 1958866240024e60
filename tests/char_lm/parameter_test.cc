#include "char_lm/parameter.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace char_lm {
namespace {

using ::testing::Each;

std::vector<float> Initialize(const ParameterSpec& spec, uint64_t seed,
                              int unit, int parameter) {
  std::vector<float> values(spec.num_elements(),
                            std::numeric_limits<float>::quiet_NaN());
  InitializeParameter(spec, seed, unit, parameter, values.data());
  return values;
}

const ParameterSpec& Normal() {
  static const ParameterSpec spec{"w", {100, 200}, Init::kNormal, 0.5};
  return spec;
}

TEST(InitializeParameter, WritesConstants) {
  EXPECT_THAT(Initialize({"b", {3, 5}, Init::kZeros}, 1, 0, 0), Each(0.0f));
  EXPECT_THAT(Initialize({"g", {7}, Init::kOnes}, 1, 0, 0), Each(1.0f));
}

TEST(InitializeParameter, NormalHasTheMomentsAsked) {
  double sum = 0;
  double squares = 0;
  int beyond_two = 0;
  const std::vector<float> values = Initialize(Normal(), 1, 2, 3);
  for (const double value : values) {
    sum += value;
    squares += value * value;
    if (std::abs(value) > 2 * 0.5) ++beyond_two;
  }
  const double count = static_cast<double>(values.size());
  EXPECT_NEAR(sum / count, 0, 0.015);
  EXPECT_NEAR(std::sqrt(squares / count), 0.5, 0.01);
  EXPECT_NEAR(beyond_two / count, 0.0455, 0.006);
}

TEST(InitializeParameter, DependsOnTheKeyAlone) {
  const std::vector<float> values = Initialize(Normal(), 1, 2, 3);
  EXPECT_EQ(values, Initialize(Normal(), 1, 2, 3));
  EXPECT_NE(values, Initialize(Normal(), 2, 2, 3));
  EXPECT_NE(values, Initialize(Normal(), 1, 3, 3));
  EXPECT_NE(values, Initialize(Normal(), 1, 2, 4));
  EXPECT_NE(values, Initialize(Normal(), 1, 3, 2));
}

// Worked out apart from this code, in whole numbers of 2^-16.
TEST(InitializeParameter, KeepsItsValues) {
  constexpr float kUnit = 1.0f / (1 << 16);
  EXPECT_EQ(Initialize({"w", {4}, Init::kNormal, 1.0}, 1, 2, 3),
            (std::vector<float>{16702 * kUnit, -365 * kUnit, 61517 * kUnit,
                                -40810 * kUnit}));
}

}  // namespace
}  // namespace char_lm

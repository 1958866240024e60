#include "tessera/tensor/float16.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace tessera {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// What the reference needs to know of a 16-bit format.
struct Format {
  int mantissa_bits;
  int exponent_bits;
};

template <typename T>
constexpr Format kFormat = {};
template <>
constexpr Format kFormat<BFloat16> = {7, 8};
template <>
constexpr Format kFormat<Float16> = {10, 5};

constexpr uint16_t InfinityBits(Format f) {
  return static_cast<uint16_t>(((1 << f.exponent_bits) - 1) << f.mantissa_bits);
}

// The value of finite, non-negative `bits` by the definition of the format;
// infinity counts as the power of two behind the greatest value, which is what
// rounding compares with.
double ValueOf(Format f, uint16_t bits) {
  const int exponent = bits >> f.mantissa_bits;
  const int mantissa = bits & ((1 << f.mantissa_bits) - 1);
  const int bias = (1 << (f.exponent_bits - 1)) - 1;
  if (exponent == 0) {
    return std::ldexp(mantissa, 1 - bias - f.mantissa_bits);
  }
  return std::ldexp(mantissa + (1 << f.mantissa_bits),
                    exponent - bias - f.mantissa_bits);
}

// The bits of the neighbour of |value| that is nearest; of two, the even one.
class Rounder {
 public:
  explicit Rounder(Format format) : format_(format) {
    for (int bits = 0; bits <= InfinityBits(format); ++bits) {
      values_.push_back(ValueOf(format, static_cast<uint16_t>(bits)));
    }
  }

  uint16_t operator()(float value) const {
    const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    const double magnitude = std::fabs(static_cast<double>(value));
    const auto above =
        std::lower_bound(values_.begin(), values_.end(), magnitude);
    if (above == values_.end()) return sign | InfinityBits(format_);
    const auto bits = static_cast<uint16_t>(above - values_.begin());
    if (*above == magnitude) return sign | bits;
    const double up = *above - magnitude;
    const double down = magnitude - values_[bits - 1];
    const bool take_upper = up < down || (up == down && bits % 2 == 0);
    return sign | (take_upper ? bits : bits - 1);
  }

 private:
  Format format_;
  std::vector<double> values_;
};

template <typename T>
class Float16Test : public ::testing::Test {};
using Formats = ::testing::Types<BFloat16, Float16>;
TYPED_TEST_SUITE(Float16Test, Formats);

bool IsNaNPattern(Format format, uint16_t bits) {
  return (bits & 0x7fff) > InfinityBits(format);
}

TYPED_TEST(Float16Test, EveryPatternHasItsValue) {
  const Format format = kFormat<TypeParam>;
  for (int i = 0; i <= 0xffff; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const auto value = static_cast<float>(TypeParam::FromBits(bits));
    const uint16_t magnitude = bits & 0x7fff;
    EXPECT_EQ(std::signbit(value), (bits & 0x8000) != 0) << i;
    if (IsNaNPattern(format, bits)) {
      EXPECT_TRUE(std::isnan(value)) << i;
    } else if (magnitude == InfinityBits(format)) {
      EXPECT_EQ(std::fabs(value), kInfinity) << i;
    } else {
      EXPECT_EQ(std::fabs(value), ValueOf(format, magnitude)) << i;
    }
  }
}

TYPED_TEST(Float16Test, EveryPatternSurvivesTheWayThroughFloat) {
  const Format format = kFormat<TypeParam>;
  const uint16_t quiet_bit = 1 << (format.mantissa_bits - 1);
  for (int i = 0; i <= 0xffff; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const uint16_t back =
        TypeParam(static_cast<float>(TypeParam::FromBits(bits))).bits();
    if (IsNaNPattern(format, bits)) {
      EXPECT_TRUE(IsNaNPattern(format, back)) << i;
      EXPECT_TRUE(back & quiet_bit) << i;
      EXPECT_EQ(back & 0x8000, bits & 0x8000) << i;
    } else {
      EXPECT_EQ(back, bits);
    }
  }
}

TYPED_TEST(Float16Test, RoundsToNearestEvenBetweenAllNeighbours) {
  const Format format = kFormat<TypeParam>;
  const Rounder rounder(format);
  for (uint16_t bits = 0; bits < InfinityBits(format); ++bits) {
    const auto middle = static_cast<float>(
        (ValueOf(format, bits) + ValueOf(format, bits + 1)) / 2);
    for (float value : {std::nextafter(middle, 0.0f), middle,
                        std::nextafter(middle, kInfinity)}) {
      EXPECT_EQ(TypeParam(value).bits(), rounder(value)) << value;
      EXPECT_EQ(TypeParam(-value).bits(), rounder(-value)) << -value;
    }
  }
}

TYPED_TEST(Float16Test, RoundsRandomFloatsAsTheReferenceDoes) {
  constexpr uint32_t kSeed = 20240611;
  SCOPED_TRACE(kSeed);
  const Rounder rounder(kFormat<TypeParam>);
  std::mt19937 random(kSeed);
  for (int i = 0; i < 500000; ++i) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (std::isnan(value)) continue;
    ASSERT_EQ(TypeParam(value).bits(), rounder(value)) << value;
  }
}

TYPED_TEST(Float16Test, KeepsEveryNaNQuiet) {
  for (uint32_t payload : {0x1u, 0x1fffu, 0x400000u, 0x7fffffu}) {
    for (uint32_t sign : {0u, 0x80000000u}) {
      const auto nan = std::bit_cast<float>(sign | 0x7f800000u | payload);
      const TypeParam narrow(nan);
      EXPECT_TRUE(std::isnan(static_cast<float>(narrow))) << payload;
      EXPECT_EQ(narrow.bits() >> 15, sign >> 31);
    }
  }
}

TYPED_TEST(Float16Test, DefaultsToZeroAndConvertsAtCompileTime) {
  static_assert(TypeParam().bits() == 0);
  static_assert(static_cast<float>(TypeParam(-1.5f)) == -1.5f);
  EXPECT_EQ(TypeParam(-0.0f).bits(), 0x8000);
}

}  // namespace
}  // namespace tessera

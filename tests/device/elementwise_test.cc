#include "tessera/device/cpu/elementwise.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/device/elementwise_reference.h"

namespace tessera {
namespace {

using ::tessera::testing::AllSame;
using ::tessera::testing::AllTypes;
using ::tessera::testing::DTypeNames;
using ::tessera::testing::Exact;
using ::tessera::testing::FlatView;
using ::tessera::testing::FloatTypes;
using ::tessera::testing::FromExact;
using ::tessera::testing::kInfinityBits;
using ::tessera::testing::kIsHalf;
using ::tessera::testing::MagnitudeOf;
using ::tessera::testing::RandomElements;
using ::tessera::testing::Same;
using ::tessera::testing::Strided;
using ::tessera::testing::TestShapes;
using ::tessera::testing::TestStrides;
using ::tessera::testing::ToExact;

// Lengths around those of vectors, to meet every tail.
constexpr int64_t kLengths[] = {0, 1, 2, 3, 7, 8, 15, 16, 17, 33, 1000};

template <typename T>
class ElementwiseTest : public ::testing::Test {};
TYPED_TEST_SUITE(ElementwiseTest, AllTypes, DTypeNames);

template <typename T>
class FloatElementwiseTest : public ::testing::Test {};
TYPED_TEST_SUITE(FloatElementwiseTest, FloatTypes, DTypeNames);

template <typename T>
class HalfElementwiseTest : public ::testing::Test {};
using HalfTypes = ::testing::Types<BFloat16, Float16>;
TYPED_TEST_SUITE(HalfElementwiseTest, HalfTypes, DTypeNames);

// --- Fill -------------------------------------------------------------------

TYPED_TEST(ElementwiseTest, FillsAnyStrides) {
  std::mt19937_64 rng(1);
  for (const Shape& shape : TestShapes()) {
    for (const Dims& strides : TestStrides(shape)) {
      Strided<TypeParam> x(shape, strides, rng);
      SCOPED_TRACE(x.ToString());
      auto expected = x.memory;
      for (int64_t i = 0; i < shape.num_elements(); ++i) {
        expected[x.OffsetOf(i)] = FromExact<TypeParam>(-7);
      }
      FillElements(x.view(), -7);
      EXPECT_TRUE(AllSame(x.memory, expected));
    }
  }
}

TYPED_TEST(ElementwiseTest, FillConvertsTheValue) {
  std::vector<double> values = {0, 1, -3, 2.5, -2.75, 100'000, -2'000'000'000};
  if (IsFloating(DTypeOf<TypeParam>)) {
    const double inf = std::numeric_limits<double>::infinity();
    for (double value : {-0.0, 1e300, 1e-300, inf, -inf, std::nan(""),
                         1.0 + 0x1p-8 + 0x1p-40}) {
      values.push_back(value);
    }
  }
  for (double value : values) {
    std::vector<TypeParam> x(3);
    FillElements(FlatView(x), value);
    const auto expected = FromExact<TypeParam>(value);
    for (TypeParam element : x) EXPECT_TRUE(Same(element, expected)) << value;
  }
}

// --- Copy -------------------------------------------------------------------

template <typename T>
void CheckCopy(const Shape& shape, const Dims& to, const Dims& from) {
  std::mt19937_64 rng(2);
  Strided<T> dst(shape, to, rng);
  Strided<T> src(shape, from, rng);
  SCOPED_TRACE(dst.ToString() + " from " + src.ToString());
  auto expected = dst.memory;
  for (int64_t i = 0; i < shape.num_elements(); ++i) {
    expected[dst.OffsetOf(i)] = src.memory[src.OffsetOf(i)];
  }
  const auto unchanged = src.memory;
  CopyElements(dst.view(), src.view());
  EXPECT_TRUE(AllSame(dst.memory, expected));
  EXPECT_TRUE(AllSame(src.memory, unchanged));
}

TYPED_TEST(ElementwiseTest, CopiesBetweenAnyStrides) {
  for (const Shape& shape : TestShapes()) {
    for (const Dims& to : TestStrides(shape)) {
      for (const Dims& from : TestStrides(shape)) {
        CheckCopy<TypeParam>(shape, to, from);
      }
    }
  }
}

// Between orders of the outer dims, by units of all sizes, and with more of
// them than a tile has.
TYPED_TEST(ElementwiseTest, CopyTransposes) {
  for (int64_t unit : {1, 2, 3, 4, 6, 8, 16, 17}) {
    const Shape shape = Shape::Create({67, 70, unit}).value();
    for (int64_t gap : {0, 1}) {
      const int64_t step = unit + gap;
      const Dims turned = {step, 67 * step, 1};
      CheckCopy<TypeParam>(shape, shape.RowMajorStrides(), turned);
      CheckCopy<TypeParam>(shape, turned, shape.RowMajorStrides());
    }
  }
}

TYPED_TEST(ElementwiseTest, CopyKeepsBits) {
  constexpr int64_t kBytes = 64 * 1024;
  std::vector<uint16_t> src;
  for (int i = 0; i < kBytes / 2; ++i) src.push_back(0x7f00 + i);
  std::vector<uint16_t> dst(src.size());
  const auto n = static_cast<int64_t>(kBytes / sizeof(TypeParam));
  CopyElements(TensorView::Flat(dst.data(), DTypeOf<TypeParam>, n),
               TensorView::Flat(src.data(), DTypeOf<TypeParam>, n));
  EXPECT_EQ(dst, src);
}

TYPED_TEST(ElementwiseTest, CopyBroadcastsAStrideOfZero) {
  std::vector<TypeParam> row = {FromExact<TypeParam>(1),
                                FromExact<TypeParam>(2)};
  std::vector<TypeParam> dst(6);
  const auto meta = TensorMeta::Create(DTypeOf<TypeParam>, {3, 2}).value();
  CopyElements(TensorView(dst.data(), meta),
               TensorView::Strided(row.data(), meta, {0, 1}).value());
  EXPECT_TRUE(AllSame(dst, {row[0], row[1], row[0], row[1], row[0], row[1]}));
}

TYPED_TEST(ElementwiseTest, CopyOntoItselfChangesNothing) {
  std::mt19937_64 rng(3);
  auto x = RandomElements<TypeParam>(rng, 100);
  const auto expected = x;
  CopyElements(FlatView(x), FlatView(x));
  EXPECT_TRUE(AllSame(x, expected));
}

// --- Cast -------------------------------------------------------------------

template <typename To, typename From>
void CheckCast(std::vector<From> src) {
  if constexpr (IsFloating(DTypeOf<To>) ||
                (!IsFloating(DTypeOf<From>) && sizeof(To) >= sizeof(From))) {
    std::vector<To> expected;
    for (From value : src) expected.push_back(FromExact<To>(ToExact(value)));
    std::vector<To> dst(src.size());
    CastElements(FlatView(dst), FlatView(src));
    EXPECT_TRUE(AllSame(dst, expected))
        << DTypeOf<To> << " from " << DTypeOf<From>;
  }
}

template <typename From>
void CheckCasts(const std::vector<From>& src) {
  CheckCast<float>(src);
  CheckCast<double>(src);
  CheckCast<BFloat16>(src);
  CheckCast<Float16>(src);
  CheckCast<int32_t>(src);
  CheckCast<int64_t>(src);
}

TYPED_TEST(ElementwiseTest, CastsToEveryLegalDType) {
  std::mt19937_64 rng(4);
  for (int64_t n : kLengths) CheckCasts(RandomElements<TypeParam>(rng, n));
}

TYPED_TEST(ElementwiseTest, CastOntoItselfChangesNothing) {
  std::mt19937_64 rng(5);
  auto x = RandomElements<TypeParam>(rng, 100);
  const auto expected = x;
  CastElements(FlatView(x), FlatView(x));
  EXPECT_TRUE(AllSame(x, expected));
}

// Both neighbours of every middle between two halves, as near as f64 allows:
// rounding to f32 first would put all three on the middle.
TYPED_TEST(HalfElementwiseTest, CastsF64WithOneRounding) {
  std::vector<double> src;
  std::vector<TypeParam> expected;
  for (int bits = 0; bits < kInfinityBits<TypeParam>; ++bits) {
    const auto low = static_cast<uint16_t>(bits);
    const auto high = static_cast<uint16_t>(bits + 1);
    const auto middle = static_cast<double>(
        (MagnitudeOf<TypeParam>(low) + MagnitudeOf<TypeParam>(high)) / 2);
    src.push_back(std::nextafter(middle, 0.0));
    expected.push_back(TypeParam::FromBits(low));
    src.push_back(middle);
    expected.push_back(TypeParam::FromBits(low % 2 == 0 ? low : high));
    src.push_back(-std::nextafter(middle, HUGE_VAL));
    expected.push_back(TypeParam::FromBits(high | 0x8000));
  }
  std::vector<TypeParam> dst(src.size());
  CastElements(FlatView(dst), FlatView(src));
  EXPECT_TRUE(AllSame(dst, expected));
}

// The same around middles that are integers, up to the ends of int64.
TYPED_TEST(HalfElementwiseTest, CastsIntegersWithOneRounding) {
  std::vector<int64_t> wide = {INT64_MIN, INT64_MIN + 1, INT64_MAX,
                               INT64_MAX - 1};
  std::vector<int32_t> narrow = {INT32_MIN, INT32_MIN + 1, INT32_MAX};
  for (int bits = 0; bits < kInfinityBits<TypeParam>; ++bits) {
    const auto low = static_cast<uint16_t>(bits);
    const auto high = static_cast<uint16_t>(bits + 1);
    const Exact middle =
        (MagnitudeOf<TypeParam>(low) + MagnitudeOf<TypeParam>(high)) / 2;
    if (middle < 1 || middle >= 0x1p63L) continue;
    for (int64_t offset : {-1, 0, 1}) {
      const int64_t value = static_cast<int64_t>(middle) + offset;
      for (int64_t signed_value : {value, -value}) {
        wide.push_back(signed_value);
        if (signed_value == static_cast<int32_t>(signed_value)) {
          narrow.push_back(static_cast<int32_t>(signed_value));
        }
      }
    }
  }
  CheckCast<TypeParam>(wide);
  CheckCast<TypeParam>(narrow);
}

// --- Scale ------------------------------------------------------------------

TYPED_TEST(FloatElementwiseTest, ScalesThroughF64) {
  std::mt19937_64 rng(6);
  for (double factor : {0.1, -1.0 / 3, 0.0, 1.0, 0x1p-30, 1e30}) {
    for (int64_t n : kLengths) {
      auto x = RandomElements<TypeParam>(rng, n);
      std::vector<TypeParam> expected;
      for (TypeParam value : x) {
        const double product = static_cast<double>(ToExact(value)) * factor;
        if constexpr (kIsHalf<TypeParam>) {
          expected.push_back(FromExact<TypeParam>(static_cast<float>(product)));
        } else {
          expected.push_back(static_cast<TypeParam>(product));
        }
      }
      ScaleElements(FlatView(x), factor);
      EXPECT_TRUE(AllSame(x, expected)) << factor;
    }
  }
}

TEST(ElementwiseTest, ScaleDoesNotRoundTheFactor) {
  ASSERT_NE(9 * 0.1f, 0.9f);  // the bits of an f32 factor
  std::vector<float> x = {9};
  ScaleElements(FlatView(x), 0.1);
  EXPECT_EQ(x[0], 0.9f);
}

// --- Add --------------------------------------------------------------------

template <typename T>
T AddReference(T a, T b) {
  if constexpr (kIsHalf<T>) {
    return FromExact<T>(static_cast<float>(a) + static_cast<float>(b));
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  } else {
    return a + b;
  }
}

TYPED_TEST(ElementwiseTest, Adds) {
  std::mt19937_64 rng(7);
  for (int64_t n : kLengths) {
    auto dst = RandomElements<TypeParam>(rng, n);
    auto src = RandomElements<TypeParam>(rng, n);
    std::vector<TypeParam> expected;
    for (int64_t i = 0; i < n; ++i) {
      expected.push_back(AddReference(dst[i], src[i]));
    }
    AddElements(FlatView(dst), FlatView(src));
    EXPECT_TRUE(AllSame(dst, expected)) << n;
  }
}

TYPED_TEST(ElementwiseTest, AddsToItself) {
  std::mt19937_64 rng(8);
  auto x = RandomElements<TypeParam>(rng, 100);
  std::vector<TypeParam> expected;
  for (TypeParam value : x) expected.push_back(AddReference(value, value));
  AddElements(FlatView(x), FlatView(x));
  EXPECT_TRUE(AllSame(x, expected));
}

TEST(ElementwiseTest, IntegersWrapWhenAdded) {
  std::vector<int32_t> x = {INT32_MAX, INT32_MIN};
  std::vector<int32_t> y = {1, -1};
  AddElements(FlatView(x), FlatView(y));
  EXPECT_THAT(x, ::testing::ElementsAre(INT32_MIN, INT32_MAX));
}

// --- AccumulateScaled -------------------------------------------------------

template <typename T, typename From>
void CheckAccumulateScaled(double scale) {
  std::mt19937_64 rng(9);
  for (int64_t n : kLengths) {
    auto dst = RandomElements<T>(rng, n);
    auto src = RandomElements<From>(rng, n);
    const T factor = static_cast<T>(scale);
    std::vector<T> expected;
    for (int64_t i = 0; i < n; ++i) {
      const volatile T product = static_cast<T>(ToExact(src[i])) * factor;
      expected.push_back(dst[i] + product);
    }
    AccumulateScaledElements(FlatView(dst), FlatView(src), scale);
    EXPECT_TRUE(AllSame(dst, expected)) << scale;
  }
}

TYPED_TEST(FloatElementwiseTest, AccumulatesScaled) {
  for (double scale : {0.1, -1.0 / 3, 1.0, 0.0}) {
    CheckAccumulateScaled<float, TypeParam>(scale);
    CheckAccumulateScaled<double, TypeParam>(scale);
  }
}

// The product's last bit is lost to its own rounding; a fused operation would
// keep it. At every place in a vector and in its tail.
template <typename T>
void CheckNoFusedMultiplyAdd(T epsilon) {
  const T x = 1 + epsilon;
  ASSERT_NE(std::fma(x, x, -(x * x)), 0);
  for (int64_t n : kLengths) {
    std::vector<T> src(n, x);
    std::vector<T> dst(n, -(1 + 2 * epsilon));
    AccumulateScaledElements(FlatView(dst), FlatView(src), x);
    EXPECT_TRUE(AllSame(dst, std::vector<T>(n, 0)));
  }
}

TEST(ElementwiseTest, AccumulateScaledRoundsProductAndSumApart) {
  CheckNoFusedMultiplyAdd<float>(0x1p-12f);
  CheckNoFusedMultiplyAdd<double>(0x1p-27);
}

TEST(ElementwiseTest, AccumulateScaledRoundsScaleAndSourceToTheTarget) {
  std::vector<float> dst = {0};
  std::vector<double> src = {1 + 0x1p-30};
  AccumulateScaledElements(FlatView(dst), FlatView(src), 0.1);
  EXPECT_EQ(dst[0], 0.1f);
}

TEST(ElementwiseTest, AccumulatesScaledOntoItself) {
  std::vector<float> x(37, 2.0f);
  AccumulateScaledElements(FlatView(x), FlatView(x), 0.5);
  EXPECT_TRUE(AllSame(x, std::vector<float>(37, 3.0f)));
}

}  // namespace
}  // namespace tessera

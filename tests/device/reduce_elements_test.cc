#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/device/cpu/elementwise.h"
#include "tests/device/elementwise_reference.h"
#include "tests/device/reduce_reference.h"

namespace tessera {
namespace {

using ::tessera::testing::AllSame;
using ::tessera::testing::AllTypes;
using ::tessera::testing::DTypeNames;
using ::tessera::testing::FlatView;
using ::tessera::testing::FloatTypes;
using ::tessera::testing::FromExact;
using ::tessera::testing::LegalReduceOp;
using ::tessera::testing::RandomElements;
using ::tessera::testing::ReduceReference;
using ::tessera::testing::Strided;
using ::tessera::testing::TestShapes;
using ::tessera::testing::TestStrides;

template <typename T>
class ReduceElementsTest : public ::testing::Test {
 protected:
  // Reduces the sources into memory laid out by `to`, which is one of theirs
  // if `in_place` names it.
  void Check(ReduceOp op, const Shape& shape, const Dims& to,
             const std::vector<Dims>& from, int in_place = -1) {
    std::vector<Strided<T>> sources;
    for (const Dims& strides : from) {
      sources.emplace_back(shape, strides, rng_);
    }
    Strided<T> own(shape, to, rng_);
    Strided<T>& dst = in_place < 0 ? own : sources[in_place];
    SCOPED_TRACE(absl::StrCat(ReduceOpName(op), " of ", from.size(), " into ",
                              dst.ToString(), ", in place ", in_place));
    std::vector<T> expected = dst.memory;
    for (int64_t i = 0; i < shape.num_elements(); ++i) {
      std::vector<T> values;
      for (const Strided<T>& source : sources) {
        values.push_back(source.memory[source.OffsetOf(i)]);
      }
      expected[dst.OffsetOf(i)] = ReduceReference(op, values);
    }
    std::vector<TensorView> views;
    for (Strided<T>& source : sources) views.push_back(source.view());
    ReduceElements(op, dst.view(), views);
    EXPECT_TRUE(AllSame(dst.memory, expected));
  }

  std::mt19937_64 rng_{10};
};
TYPED_TEST_SUITE(ReduceElementsTest, AllTypes, DTypeNames);

template <typename T>
class ReduceFloatsTest : public ::testing::Test {};
TYPED_TEST_SUITE(ReduceFloatsTest, FloatTypes, DTypeNames);

TYPED_TEST(ReduceElementsTest, ReducesAnyStrides) {
  for (ReduceOp op : kAllReduceOps) {
    if (!LegalReduceOp<TypeParam>(op)) continue;
    for (const Shape& shape : TestShapes()) {
      const std::vector<Dims> strides = TestStrides(shape);
      for (const Dims& to : strides) {
        this->Check(op, shape, to, strides);
        for (const Dims& from : strides) {
          this->Check(op, shape, to, {from, from});
        }
      }
    }
  }
}

TYPED_TEST(ReduceElementsTest, ReducesAnyNumberOfSources) {
  const Shape shape = Shape::Create({3, 7}).value();
  for (ReduceOp op : kAllReduceOps) {
    if (!LegalReduceOp<TypeParam>(op)) continue;
    for (int n = 1; n <= 9; ++n) {
      const std::vector<Dims> from(n, shape.RowMajorStrides());
      this->Check(op, shape, from[0], from);
    }
  }
}

TYPED_TEST(ReduceElementsTest, ReducesInPlace) {
  for (ReduceOp op : kAllReduceOps) {
    if (!LegalReduceOp<TypeParam>(op)) continue;
    for (const Shape& shape : TestShapes()) {
      const std::vector<Dims> strides = TestStrides(shape);
      for (int i = 0; i < static_cast<int>(strides.size()); ++i) {
        this->Check(op, shape, strides[i], strides, i);
      }
    }
  }
}

// NaN in any one of three sources, the others being greater, less or equal.
TYPED_TEST(ReduceFloatsTest, NaNComesThrough) {
  const auto nan = FromExact<TypeParam>(std::nan(""));
  for (ReduceOp op : kAllReduceOps) {
    for (int place = 0; place < 3; ++place) {
      for (double other : {-1.0, 0.0, HUGE_VAL}) {
        std::vector<std::vector<TypeParam>> sources(
            3, std::vector<TypeParam>(9, FromExact<TypeParam>(other)));
        sources[place].assign(9, nan);
        std::vector<TypeParam> dst(9);
        const TensorView views[] = {FlatView(sources[0]), FlatView(sources[1]),
                                    FlatView(sources[2])};
        ReduceElements(op, FlatView(dst), views);
        EXPECT_TRUE(AllSame(dst, std::vector<TypeParam>(9, nan)))
            << ReduceOpName(op) << " with NaN in source " << place;
      }
    }
  }
}

TYPED_TEST(ReduceFloatsTest, NegativeZeroIsTheIdentityOfSums) {
  std::vector<TypeParam> a(5, FromExact<TypeParam>(-0.0));
  std::vector<TypeParam> dst(5);
  const TensorView views[] = {FlatView(a), FlatView(a), FlatView(a)};
  ReduceElements(ReduceOp::kSum, FlatView(dst), views);
  EXPECT_TRUE(AllSame(dst, a));
}

// Rounding after every source would stay at 256 (bf16) and 2048 (f16), where
// the step is 2.
template <typename T>
void CheckSumsOnes(int count) {
  std::vector<T> ones(20, T(1.0f));
  std::vector<T> dst(20);
  const std::vector<TensorView> views(count, FlatView(ones));
  ReduceElements(ReduceOp::kSum, FlatView(dst), views);
  EXPECT_TRUE(AllSame(dst, std::vector<T>(20, T(static_cast<float>(count)))));
}

TEST(ReduceElementsTest, HalvesAddUpInF32) {
  CheckSumsOnes<BFloat16>(300);
  CheckSumsOnes<Float16>(2100);
}

TEST(ReduceElementsTest, AvgDividesBeforeItRounds) {
  std::vector<BFloat16> big = {BFloat16(256.0f)};
  std::vector<BFloat16> one = {BFloat16(1.0f)};
  std::vector<BFloat16> zero = {BFloat16(0.0f)};
  std::vector<BFloat16> dst(1);
  const TensorView views[] = {FlatView(big), FlatView(one), FlatView(zero),
                              FlatView(zero), FlatView(zero)};
  ReduceElements(ReduceOp::kAvg, FlatView(dst), views);
  // 257 / 5 = 51.4; the sum rounds to 256, and 256 / 5 to 51.25.
  EXPECT_EQ(static_cast<float>(dst[0]), 51.5f);
}

TEST(ReduceElementsTest, AddsInSourceOrder) {
  std::vector<float> big = {0x1p24f};
  std::vector<float> minus = {-0x1p24f};
  std::vector<float> one = {1.0f};
  std::vector<float> dst(1);
  const TensorView last[] = {FlatView(big), FlatView(minus), FlatView(one)};
  ReduceElements(ReduceOp::kSum, FlatView(dst), last);
  EXPECT_EQ(dst[0], 1.0f);
  const TensorView first[] = {FlatView(one), FlatView(big), FlatView(minus)};
  ReduceElements(ReduceOp::kSum, FlatView(dst), first);
  EXPECT_EQ(dst[0], 0.0f);
}

TEST(ReduceElementsTest, IntegersWrap) {
  std::vector<int64_t> a = {INT64_MAX, INT64_MIN};
  std::vector<int64_t> b = {2, -1};
  std::vector<int64_t> dst(2);
  const TensorView views[] = {FlatView(a), FlatView(b)};
  ReduceElements(ReduceOp::kSum, FlatView(dst), views);
  EXPECT_THAT(dst, ::testing::ElementsAre(INT64_MIN + 1, INT64_MAX));
  ReduceElements(ReduceOp::kProduct, FlatView(dst), views);
  EXPECT_THAT(dst, ::testing::ElementsAre(-2, INT64_MIN));
}

}  // namespace
}  // namespace tessera

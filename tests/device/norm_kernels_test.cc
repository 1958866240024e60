// The norms of every instruction set that this processor has, against slow and
// obvious arithmetic, bit by bit.

#include "tessera/device/cpu/norm_kernels.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "hwy/highway.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tests/device/elementwise_reference.h"
#include "tests/status_matchers.h"

namespace tessera::internal {
namespace {

using ::tessera::testing::AllSame;
using ::tessera::testing::RandomElements;

// Restricts the kernels to one instruction set.
class NormKernelsTest : public ::testing::TestWithParam<int64_t> {
 protected:
  NormKernelsTest() { hwy::SetSupportedTargetsForTest(GetParam()); }
  ~NormKernelsTest() override {
    EXPECT_TRUE(hwy::GetChosenTarget().IsInitialized()) << "not dispatched";
    hwy::SetSupportedTargetsForTest(0);
  }
};

INSTANTIATE_TEST_SUITE_P(
    Targets, NormKernelsTest,
    ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
    [](const auto& target) { return hwy::TargetName(target.param); });

// Lengths around those of vectors, and a long one.
std::vector<int64_t> Lengths() {
  std::vector<int64_t> lengths = {12345};
  for (int64_t n = 0; n < 70; ++n) lengths.push_back(n);
  return lengths;
}

// n numbers whose squares do not add up exactly, from any place on.
template <typename T>
std::vector<T> Numbers(std::mt19937_64& rng, int64_t n) {
  std::normal_distribution<double> normal;
  std::vector<T> numbers;
  for (int64_t i = 0; i < n; ++i)
    numbers.push_back(static_cast<T>(normal(rng)));
  return numbers;
}

template <typename T>
double SquaresReference(const T* x, int64_t n) {
  double sums[16] = {};
  for (int64_t i = 0; i < n; ++i) {
    sums[i % 16] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  for (int half : {8, 4, 2, 1}) {
    for (int k = 0; k < half; ++k) sums[k] += sums[k + half];
  }
  return sums[0];
}

template <typename T>
void CheckSquares() {
  std::mt19937_64 rng(3);
  for (int64_t n : Lengths()) {
    for (int64_t begin : {0, 1, 5}) {
      const std::vector<T> x = Numbers<T>(rng, begin + n);
      const double found = SumOfSquares(DTypeOf<T>, x.data() + begin, n);
      const double wanted = SquaresReference(x.data() + begin, n);
      ASSERT_EQ(std::bit_cast<uint64_t>(found), std::bit_cast<uint64_t>(wanted))
          << n << " from " << begin;
    }
  }
}

TEST_P(NormKernelsTest, SumsSquaresInTheOrderThatIsDocumented) {
  CheckSquares<float>();
  CheckSquares<double>();
}

TEST_P(NormKernelsTest, SquaresOfTheLargestFloatsAreFinite) {
  const std::vector<float> x(100, std::numeric_limits<float>::lowest());
  const double sum = SumOfSquares(DType::kF32, x.data(), 100);
  EXPECT_EQ(sum, 100 * std::pow(std::numeric_limits<float>::max(), 2.0));
}

template <typename T>
void CheckNonFinite() {
  std::mt19937_64 rng(4);
  for (int64_t n : Lengths()) {
    const std::vector<T> x = RandomElements<T>(rng, n + 3);
    int64_t wanted = 0;
    for (int64_t i = 3; i < n + 3; ++i) wanted += std::isfinite(x[i]) ? 0 : 1;
    ASSERT_EQ(CountNonFinite(DTypeOf<T>, x.data() + 3, n), wanted) << n;
  }
}

TEST_P(NormKernelsTest, CountsWhatIsNotFinite) {
  CheckNonFinite<float>();
  CheckNonFinite<double>();
}

// What ClipToNorm makes of x.
template <typename T>
std::vector<T> Clipped(std::vector<T> x, double squares, double max_norm) {
  CpuDevice device;
  const auto stream = device.NewStream("s").value();
  EXPECT_OK(device.kernels().ClipToNorm(
      *stream,
      TensorView::Flat(x.data(), DTypeOf<T>, static_cast<int64_t>(x.size())),
      TensorView::Flat(&squares, DType::kF64, 1), max_norm));
  return x;
}

template <typename T>
void CheckClip() {
  std::mt19937_64 rng(5);
  for (int64_t n : Lengths()) {
    const std::vector<T> x = RandomElements<T>(rng, n);
    for (double norm : {0.25, 0.999999, 1.0, 7.0, 1e30}) {
      const double squares = norm * norm;
      const double factor = 1.0 / (std::sqrt(squares) + 1e-6);
      std::vector<T> wanted = x;
      for (T& value : wanted) {
        if (factor < 1) {
          value = static_cast<T>(static_cast<double>(value) * factor);
        }
      }
      ASSERT_TRUE(AllSame(Clipped(x, squares, 1.0), wanted))
          << n << " with norm " << norm;
    }
  }
}

TEST_P(NormKernelsTest, ClipsByTheFormula) {
  CheckClip<float>();
  CheckClip<double>();
}

TEST_P(NormKernelsTest, ClipsToZero) {
  EXPECT_TRUE(AllSame(Clipped<float>({1, 2}, 25, 0), {0, 0}));
  EXPECT_TRUE(AllSame(Clipped<float>({0, 0}, 0, 0), {0, 0}));
}

TEST(ClipToNormTest, WhatHasNoFiniteNormIsNotTouched) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(AllSame(Clipped<float>({2, inf}, inf, 1), {2, inf}));
  EXPECT_TRUE(AllSame(Clipped<float>({2, nan}, nan, 1), {2, nan}));
}

}  // namespace
}  // namespace tessera::internal

// The kernels of every instruction set that this processor has, against slow
// and obvious arithmetic.

#include "tessera/device/cpu/row_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"
#include "hwy/highway.h"
#include "tests/device/elementwise_reference.h"
#include "tests/device/reduce_reference.h"

namespace tessera::internal {
namespace {

using ::tessera::testing::AllSame;
using ::tessera::testing::LegalReduceOp;
using ::tessera::testing::RandomElements;
using ::tessera::testing::ReduceReference;

// Restricts the kernels to one instruction set.
class RowKernelsTest : public ::testing::TestWithParam<int64_t> {
 protected:
  RowKernelsTest() { hwy::SetSupportedTargetsForTest(GetParam()); }
  ~RowKernelsTest() override {
    EXPECT_TRUE(hwy::GetChosenTarget().IsInitialized()) << "not dispatched";
    hwy::SetSupportedTargetsForTest(0);
  }
};

INSTANTIATE_TEST_SUITE_P(
    Targets, RowKernelsTest,
    ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
    [](const auto& target) { return hwy::TargetName(target.param); });

template <typename To, typename From>
std::vector<To> CastAll(const std::vector<From>& src) {
  std::vector<To> dst(src.size());
  CastRow(DTypeOf<To>, dst.data(), DTypeOf<From>, src.data(),
          static_cast<int64_t>(src.size()));
  return dst;
}

template <typename T>
uint32_t BitsOf(T value) {
  if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<uint32_t>(value);
  } else {
    return value.bits();
  }
}

// NaNs count, too.
template <typename To, typename From>
void ExpectSameBits(const std::vector<From>& src) {
  const std::vector<To> dst = CastAll<To>(src);
  for (size_t i = 0; i < src.size(); ++i) {
    const To expected(static_cast<float>(src[i]));
    ASSERT_EQ(BitsOf(dst[i]), BitsOf(expected))
        << DTypeOf<To> << " from " << DTypeOf<From> << " with the bits "
        << BitsOf(src[i]);
  }
}

template <typename Half>
std::vector<Half> AllHalves() {
  std::vector<Half> halves;
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    halves.push_back(Half::FromBits(static_cast<uint16_t>(bits)));
  }
  return halves;
}

TEST_P(RowKernelsTest, CastsAllHalves) {
  ExpectSameBits<float>(AllHalves<BFloat16>());
  ExpectSameBits<float>(AllHalves<Float16>());
  ExpectSameBits<Float16>(AllHalves<BFloat16>());
  ExpectSameBits<BFloat16>(AllHalves<Float16>());
}

// Every half and every middle between two, with the floats next to them.
template <typename Half>
std::vector<float> FloatsAround() {
  std::vector<float> floats;
  const auto add = [&floats](float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    for (uint32_t offset : {-1, 0, 1}) {
      floats.push_back(std::bit_cast<float>(bits + offset));
    }
  };
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto half = static_cast<float>(Half::FromBits(bits));
    const auto next = static_cast<float>(Half::FromBits(bits + 1));
    add(half);
    add(half / 2 + next / 2);
  }
  return floats;
}

TEST_P(RowKernelsTest, CastsFloatsWithOneRounding) {
  ExpectSameBits<BFloat16>(FloatsAround<BFloat16>());
  ExpectSameBits<Float16>(FloatsAround<Float16>());
}

TEST_P(RowKernelsTest, CastsAnyFloats) {
  std::mt19937_64 rng(1);
  std::vector<float> floats;
  for (int i = 0; i < 300'000; ++i) {
    floats.push_back(std::bit_cast<float>(static_cast<uint32_t>(rng())));
  }
  ExpectSameBits<BFloat16>(floats);
  ExpectSameBits<Float16>(floats);
}

// Lengths around those of vectors and blocks of them.
TEST_P(RowKernelsTest, CastsWhatIsThereAndNoMore) {
  for (int64_t n = 0; n < 70; ++n) {
    const std::vector<float> src(n, 1.5f);
    std::vector<BFloat16> dst(n + 1, BFloat16(-7.0f));
    CastRow(DType::kBF16, dst.data(), DType::kF32, src.data(), n);
    std::vector<BFloat16> expected(n, BFloat16(1.5f));
    expected.push_back(BFloat16(-7.0f));
    EXPECT_TRUE(AllSame(dst, expected)) << n;
  }
}

template <typename T>
void CheckReduce(ReduceOp op, int64_t n, int num_sources, bool in_place,
                 std::mt19937_64& rng) {
  std::vector<std::vector<T>> memory;
  std::vector<const void*> sources;
  std::vector<size_t> starts;
  for (int k = 0; k < num_sources; ++k) {
    starts.push_back(rng() % 16);
    memory.push_back(RandomElements<T>(rng, n + 16));
  }
  for (int k = 0; k < num_sources; ++k) {
    sources.push_back(memory[k].data() + starts[k]);
  }
  std::vector<T> own = RandomElements<T>(rng, n + 16);
  const size_t place = rng() % num_sources;
  std::vector<T>& target = in_place ? memory[place] : own;
  const size_t start = in_place ? starts[place] : rng() % 16;
  std::vector<T> expected = target;
  for (int64_t i = 0; i < n; ++i) {
    std::vector<T> values;
    for (int k = 0; k < num_sources; ++k) {
      values.push_back(memory[k][starts[k] + i]);
    }
    expected[start + i] = ReduceReference(op, values);
  }
  ReduceRow(op, DTypeOf<T>, target.data() + start, sources, n);
  ASSERT_TRUE(AllSame(target, expected))
      << ReduceOpName(op) << " of " << num_sources << " times " << n << " "
      << DTypeOf<T> << ", in place " << in_place;
}

TEST_P(RowKernelsTest, Reduces) {
  std::mt19937_64 rng(2);
  for (DType dtype : kAllDTypes) {
    VisitDType(dtype, [&]<typename T>() {
      for (ReduceOp op : kAllReduceOps) {
        if (!LegalReduceOp<T>(op)) continue;
        for (int64_t n = 0; n < 300; n += 1 + rng() % 8) {
          CheckReduce<T>(op, n, 1 + static_cast<int>(rng() % 9),
                         /*in_place=*/rng() % 2 == 0, rng);
        }
      }
    });
  }
}

// NaNs of all kinds and infinities, at any place of a block.
TEST_P(RowKernelsTest, ReducesAnyBits) {
  std::mt19937_64 rng(5);
  for (ReduceOp op : kAllReduceOps) {
    for (int num_sources = 1; num_sources <= 3; ++num_sources) {
      std::vector<std::vector<BFloat16>> memory(num_sources,
                                                AllHalves<BFloat16>());
      std::vector<const void*> sources;
      for (std::vector<BFloat16>& halves : memory) {
        std::shuffle(halves.begin(), halves.end(), rng);
        sources.push_back(halves.data());
      }
      std::vector<BFloat16> expected;
      for (size_t i = 0; i < memory[0].size(); ++i) {
        std::vector<BFloat16> values;
        for (const auto& halves : memory) values.push_back(halves[i]);
        expected.push_back(ReduceReference(op, values));
      }
      std::vector<BFloat16> found(expected.size());
      ReduceRow(op, DType::kBF16, found.data(), sources,
                static_cast<int64_t>(found.size()));
      EXPECT_TRUE(AllSame(found, expected))
          << ReduceOpName(op) << " of " << num_sources;
    }
  }
}

TEST_P(RowKernelsTest, Scales) {
  std::mt19937_64 rng(3);
  for (DType dtype : kAllDTypes) {
    VisitDType(dtype, [&]<typename T>() {
      if constexpr (IsFloating(DTypeOf<T>)) {
        for (double factor : {0.1, -3.0, 1e300, 1e-40}) {
          const auto n = static_cast<int64_t>(rng() % 300);
          std::vector<T> x = RandomElements<T>(rng, n);
          std::vector<T> expected;
          for (T value : x) {
            const double product =
                static_cast<double>(testing::ToExact(value)) * factor;
            if constexpr (testing::kIsHalf<T>) {
              expected.push_back(T(static_cast<float>(product)));
            } else {
              expected.push_back(static_cast<T>(product));
            }
          }
          ScaleRow(dtype, x.data(), factor, n);
          EXPECT_TRUE(AllSame(x, expected)) << dtype << " " << factor;
        }
      }
    });
  }
}

// Products whose last bits are lost to their own rounding; a fused operation
// would keep them.
template <typename From>
void CheckAccumulateScaled(float scale, std::mt19937_64& rng) {
  for (int64_t n = 0; n < 100; ++n) {
    std::vector<float> dst = RandomElements<float>(rng, n);
    std::vector<From> src = RandomElements<From>(rng, n);
    std::vector<float> expected;
    for (int64_t i = 0; i < n; ++i) {
      const volatile float product = static_cast<float>(src[i]) * scale;
      // Mostly cancelled, so that what is below the product's last bit shows.
      if (rng() % 2 == 0) dst[i] = -product;
      expected.push_back(dst[i] + product);
    }
    AccumulateScaledRow(dst.data(), DTypeOf<From>, src.data(), scale, n);
    EXPECT_TRUE(AllSame(dst, expected)) << DTypeOf<From> << " times " << scale;
  }
}

TEST_P(RowKernelsTest, AccumulatesProductsThatRoundApart) {
  std::mt19937_64 rng(4);
  for (float scale : {0.1f, -1.0f / 3, 1.0f}) {
    CheckAccumulateScaled<float>(scale, rng);
    CheckAccumulateScaled<BFloat16>(scale, rng);
    CheckAccumulateScaled<Float16>(scale, rng);
  }
}

}  // namespace
}  // namespace tessera::internal

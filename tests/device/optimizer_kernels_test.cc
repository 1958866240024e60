// The updates of every instruction set that this processor has, against the
// formulas, element by element, bit by bit.

#include "tessera/device/cpu/optimizer_kernels.h"

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "hwy/highway.h"
#include "tests/device/elementwise_reference.h"
#include "tests/optimizer_reference.h"

namespace tessera::internal {
namespace {

using ::tessera::testing::AdamWReference;
using ::tessera::testing::AllSame;
using ::tessera::testing::RandomElements;
using ::tessera::testing::SgdReference;

// Restricts the kernels to one instruction set.
class OptimizerKernelsTest : public ::testing::TestWithParam<int64_t> {
 protected:
  OptimizerKernelsTest() { hwy::SetSupportedTargetsForTest(GetParam()); }
  ~OptimizerKernelsTest() override {
    EXPECT_TRUE(hwy::GetChosenTarget().IsInitialized()) << "not dispatched";
    hwy::SetSupportedTargetsForTest(0);
  }
};

INSTANTIATE_TEST_SUITE_P(
    Targets, OptimizerKernelsTest,
    ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
    [](const auto& target) { return hwy::TargetName(target.param); });

// n elements that begin anywhere, and one behind them that stays as it is.
template <typename T>
struct Row {
  Row(std::mt19937_64& rng, int64_t n)
      : begin(static_cast<int64_t>(rng() % 16)),
        values(RandomElements<T>(rng, begin + n + 1)) {}
  T* data() { return values.data() + begin; }
  T& operator[](int64_t i) { return values[begin + i]; }

  int64_t begin;
  std::vector<T> values;
};

// Lengths around those of vectors, and beyond a block of converted gradients.
std::vector<int64_t> Lengths() {
  std::vector<int64_t> lengths = {511, 512, 513, 1500};
  for (int64_t n = 0; n < 40; ++n) lengths.push_back(n);
  return lengths;
}

template <typename T, typename G>
void CheckSgd(const SgdUpdate& update, std::mt19937_64& rng) {
  for (int64_t n : Lengths()) {
    Row<T> weight(rng, n);
    Row<G> gradient(rng, n);
    Row<T> momentum(rng, n);
    Row<T> wanted_weight = weight;
    Row<T> wanted_momentum = momentum;
    for (int64_t i = 0; i < n; ++i) {
      SgdReference<T>(wanted_weight[i], static_cast<T>(gradient[i]),
                      wanted_momentum[i], update);
    }
    SgdRow({.n = n,
            .dtype = DTypeOf<T>,
            .weight = weight.data(),
            .gradient_dtype = DTypeOf<G>,
            .gradient = gradient.data(),
            .first = update.momentum == 0 ? nullptr : momentum.data()},
           update);
    ASSERT_TRUE(AllSame(weight.values, wanted_weight.values)) << n;
    ASSERT_TRUE(AllSame(momentum.values, wanted_momentum.values)) << n;
  }
}

TEST_P(OptimizerKernelsTest, SgdIsTheFormula) {
  std::mt19937_64 rng(1);
  for (double weight_decay : {0.0, 0.01}) {
    for (double momentum : {0.0, 0.9}) {
      for (double dampening : {0.0, 0.3}) {
        for (bool nesterov : {false, true}) {
          for (bool first : {false, true}) {
            const SgdUpdate update = {.learning_rate = 0.1,
                                      .momentum = momentum,
                                      .dampening = dampening,
                                      .weight_decay = weight_decay,
                                      .nesterov = nesterov,
                                      .first = first};
            SCOPED_TRACE(::testing::Message()
                         << weight_decay << " " << momentum << " " << dampening
                         << " " << nesterov << " " << first);
            CheckSgd<float, float>(update, rng);
            CheckSgd<double, double>(update, rng);
            CheckSgd<float, double>(update, rng);
            CheckSgd<double, float>(update, rng);
          }
        }
      }
    }
  }
}

template <typename T, typename G>
void CheckAdamW(const AdamWUpdate& update, std::mt19937_64& rng) {
  for (int64_t n : Lengths()) {
    Row<T> weight(rng, n);
    Row<G> gradient(rng, n);
    Row<T> first(rng, n);
    Row<T> second(rng, n);
    for (T& value : second.values) value = std::abs(value);
    Row<T> wanted_weight = weight;
    Row<T> wanted_first = first;
    Row<T> wanted_second = second;
    for (int64_t i = 0; i < n; ++i) {
      AdamWReference<T>(wanted_weight[i], static_cast<T>(gradient[i]),
                        wanted_first[i], wanted_second[i], update);
    }
    AdamWRow({.n = n,
              .dtype = DTypeOf<T>,
              .weight = weight.data(),
              .gradient_dtype = DTypeOf<G>,
              .gradient = gradient.data(),
              .first = first.data(),
              .second = second.data()},
             update);
    ASSERT_TRUE(AllSame(weight.values, wanted_weight.values)) << n;
    ASSERT_TRUE(AllSame(first.values, wanted_first.values)) << n;
    ASSERT_TRUE(AllSame(second.values, wanted_second.values)) << n;
  }
}

TEST_P(OptimizerKernelsTest, AdamWIsTheFormula) {
  std::mt19937_64 rng(2);
  for (double weight_decay : {0.0, 0.1}) {
    for (double beta1 : {0.0, 0.9}) {
      for (int64_t step : {1, 2, 1000, 1'000'000}) {
        const AdamWUpdate update = {.learning_rate = 3e-4,
                                    .beta1 = beta1,
                                    .beta2 = 0.95,
                                    .epsilon = 1e-8,
                                    .weight_decay = weight_decay,
                                    .step = step};
        SCOPED_TRACE(::testing::Message()
                     << weight_decay << " " << beta1 << " " << step);
        CheckAdamW<float, float>(update, rng);
        CheckAdamW<double, double>(update, rng);
        CheckAdamW<float, double>(update, rng);
        CheckAdamW<double, float>(update, rng);
      }
    }
  }
}

}  // namespace
}  // namespace tessera::internal

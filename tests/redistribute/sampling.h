#ifndef TESSERA_TESTS_REDISTRIBUTE_SAMPLING_H_
#define TESSERA_TESTS_REDISTRIBUTE_SAMPLING_H_

#include <cstdint>
#include <random>
#include <string>

#include "gtest/gtest.h"
#include "tests/sanitized.h"

namespace tessera::testing {

// Sanitizers slow ranks down too much for every pair of layouts.
inline constexpr bool kSampleOnly = kSanitized;

// Random numbers from a seed that failures name. --gtest_shuffle draws others.
class SeededRandom {
 public:
  uint32_t operator()() { return static_cast<uint32_t>(random_()); }

 private:
  const unsigned seed_ = ::testing::UnitTest::GetInstance()->random_seed();
  const ::testing::ScopedTrace trace_{__FILE__, __LINE__,
                                      "seed " + std::to_string(seed_)};
  std::mt19937 random_{seed_};
};

}  // namespace tessera::testing

#endif  // TESSERA_TESTS_REDISTRIBUTE_SAMPLING_H_

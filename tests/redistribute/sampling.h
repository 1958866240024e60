#ifndef TESSERA_TESTS_REDISTRIBUTE_SAMPLING_H_
#define TESSERA_TESTS_REDISTRIBUTE_SAMPLING_H_

#include <cstdint>
#include <random>
#include <string>

#include "gtest/gtest.h"
#include "tests/sanitized.h"

namespace tessera::testing {

// Sanitizers slow programs down too much for every pair of layouts.
inline constexpr bool kSampleOnly = kSanitized;

// Takes every case, or one in so many where a sample is to do.
class Sampler {
 public:
  explicit Sampler(int one_in) : one_in_(one_in) {}

  bool Takes() { return !kSampleOnly || seen_++ % one_in_ == 0; }

 private:
  const int one_in_;
  int seen_ = 0;
};

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

#ifndef CHAR_LM_RANDOM_H_
#define CHAR_LM_RANDOM_H_

#include <cstdint>
#include <initializer_list>

namespace char_lm {

// A stream of pseudo-random 64-bit values (splitmix64) that depends on the key
// alone: the same on every machine, thread and call, unlike what the standard
// library's distributions promise. Keys that are compared with each other have
// equal length.
class Random {
 public:
  explicit Random(std::initializer_list<uint64_t> key) {
    for (const uint64_t part : key) state_ = Mix(state_ ^ part) + kIncrement;
  }

  uint64_t Next() {
    state_ += kIncrement;
    return Mix(state_);
  }

 private:
  // Constants of splitmix64: https://prng.di.unimi.it/splitmix64.c
  static constexpr uint64_t kIncrement = 0x9e3779b97f4a7c15;

  static constexpr uint64_t Mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  uint64_t state_ = 0;
};

}  // namespace char_lm

#endif  // CHAR_LM_RANDOM_H_

#ifndef TESSERA_REDISTRIBUTE_RATE_H_
#define TESSERA_REDISTRIBUTE_RATE_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <tuple>

#include "tessera/base/checked_math.h"
#include "tessera/mesh/topology.h"

namespace tessera::internal {

// How fast bytes go somewhere. A value type.
class Rate {
 public:
  Rate() = default;  // no time for any
  // REQUIRES: bytes_per_second >= 1.
  explicit Rate(int64_t bytes_per_second) {
    const int64_t divisor = std::gcd(kPicosecondsPerSecond, bytes_per_second);
    numerator_ = kPicosecondsPerSecond / divisor;
    denominator_ = bytes_per_second / divisor;
  }

  // In picoseconds, rounded up; what does not fit is the greatest value.
  // REQUIRES: bytes >= 0.
  int64_t TimeFor(int64_t bytes) const {
    if (const auto time = CheckedMul(bytes, numerator_)) {
      return CeilDiv(*time, denominator_);
    }
    const __int128 time = static_cast<__int128>(bytes) * numerator_;
    const __int128 rounded_up = (time + denominator_ - 1) / denominator_;
    return static_cast<int64_t>(
        std::min<__int128>(rounded_up, std::numeric_limits<int64_t>::max()));
  }

  // As TimeFor, but rounded down.
  int64_t LeastTimeFor(int64_t bytes) const {
    if (const auto time = CheckedMul(bytes, numerator_)) {
      return *time / denominator_;
    }
    return TimeFor(bytes) - 1;
  }

 private:
  static constexpr int64_t kPicosecondsPerSecond = 1'000'000'000'000;

  // In lowest terms, so that most products fit.
  int64_t numerator_ = 0;
  int64_t denominator_ = 1;
};

// By bandwidth, then by latency.
inline bool IsSlower(const Link& a, const Link& b) {
  return std::tuple(a.bytes_per_second, -a.latency_ps) <
         std::tuple(b.bytes_per_second, -b.latency_ps);
}

}  // namespace tessera::internal

#endif  // TESSERA_REDISTRIBUTE_RATE_H_

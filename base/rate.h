#ifndef TESSERA_BASE_RATE_H_
#define TESSERA_BASE_RATE_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>

#include "tessera/base/checked_math.h"

namespace tessera::internal {

// How fast something goes: bytes over a link, operations. A value type.
class Rate {
 public:
  Rate() = default;  // no time for any
  // REQUIRES: per_second >= 1.
  explicit Rate(int64_t per_second) {
    const int64_t divisor = std::gcd(kPicosecondsPerSecond, per_second);
    numerator_ = kPicosecondsPerSecond / divisor;
    denominator_ = per_second / divisor;
  }

  // In picoseconds, rounded up; what does not fit is the greatest value.
  // REQUIRES: amount >= 0.
  int64_t TimeFor(int64_t amount) const {
    if (const auto time = CheckedMul(amount, numerator_)) {
      return CeilDiv(*time, denominator_);
    }
    const __int128 time = static_cast<__int128>(amount) * numerator_;
    const __int128 rounded_up = (time + denominator_ - 1) / denominator_;
    return static_cast<int64_t>(
        std::min<__int128>(rounded_up, std::numeric_limits<int64_t>::max()));
  }

  // As TimeFor, but rounded down.
  int64_t LeastTimeFor(int64_t amount) const {
    if (const auto time = CheckedMul(amount, numerator_)) {
      return *time / denominator_;
    }
    return TimeFor(amount) - 1;
  }

 private:
  static constexpr int64_t kPicosecondsPerSecond = 1'000'000'000'000;

  // In lowest terms, so that most products fit.
  int64_t numerator_ = 0;
  int64_t denominator_ = 1;
};

}  // namespace tessera::internal

#endif  // TESSERA_BASE_RATE_H_

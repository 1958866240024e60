#ifndef TESSERA_BASE_CHECKED_MATH_H_
#define TESSERA_BASE_CHECKED_MATH_H_

#include <cstdint>
#include <limits>
#include <optional>

namespace tessera {

// Integer arithmetic on sizes and offsets. All values are int64; sizes are
// non-negative.

// a * b, or nullopt where it does not fit.
constexpr std::optional<int64_t> CheckedMul(int64_t a, int64_t b) {
  int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

// a + b, or nullopt where it does not fit.
constexpr std::optional<int64_t> CheckedAdd(int64_t a, int64_t b) {
  int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

// a * b and a + b, or the greatest value where they do not fit.
// REQUIRES: a >= 0, b >= 0.
constexpr int64_t SaturatingMul(int64_t a, int64_t b) {
  return CheckedMul(a, b).value_or(std::numeric_limits<int64_t>::max());
}
constexpr int64_t SaturatingAdd(int64_t a, int64_t b) {
  return CheckedAdd(a, b).value_or(std::numeric_limits<int64_t>::max());
}

// The least q with q * divisor >= value. REQUIRES: value >= 0, divisor > 0.
constexpr int64_t CeilDiv(int64_t value, int64_t divisor) {
  return value / divisor + (value % divisor != 0 ? 1 : 0);
}

// The least multiple of `unit` that is at least `value`, or nullopt where it
// does not fit. REQUIRES: value >= 0, unit > 0.
constexpr std::optional<int64_t> CheckedRoundUp(int64_t value, int64_t unit) {
  return CheckedMul(CeilDiv(value, unit), unit);
}

}  // namespace tessera

#endif  // TESSERA_BASE_CHECKED_MATH_H_

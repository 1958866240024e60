#ifndef TESSERA_DEVICE_ROUND_TO_HALF_H_
#define TESSERA_DEVICE_ROUND_TO_HALF_H_

#include <bit>
#include <cstdint>

namespace tessera::internal {

// FloatForHalf: a float that rounds to a bf16 or f16 as `value` itself does.
// The nearest float is not that: it would be rounded twice.

// Of the two floats around `value` the one with an odd last bit, or `value`
// where it is a float.
constexpr float FloatForHalf(double value) {
  const auto nearest = static_cast<float>(value);
  const auto bits = std::bit_cast<uint32_t>(nearest);
  const double found = nearest;
  if (found == value || value != value || (bits & 1) != 0) return nearest;
  const bool above = value < 0 ? found < value : found > value;
  return std::bit_cast<float>(above ? bits - 1 : bits + 1);
}

constexpr float FloatForHalf(float value) { return value; }

constexpr float FloatForHalf(int32_t value) {
  return FloatForHalf(static_cast<double>(value));
}

constexpr float FloatForHalf(int64_t value) {
  constexpr int64_t kExact = int64_t{1} << 53;
  if (value >= -kExact && value <= kExact) {
    return FloatForHalf(static_cast<double>(value));
  }
  // Halves, and the middles between them, are multiples of 2^16 up here: of
  // the low bits only matters whether there are any.
  const int64_t low = value & 0xffff;
  const int64_t rest = value - low + (low != 0 ? 0x8000 : 0);
  return FloatForHalf(static_cast<double>(rest));
}

}  // namespace tessera::internal

#endif  // TESSERA_DEVICE_ROUND_TO_HALF_H_

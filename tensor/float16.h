#ifndef TESSERA_TENSOR_FLOAT16_H_
#define TESSERA_TENSOR_FLOAT16_H_

#include <bit>
#include <cstdint>

namespace tessera {

// The upper half of an IEEE binary32: 8 exponent bits, 7 mantissa bits.
// Conversions from float round to nearest, ties to even; NaN stays NaN
// (quiet), and what is too large becomes infinity. Storage only: compute in
// float.
class BFloat16 {
 public:
  constexpr BFloat16() = default;
  explicit constexpr BFloat16(float value) : bits_(Round(value)) {}
  static constexpr BFloat16 FromBits(uint16_t bits) {
    BFloat16 result;
    result.bits_ = bits;
    return result;
  }

  explicit constexpr operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits_) << 16);
  }
  constexpr uint16_t bits() const { return bits_; }

 private:
  static constexpr uint16_t Round(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {  // NaN
      return static_cast<uint16_t>((bits >> 16) | 0x0040u);
    }
    const uint32_t odd = (bits >> 16) & 1u;
    return static_cast<uint16_t>((bits + 0x7fffu + odd) >> 16);
  }

  uint16_t bits_ = 0;
};

// IEEE binary16: 5 exponent bits, 10 mantissa bits, subnormals included.
// Rounds as BFloat16 does. Storage only.
class Float16 {
 public:
  constexpr Float16() = default;
  explicit constexpr Float16(float value) : bits_(Round(value)) {}
  static constexpr Float16 FromBits(uint16_t bits) {
    Float16 result;
    result.bits_ = bits;
    return result;
  }

  explicit constexpr operator float() const {
    const uint32_t sign = static_cast<uint32_t>(bits_ & 0x8000u) << 16;
    const uint32_t magnitude = bits_ & 0x7fffu;
    if (magnitude >= 0x7c00u) {  // infinity, NaN
      return std::bit_cast<float>(sign | 0x7f800000u |
                                  ((magnitude & 0x3ffu) << 13));
    }
    if (magnitude < 0x0400u) {  // zero, subnormal: a multiple of 2^-24
      const float value = static_cast<float>(magnitude) * 0x1p-24f;
      return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
    }
    return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
  }
  constexpr uint16_t bits() const { return bits_; }

 private:
  static constexpr uint16_t Round(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return sign | 0x7e00u;   // NaN
    if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // >= 65520
    if (magnitude < 0x38800000u) {                        // < 2^-14
      // Adding 0.5 leaves the multiple of 2^-24, rounded, in the low bits.
      const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
      return static_cast<uint16_t>(
          sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
    }
    const uint32_t odd = (magnitude >> 13) & 1u;
    return static_cast<uint16_t>(
        sign | ((magnitude - 0x38000000u + 0x0fffu + odd) >> 13));
  }

  uint16_t bits_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_TENSOR_FLOAT16_H_

#ifndef TESSERA_DEVICE_CUDA_NUMBERS_H_
#define TESSERA_DEVICE_CUDA_NUMBERS_H_

#include <cstdint>
#include <type_traits>

#include "tessera/device/cuda/host_device.h"
#include "tessera/device/round_to_half.h"
#include "tessera/tensor/float16.h"

// Conversions between elements: those of the CPU's kernels, the bits of NaN
// aside. A GPU has instructions for halves.

namespace tessera::internal {

template <typename T>
inline constexpr bool kIsHalf =
    std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>;

TESSERA_HOST_DEVICE inline float Widen(BFloat16 half) {
  return static_cast<float>(half);
}

TESSERA_HOST_DEVICE inline float Widen(Float16 half) {
#ifdef __CUDA_ARCH__
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half.bits()));
  return value;
#else
  return static_cast<float>(half);
#endif
}

// Rounded to nearest, ties to even.
template <typename Half>
TESSERA_HOST_DEVICE Half Narrow(float value) {
#ifdef __CUDA_ARCH__
  uint16_t bits;
  if constexpr (std::is_same_v<Half, BFloat16>) {
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  } else {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  }
  return Half::FromBits(bits);
#else
  return Half(value);
#endif
}

// `value` as a To, rounded once.
template <typename To, typename From>
TESSERA_HOST_DEVICE To Convert(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (kIsHalf<From>) {
    return Convert<To>(Widen(value));
  } else if constexpr (kIsHalf<To>) {
    return Narrow<To>(FloatForHalf(value));
  } else {
    return static_cast<To>(value);
  }
}

// value * factor in f64, rounded once to f32 and from there to halves.
template <typename T>
TESSERA_HOST_DEVICE T Scaled(T value, double factor) {
  if constexpr (kIsHalf<T>) {
    return Narrow<T>(Scaled(Widen(value), factor));
  } else {
    return static_cast<T>(static_cast<double>(value) * factor);
  }
}

}  // namespace tessera::internal

#endif  // TESSERA_DEVICE_CUDA_NUMBERS_H_

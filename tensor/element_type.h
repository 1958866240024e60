#ifndef TESSERA_TENSOR_ELEMENT_TYPE_H_
#define TESSERA_TENSOR_ELEMENT_TYPE_H_

#include <cstdint>
#include <type_traits>

#include "tessera/tensor/float16.h"

// The types of elements, for sources that include nothing else of Tessera's:
// those of kernels. All others include dtype.h.

namespace tessera {

enum class DType : uint8_t { kF32, kF64, kBF16, kF16, kI32, kI64 };

inline constexpr DType kAllDTypes[] = {DType::kF32, DType::kF64, DType::kBF16,
                                       DType::kF16, DType::kI32, DType::kI64};

// Bytes of one element.
constexpr int64_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kI64:
      return 8;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
    case DType::kF16:
      return 2;
  }
  return 0;
}

constexpr bool IsFloating(DType dtype) {
  return dtype != DType::kI32 && dtype != DType::kI64;
}

// Whether elements may be converted from one to the other: not from floats to
// integers, nor to narrower integers.
constexpr bool CanCast(DType to, DType from) {
  return IsFloating(to) || (!IsFloating(from) && SizeOf(to) >= SizeOf(from));
}

// The DType of a C++ element type: DTypeOf<float> == DType::kF32.
template <typename T>
inline constexpr DType DTypeOf = [] {
  if constexpr (std::is_same_v<T, float>) return DType::kF32;
  if constexpr (std::is_same_v<T, double>) return DType::kF64;
  if constexpr (std::is_same_v<T, BFloat16>) return DType::kBF16;
  if constexpr (std::is_same_v<T, Float16>) return DType::kF16;
  if constexpr (std::is_same_v<T, int32_t>) return DType::kI32;
  if constexpr (std::is_same_v<T, int64_t>) return DType::kI64;
}();

// Calls visitor.template operator()<T>() with the C++ type of `dtype`:
//
//   VisitDType(dtype, [&]<typename T>() { Fill(static_cast<T*>(data), n); });
template <typename Visitor>
decltype(auto) VisitDType(DType dtype, Visitor&& visitor) {
  switch (dtype) {
    case DType::kF32:
      return visitor.template operator()<float>();
    case DType::kF64:
      return visitor.template operator()<double>();
    case DType::kBF16:
      return visitor.template operator()<BFloat16>();
    case DType::kF16:
      return visitor.template operator()<Float16>();
    case DType::kI32:
      return visitor.template operator()<int32_t>();
    case DType::kI64:
      return visitor.template operator()<int64_t>();
  }
  __builtin_unreachable();
}

}  // namespace tessera

#endif  // TESSERA_TENSOR_ELEMENT_TYPE_H_

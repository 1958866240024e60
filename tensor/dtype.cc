#include "tessera/tensor/dtype.h"

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace tessera {

absl::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kF64:
      return "f64";
    case DType::kBF16:
      return "bf16";
    case DType::kF16:
      return "f16";
    case DType::kI32:
      return "i32";
    case DType::kI64:
      return "i64";
  }
  return "";
}

absl::StatusOr<DType> ParseDType(absl::string_view name) {
  for (DType dtype : kAllDTypes) {
    if (name == DTypeName(dtype)) return dtype;
  }
  constexpr size_t kMaxQuoted = 40;
  return absl::InvalidArgumentError(
      absl::StrCat("tensor: want a dtype, one of f32, f64, bf16, f16, i32 and "
                   "i64, found '",
                   absl::CHexEscape(name.substr(0, kMaxQuoted)), "'"));
}

std::ostream& operator<<(std::ostream& os, DType dtype) {
  return os << DTypeName(dtype);
}

}  // namespace tessera

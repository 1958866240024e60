#ifndef TESSERA_TENSOR_DTYPE_H_
#define TESSERA_TENSOR_DTYPE_H_

#include <ostream>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tessera/tensor/element_type.h"  // IWYU pragma: export

namespace tessera {

// "f32", "f64", "bf16", "f16", "i32", "i64".
absl::string_view DTypeName(DType dtype);

// The inverse of DTypeName. ERRORS: InvalidArgument, listing the names.
absl::StatusOr<DType> ParseDType(absl::string_view name);

std::ostream& operator<<(std::ostream& os, DType dtype);

}  // namespace tessera

#endif  // TESSERA_TENSOR_DTYPE_H_

#include "tessera/tensor/tensor_meta.h"

#include <algorithm>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "tessera/base/checked_math.h"
#include "tessera/base/status_macros.h"

namespace tessera {

absl::StatusOr<TensorMeta> TensorMeta::Create(DType dtype, Shape shape) {
  if (!CheckedMul(shape.num_elements(), SizeOf(dtype)).has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor: the size in bytes of ", DTypeName(dtype),
                     shape.ToString(), " does not fit int64"));
  }
  return TensorMeta(dtype, std::move(shape));
}

absl::StatusOr<TensorMeta> TensorMeta::Create(
    DType dtype, absl::Span<const int64_t> extents) {
  TESSERA_ASSIGN_OR_RETURN(Shape shape, Shape::Create(extents));
  return Create(dtype, std::move(shape));
}

absl::StatusOr<TensorMeta> TensorMeta::Parse(absl::string_view text) {
  const size_t bracket = std::min(text.find('['), text.size());
  TESSERA_ASSIGN_OR_RETURN(
      const DType dtype,
      ParseDType(absl::StripAsciiWhitespace(text.substr(0, bracket))));
  TESSERA_ASSIGN_OR_RETURN(Shape shape, Shape::Parse(text.substr(bracket)));
  return Create(dtype, std::move(shape));
}

std::string TensorMeta::ToString() const {
  return absl::StrCat(DTypeName(dtype_), shape_.ToString());
}

}  // namespace tessera

#ifndef TESSERA_TENSOR_TENSOR_META_H_
#define TESSERA_TENSOR_TENSOR_META_H_

#include <cstdint>
#include <ostream>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tessera/tensor/dtype.h"
#include "tessera/tensor/shape.h"

namespace tessera {

// What a tensor is apart from where it lies: dtype and shape. Immutable
// value; thread-safe.
class TensorMeta {
 public:
  TensorMeta() = default;  // f32[]

  // ERRORS: InvalidArgument where the size in bytes does not fit int64.
  static absl::StatusOr<TensorMeta> Create(DType dtype, Shape shape);
  static absl::StatusOr<TensorMeta> Create(DType dtype,
                                           absl::Span<const int64_t> extents);

  // The inverse of ToString.
  static absl::StatusOr<TensorMeta> Parse(absl::string_view text);

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t num_elements() const { return shape_.num_elements(); }
  int64_t num_bytes() const { return num_elements() * SizeOf(dtype_); }

  std::string ToString() const;  // "bf16[4096,14336]"

  friend bool operator==(const TensorMeta&, const TensorMeta&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const TensorMeta& m) {
    return H::combine(std::move(h), m.dtype_, m.shape_);
  }
  friend std::ostream& operator<<(std::ostream& os, const TensorMeta& m) {
    return os << m.ToString();
  }

 private:
  TensorMeta(DType dtype, Shape shape)
      : dtype_(dtype), shape_(std::move(shape)) {}

  DType dtype_ = DType::kF32;
  Shape shape_;
};

}  // namespace tessera

#endif  // TESSERA_TENSOR_TENSOR_META_H_

#ifndef TESSERA_TENSOR_TENSOR_VIEW_H_
#define TESSERA_TENSOR_TENSOR_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tessera/tensor/index.h"
#include "tessera/tensor/tensor_meta.h"

namespace tessera {

// A tensor in memory that somebody else owns: pointer, meta, strides in
// elements. Two spellings are common:
//
//   TensorView x(data, meta);                            // dense, row-major
//   TensorView f = TensorView::Flat(data, dtype, n);     // 1-d, n elements
//
// LIFETIME: does not own; `data` may be device memory and is never read here.
// Value type; thread-safe.
class TensorView {
 public:
  TensorView() = default;
  TensorView(void* data, TensorMeta meta);

  // A 1-d view. REQUIRES: elements * SizeOf(dtype) fits int64.
  static TensorView Flat(void* data, DType dtype, int64_t elements);

  // ERRORS: InvalidArgument unless there is one non-negative stride per dim,
  // or where the bytes that they span do not fit int64.
  static absl::StatusOr<TensorView> Strided(void* data, TensorMeta meta,
                                            absl::Span<const int64_t> strides);

  void* data() const { return data_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  const TensorMeta& meta() const { return meta_; }
  DType dtype() const { return meta_.dtype(); }
  const Shape& shape() const { return meta_.shape(); }
  absl::Span<const int64_t> strides() const { return strides_; }
  int64_t num_elements() const { return meta_.num_elements(); }
  int64_t num_bytes() const { return meta_.num_bytes(); }

  // True if the elements lie dense in row-major order. Views without elements
  // are contiguous; strides of extents 1 do not matter.
  bool IsContiguous() const;

  // The part with indices in `range` along `dim`; the other dims whole.
  // REQUIRES: 0 <= range.begin <= range.end <= extent(dim).
  TensorView Slice(int dim, Interval range) const;

  // The same memory as one dim. REQUIRES: IsContiguous().
  TensorView Flattened() const;

  // Bytes from data() to the end of the last element; 0 without elements.
  int64_t SpanBytes() const;

  std::string ToString() const;  // "f32[2,3]" or "f32[2,3] strides (8,1)"

 private:
  void* data_ = nullptr;
  TensorMeta meta_;
  Dims strides_;
};

}  // namespace tessera

#endif  // TESSERA_TENSOR_TENSOR_VIEW_H_

#ifndef TESSERA_TENSOR_SHAPE_H_
#define TESSERA_TENSOR_SHAPE_H_

#include <cstdint>
#include <ostream>
#include <string>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tessera {

// One int64 per tensor dim; up to four without allocation.
using Dims = absl::InlinedVector<int64_t, 4>;

// The extents of a tensor, row-major. A 0-d shape, "[]", has one element;
// extents may be 0. Immutable value; thread-safe.
class Shape {
 public:
  Shape() = default;  // 0-d

  // ERRORS: InvalidArgument for a negative extent, or where the product of
  // the non-zero extents does not fit int64 (so no stride overflows either).
  static absl::StatusOr<Shape> Create(absl::Span<const int64_t> extents);

  // The inverse of ToString; white space around numbers is allowed.
  static absl::StatusOr<Shape> Parse(absl::string_view text);

  int num_dims() const { return static_cast<int>(extents_.size()); }
  int64_t extent(int dim) const { return extents_[dim]; }
  absl::Span<const int64_t> extents() const { return extents_; }
  int64_t num_elements() const { return num_elements_; }

  // `dim` counted from the end where negative, as an index from the front.
  // ERRORS: InvalidArgument outside [-num_dims, num_dims).
  absl::StatusOr<int> NormalizeDim(int64_t dim) const;

  // Elements from one index to the next, per dim, of a dense row-major
  // tensor. Zero extents count as one.
  Dims RowMajorStrides() const;

  std::string ToString() const;  // "[4096,14336]"

  friend bool operator==(const Shape& a, const Shape& b) {
    return a.extents_ == b.extents_;
  }
  template <typename H>
  friend H AbslHashValue(H h, const Shape& s) {
    return H::combine(std::move(h), s.extents_);
  }
  friend std::ostream& operator<<(std::ostream& os, const Shape& s) {
    return os << s.ToString();
  }

 private:
  Dims extents_;
  int64_t num_elements_ = 1;
};

}  // namespace tessera

#endif  // TESSERA_TENSOR_SHAPE_H_

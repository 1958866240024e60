#include "tessera/tensor/shape.h"

#include <algorithm>
#include <optional>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tessera/base/checked_math.h"
#include "tessera/base/scanner.h"

namespace tessera {
namespace {

std::string ExtentsToString(absl::Span<const int64_t> extents) {
  return absl::StrCat("[", absl::StrJoin(extents, ","), "]");
}

}  // namespace

absl::StatusOr<Shape> Shape::Create(absl::Span<const int64_t> extents) {
  int64_t product = 1;
  for (int64_t extent : extents) {
    if (extent < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor: want extents of at least 0, found ", extent,
                       " in ", ExtentsToString(extents)));
    }
    if (extent == 0) continue;
    const std::optional<int64_t> next = CheckedMul(product, extent);
    if (!next.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor: the number of elements of ",
                       ExtentsToString(extents), " does not fit int64"));
    }
    product = *next;
  }
  Shape shape;
  shape.extents_.assign(extents.begin(), extents.end());
  shape.num_elements_ = absl::c_linear_search(extents, 0) ? 0 : product;
  return shape;
}

absl::StatusOr<Shape> Shape::Parse(absl::string_view text) {
  internal::Scanner scanner("tensor", text);
  if (!scanner.Consume("[")) return scanner.Error("'['");
  Dims extents;
  while (!scanner.Consume("]")) {
    if (!extents.empty() && !scanner.Consume(",")) {
      return scanner.Error("',' or ']'");
    }
    const std::optional<int64_t> extent = scanner.ConsumeInt<int64_t>();
    if (!extent.has_value()) return scanner.Error("an int64 extent");
    extents.push_back(*extent);
  }
  if (!scanner.AtEnd()) return scanner.Error("the end of the shape");
  return Create(extents);
}

absl::StatusOr<int> Shape::NormalizeDim(int64_t dim) const {
  if (dim < -num_dims() || dim >= num_dims()) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor: dim ", dim, " out of range for rank-", num_dims(),
                     " tensor ", ToString()));
  }
  return static_cast<int>(dim < 0 ? dim + num_dims() : dim);
}

Dims Shape::RowMajorStrides() const {
  Dims strides(extents_.size());
  int64_t stride = 1;
  for (int dim = num_dims() - 1; dim >= 0; --dim) {
    strides[dim] = stride;
    stride *= std::max<int64_t>(extents_[dim], 1);
  }
  return strides;
}

std::string Shape::ToString() const { return ExtentsToString(extents_); }

}  // namespace tessera

#include "tessera/tensor/tensor_view.h"

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tessera {
namespace {

// Elements from the first to behind the last one, or nullopt where their
// bytes do not fit int64.
std::optional<int64_t> CheckedSpan(const TensorMeta& meta,
                                   absl::Span<const int64_t> strides) {
  if (meta.num_elements() == 0) return 0;
  std::optional<int64_t> span = 1;
  for (int dim = 0; dim < meta.shape().num_dims(); ++dim) {
    const std::optional<int64_t> reach =
        CheckedMul(meta.shape().extent(dim) - 1, strides[dim]);
    if (!reach.has_value()) return std::nullopt;
    span = CheckedAdd(*span, *reach);
    if (!span.has_value()) return std::nullopt;
  }
  if (!CheckedMul(*span, SizeOf(meta.dtype())).has_value()) return std::nullopt;
  return span;
}

}  // namespace

TensorView::TensorView(void* data, TensorMeta meta)
    : data_(data),
      meta_(std::move(meta)),
      strides_(meta_.shape().RowMajorStrides()) {}

TensorView TensorView::Flat(void* data, DType dtype, int64_t elements) {
  return TensorView(data, TensorMeta::Create(dtype, {elements}).value());
}

absl::StatusOr<TensorView> TensorView::Strided(
    void* data, TensorMeta meta, absl::Span<const int64_t> strides) {
  if (strides.size() != meta.shape().extents().size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor: want one stride per dim of ", meta.ToString(),
                     ", found ", strides.size()));
  }
  for (int64_t stride : strides) {
    if (stride < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor: want strides of at least 0, found ", stride));
    }
  }
  if (!CheckedSpan(meta, strides).has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor: ", meta.ToString(), " with strides (",
        absl::StrJoin(strides, ","), ") spans more bytes than int64 holds"));
  }
  TensorView view(data, std::move(meta));
  view.strides_.assign(strides.begin(), strides.end());
  return view;
}

bool TensorView::IsContiguous() const {
  if (num_elements() == 0) return true;
  int64_t dense = 1;
  for (int dim = shape().num_dims() - 1; dim >= 0; --dim) {
    const int64_t extent = shape().extent(dim);
    if (extent != 1 && strides_[dim] != dense) return false;
    dense *= extent;
  }
  return true;
}

TensorView TensorView::Slice(int dim, Interval range) const {
  Dims extents(shape().extents().begin(), shape().extents().end());
  extents[dim] = range.size();
  TensorView slice = *this;
  slice.meta_ = TensorMeta::Create(dtype(), extents).value();
  // There may be no memory to move in.
  if (slice.num_elements() > 0 && data_ != nullptr) {
    slice.data_ = static_cast<std::byte*>(data_) +
                  range.begin * strides_[dim] * SizeOf(dtype());
  }
  return slice;
}

TensorView TensorView::Flattened() const {
  return Flat(data_, dtype(), num_elements());
}

int64_t TensorView::SpanBytes() const {
  return CheckedSpan(meta_, strides_).value() * SizeOf(dtype());
}

std::string TensorView::ToString() const {
  if (IsContiguous()) return meta_.ToString();
  return absl::StrCat(meta_.ToString(), " strides (",
                      absl::StrJoin(strides_, ","), ")");
}

}  // namespace tessera

#include "tessera/device/loops.h"

#include <algorithm>
#include <utility>

namespace tessera::internal {
namespace {

// True if `outer` goes on where `inner` ends, in every view.
bool Continues(const Loop& outer, const Loop& inner) {
  for (size_t v = 0; v < inner.strides.size(); ++v) {
    if (outer.strides[v] != inner.strides[v] * inner.extent) return false;
  }
  return true;
}

// The dims of `view` that are longer than 1, closest elements first.
Dims DimsByStride(const TensorView& view) {
  Dims dims;
  for (int dim = view.shape().num_dims() - 1; dim >= 0; --dim) {
    if (view.shape().extent(dim) > 1) dims.push_back(dim);
  }
  // Few and mostly sorted: no allocation, as std::stable_sort would make.
  for (size_t i = 1; i < dims.size(); ++i) {
    for (size_t k = i; k > 0; --k) {
      if (view.strides()[dims[k - 1]] <= view.strides()[dims[k]]) break;
      std::swap(dims[k - 1], dims[k]);
    }
  }
  return dims;
}

}  // namespace

Loops LoopsOver(const TensorView& first, absl::Span<const TensorView> rest) {
  Loops loops;
  for (int64_t dim : DimsByStride(first)) {
    Loop loop = {first.shape().extent(static_cast<int>(dim)),
                 {first.strides()[dim]}};
    for (const TensorView& view : rest) {
      loop.strides.push_back(view.strides()[dim]);
    }
    if (!loops.empty() && Continues(loop, loops.back())) {
      loops.back().extent *= loop.extent;
    } else {
      loops.push_back(std::move(loop));
    }
  }
  // The stride of a single element does not matter; 1 is the fast one.
  if (loops.empty()) loops.push_back({1, PerView<int64_t>(1 + rest.size(), 1)});
  return loops;
}

}  // namespace tessera::internal

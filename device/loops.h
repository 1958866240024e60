#ifndef TESSERA_DEVICE_LOOPS_H_
#define TESSERA_DEVICE_LOOPS_H_

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "tessera/tensor/tensor_view.h"

namespace tessera::internal {

// One for each of several views; up to 33 (a target and 32 sources) without
// allocation.
template <typename T>
using PerView = absl::InlinedVector<T, 33>;

// One dim that several views of one shape share.
struct Loop {
  int64_t extent;
  PerView<int64_t> strides;  // in elements
};
using Loops = absl::InlinedVector<Loop, 4>;

// The loops over the elements of `first` and `rest`, views of one shape with
// elements: at least one, and no more than it takes. Innermost is where the
// elements of `first` lie closest.
Loops LoopsOver(const TensorView& first, absl::Span<const TensorView> rest);

// A run of elements in every view.
template <typename T>
struct Row {
  PerView<T*> data;
  absl::Span<const int64_t> strides;  // one per view
  int64_t length;

  bool IsDense() const {
    for (int64_t stride : strides) {
      if (stride != 1) return false;
    }
    return true;
  }
};

// Calls visit(row) for rows that cover the views, all of dtype T and one
// shape.
template <typename T, typename Visit>
void ForEachRow(const TensorView& first, absl::Span<const TensorView> rest,
                Visit visit) {
  if (first.num_elements() == 0) return;
  const Loops loops = LoopsOver(first, rest);
  Row<T> row = {{first.as<T>()}, loops.front().strides, loops.front().extent};
  for (const TensorView& view : rest) row.data.push_back(view.as<T>());

  const auto move = [&row](const Loop& loop, int64_t steps) {
    for (size_t v = 0; v < row.data.size(); ++v) {
      row.data[v] += steps * loop.strides[v];
    }
  };
  Dims index(loops.size(), 0);
  size_t level = 1;
  do {
    visit(static_cast<const Row<T>&>(row));
    for (level = 1; level < loops.size(); ++level) {
      const Loop& loop = loops[level];
      if (++index[level] < loop.extent) {
        move(loop, 1);
        break;
      }
      move(loop, 1 - loop.extent);
      index[level] = 0;
    }
  } while (level < loops.size());
}

}  // namespace tessera::internal

#endif  // TESSERA_DEVICE_LOOPS_H_

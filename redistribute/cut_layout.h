#ifndef TESSERA_REDISTRIBUTE_CUT_LAYOUT_H_
#define TESSERA_REDISTRIBUTE_CUT_LAYOUT_H_

#include <array>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "tessera/redistribute/packed_layout.h"
#include "tessera/tensor/shape.h"

namespace tessera::internal {

// A packed layout, and how it cuts each tensor dim: worked out once, for a
// search compares a layout with many others. What is Partial counts as R.
// A value.
struct CutLayout {
  struct Dim {
    std::array<uint8_t, kMaxMovingAxes> axes = {};  // that cut it, major first
    int num_axes = 0;
    bool is_even = true;  // all cuts are
    int64_t extent = 0;
    int64_t piece = 0;  // the largest extent that a rank holds
  };

  // `axis_sizes`: one per packed axis.
  CutLayout(const Dims& extents, absl::Span<const int64_t> axis_sizes,
            const PackedLayout& packed);

  // Of the largest piece.
  int64_t num_elements() const;

  PackedLayout layout;
  absl::InlinedVector<Dim, 4> dims;
  // By axis that cuts, the largest extent that its cut leaves.
  std::array<int64_t, kMaxMovingAxes> pieces;
};

// The axes that cut a dim, from one on.
inline AxisMask MaskOf(const CutLayout::Dim& dim, int from) {
  AxisMask axes = kNoAxes;
  for (int i = from; i < dim.num_axes; ++i) axes |= AxisMask{1} << dim.axes[i];
  return axes;
}

}  // namespace tessera::internal

#endif  // TESSERA_REDISTRIBUTE_CUT_LAYOUT_H_

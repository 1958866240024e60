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

  int num_cuts(int dim) const { return dims[dim].num_axes; }

  // For an axis that cuts: whether it comes last in the cutting order of its
  // dim; the largest extent that is left for it to cut.
  bool IsMinorMost(int axis) const;
  int64_t PieceBefore(int axis) const;

  PackedLayout layout;
  AxisMask partial = kNoAxes;  // the axes along which it is P
  AxisMask sharded = kNoAxes;
  absl::InlinedVector<Dim, 4> dims;
  int64_t num_elements = 1;  // of the largest piece
  // By axis that cuts, the largest extent that its cut leaves.
  std::array<int64_t, kMaxMovingAxes> pieces;
};

inline bool CutLayout::IsMinorMost(int axis) const {
  return layout[axis].position() + 1 == num_cuts(layout[axis].dim());
}

inline int64_t CutLayout::PieceBefore(int axis) const {
  const Dim& dim = dims[layout[axis].dim()];
  const int position = layout[axis].position();
  return position == 0 ? dim.extent : pieces[dim.axes[position - 1]];
}

// The axes that cut a dim, from one on.
inline AxisMask MaskOf(const CutLayout::Dim& dim, int from) {
  AxisMask axes = kNoAxes;
  for (int i = from; i < dim.num_axes; ++i) axes |= AxisMask{1} << dim.axes[i];
  return axes;
}

// The last `count` axes that cut a dim.
inline AxisList MinorAxes(const CutLayout::Dim& dim, int count) {
  AxisList list;
  for (int i = dim.num_axes - count; i < dim.num_axes; ++i) {
    list.push_back(dim.axes[i]);
  }
  return list;
}

// The axes that cut a dim, less one that may.
inline AxisList AxesBut(const CutLayout::Dim& dim, int axis) {
  AxisList list;
  for (int i = 0; i < dim.num_axes; ++i) {
    if (dim.axes[i] != axis) list.push_back(dim.axes[i]);
  }
  return list;
}

}  // namespace tessera::internal

#endif  // TESSERA_REDISTRIBUTE_CUT_LAYOUT_H_

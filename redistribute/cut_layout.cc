#include "tessera/redistribute/cut_layout.h"

#include <cstddef>

namespace tessera::internal {

CutLayout::CutLayout(const Dims& extents, absl::Span<const int64_t> axis_sizes,
                     const PackedLayout& packed)
    : layout(packed), dims(extents.size()) {
  for (size_t axis = 0; axis < axis_sizes.size(); ++axis) {
    if (packed[axis].is_partial()) partial |= AxisMask{1} << axis;
    if (!packed[axis].is_shard()) continue;
    sharded |= AxisMask{1} << axis;
    Dim& dim = dims[packed[axis].dim()];
    dim.axes[packed[axis].position()] = static_cast<uint8_t>(axis);
    ++dim.num_axes;
  }
  const int64_t* extent = extents.data();
  for (Dim& dim : dims) {
    dim.extent = *extent++;
    dim.piece = dim.extent;
    // Nested cuts by ceil(extent / size) divide by the sizes in turn.
    for (int cut = 0; cut < dim.num_axes; ++cut) {
      const int64_t size = axis_sizes[dim.axes[cut]];
      const int64_t rest = dim.piece % size;
      dim.piece = dim.piece / size + (rest == 0 ? 0 : 1);
      dim.is_even = dim.is_even && rest == 0;
      pieces[dim.axes[cut]] = dim.piece;
    }
    num_elements *= dim.piece;
  }
}

}  // namespace tessera::internal

#include "tessera/redistribute/overlap.h"

#include <algorithm>

#include "tessera/base/checked_math.h"
#include "tessera/tensor/index.h"

namespace tessera::internal {
namespace {

bool Has(AxisMask mask, int axis) { return (mask >> axis & 1) != 0; }

Share Times(const Share& a, const Share& b) {
  return {a.elements * b.elements, a.pieces * b.pieces};
}

}  // namespace

Overlap::Overlap(const Dims& extents, absl::Span<const int64_t> axis_sizes,
                 const PackedLayout& before, const PackedLayout& after) {
  std::copy(axis_sizes.begin(), axis_sizes.end(), axis_sizes_.begin());
  const auto add = [&](const PackedLayout& layout, CutList Dim::*list) {
    for (size_t i = 0; i < axis_sizes.size(); ++i) {
      if (!layout[i].is_shard()) continue;
      const int dim = layout[i].dim();
      CutList& cuts = DimOf(dim, extents[dim]).*list;
      cuts.axes[layout[i].position()] = static_cast<uint8_t>(i);
      ++cuts.size;
    }
  };
  add(before, &Dim::before);
  add(after, &Dim::after);

  AxisMask cut_dims = 0;
  for (Dim& dim : dims_) {
    cut_dims |= AxisMask{1} << dim.dim;
    while (dim.prefix < std::min(dim.before.size, dim.after.size) &&
           dim.before.axes[dim.prefix] == dim.after.axes[dim.prefix]) {
      ++dim.prefix;
    }
    // Nested cuts by ceil(extent / size) divide by the sizes in turn.
    const auto largest = [&](const CutList& list, bool& is_even) {
      int64_t piece = dim.extent;
      for (int i = 0; i < list.size; ++i) {
        is_even = is_even && piece % Size(list, i) == 0;
        piece = CeilDiv(piece, Size(list, i));
      }
      return piece;
    };
    dim.is_even = true;
    dim.old_piece = largest(dim.before, dim.is_even);
    dim.new_piece = largest(dim.after, dim.is_even);
    if (dim.extent == 0) continue;
    dim.is_even = dim.is_even && (dim.old_piece % dim.new_piece == 0 ||
                                  dim.new_piece % dim.old_piece == 0);
  }
  for (size_t dim = 0; dim < extents.size(); ++dim) {
    if ((cut_dims >> dim & 1) == 0) whole_ *= extents[dim];
  }
}

AxisMask Overlap::MaskOf(const CutList& list, int from) {
  AxisMask axes = kNoAxes;
  for (int i = from; i < list.size; ++i) axes |= AxisMask{1} << list.axes[i];
  return axes;
}

Overlap::Dim& Overlap::DimOf(int dim, int64_t extent) {
  for (Dim& known : dims_) {
    if (known.dim == dim) return known;
  }
  Dim& added = dims_.emplace_back();
  added.dim = dim;
  added.extent = extent;
  return added;
}

Share Overlap::FoundAt(const PackedCoords& coords, AxisMask own) const {
  Share share = {whole_, whole_ == 0 ? 0 : 1};
  for (const Dim& dim : dims_) {
    share = Times(share, FoundAt(dim, coords, own));
  }
  return share;
}

Share Overlap::FoundAt(const Dim& dim, const PackedCoords& coords,
                       AxisMask own) const {
  Interval piece = {0, dim.extent};
  for (int i = 0; i < dim.after.size; ++i) {
    const Interval part =
        CeilSplit(piece.size(), Size(dim.after, i), coords[dim.after.axes[i]]);
    piece = {piece.begin + part.begin, piece.begin + part.end};
  }
  return CutDown(dim.before, 0, dim.extent, piece.begin, piece.end, coords,
                 own);
}

Share Overlap::CutDown(const CutList& list, int from, int64_t extent,
                       int64_t begin, int64_t end, const PackedCoords& coords,
                       AxisMask own) const {
  begin = std::max<int64_t>(begin, 0);
  end = std::min(end, extent);
  if (begin >= end) return {};
  if (from == list.size) return {end - begin, 1};
  const int64_t parts = Size(list, from);
  const int64_t chunk = CeilDiv(extent, parts);
  const auto part = [&](int64_t i) {
    const Interval whole = CeilSplit(extent, parts, i);
    return CutDown(list, from + 1, whole.size(), begin - whole.begin,
                   end - whole.begin, coords, own);
  };
  const int axis = list.axes[from];
  if (Has(own, axis)) return part(coords[axis]);
  // A first and a last part, and between them parts that are all alike.
  const int64_t first = begin / chunk;
  const int64_t last = (end - 1) / chunk;
  Share share = part(first);
  if (first == last) return share;
  const Share at_last = part(last);
  share.elements += at_last.elements;
  share.pieces += at_last.pieces;
  if (const int64_t between = last - first - 1; between > 0) {
    const Share each = CutDown(list, from + 1, chunk, 0, chunk, coords, own);
    share.elements += between * each.elements;
    share.pieces += between * each.pieces;
  }
  return share;
}

Share Overlap::Most() const {
  Share share = {whole_, whole_ == 0 ? 0 : 1};
  for (const Dim& dim : dims_) share = Times(share, Most(dim));
  return share;
}

int64_t Overlap::CellsBehindPrefix(const Dim& dim) const {
  int64_t cells = 1;
  for (int i = dim.prefix; i < dim.before.size; ++i) {
    cells *= Size(dim.before, i);
  }
  return cells;
}

Share Overlap::Most(const Dim& dim) const {
  if (dim.extent == 0) return {};
  if (dim.is_even) {
    return {dim.new_piece, std::max<int64_t>(1, dim.new_piece / dim.old_piece)};
  }
  return {dim.new_piece, std::min(CellsBehindPrefix(dim), dim.new_piece)};
}

Share Overlap::Least(AxisMask own) const {
  Share share = {whole_, whole_ == 0 ? 0 : 1};
  for (const Dim& dim : dims_) {
    share = Times(share, Least(dim, own));
  }
  return share;
}

Share Overlap::Least(const Dim& dim, AxisMask own) const {
  const Share most = Most(dim);
  int64_t parts_own = 1;  // behind the prefix
  for (int i = dim.prefix; i < dim.before.size; ++i) {
    if (Has(own, dim.before.axes[i])) parts_own *= Size(dim.before, i);
  }
  if (parts_own == 1) return most;  // nothing is out of sight
  if (dim.prefix < dim.after.size) return {};
  // The new piece is what the prefix leaves, the old ones are parts of it.
  if (!dim.is_even) return {};
  return {most.elements / parts_own, most.pieces / parts_own};
}

int64_t Overlap::MostFoundAtHome() const {
  int64_t elements = whole_;
  for (const Dim& dim : dims_) {
    elements *= std::min(dim.old_piece, dim.new_piece);
  }
  return elements;
}

bool Overlap::IsRegular(AxisMask own) const {
  for (const Dim& dim : dims_) {
    if (!IsRegular(dim, own)) return false;
  }
  return true;
}

bool Overlap::IsRegular(const Dim& dim, AxisMask own) const {
  // Where a dim stays as it is, every rank has all of it.
  if (!dim.differs()) return true;
  if (!dim.is_even) return false;
  if (dim.prefix == dim.after.size || dim.prefix == dim.before.size) {
    return true;
  }
  if (Has(own, dim.before.axes[dim.prefix])) return true;
  for (int i = dim.prefix + 1; i < dim.before.size; ++i) {
    if (Has(own, dim.before.axes[i])) return false;
  }
  return true;
}

AxisMask Overlap::DecisiveAxes() const {
  AxisMask axes = kNoAxes;
  for (const Dim& dim : dims_) {
    if (dim.differs()) axes |= MaskOf(dim.before, 0) | MaskOf(dim.after, 0);
  }
  return axes;
}

AxisMask Overlap::CrossedAxes() const {
  AxisMask axes = kNoAxes;
  for (const Dim& dim : dims_) {
    axes |= MaskOf(dim.before, dim.prefix) | MaskOf(dim.after, dim.prefix);
  }
  return axes;
}

AxisMask Overlap::AxesLeft() const {
  AxisMask axes = kNoAxes;
  for (const Dim& dim : dims_) axes |= MaskOf(dim.before, dim.prefix);
  return axes;
}

PackedCoords Overlap::NeedyRank() const {
  AxisMask before = kNoAxes;
  AxisMask after = kNoAxes;
  for (const Dim& dim : dims_) {
    before |= MaskOf(dim.before, 0);
    after |= MaskOf(dim.after, 0);
  }
  PackedCoords coords = {};
  for (int axis = 0; axis < kMaxMovingAxes; ++axis) {
    if (Has(before, axis) && !Has(after, axis)) {
      coords[axis] = axis_sizes_[axis] - 1;
    }
  }
  return coords;
}

}  // namespace tessera::internal

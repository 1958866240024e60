#include "tessera/redistribute/overlap.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "tessera/base/checked_math.h"
#include "tessera/tensor/index.h"

namespace tessera::internal {
namespace {

bool Has(AxisMask mask, int axis) { return (mask >> axis & 1) != 0; }

Share Times(const Share& a, const Share& b) {
  return {a.elements * b.elements, a.pieces * b.pieces};
}

}  // namespace

Overlap::Overlap(absl::Span<const int64_t> axis_sizes, const CutLayout& before,
                 const CutLayout& after)
    : axis_sizes_(axis_sizes), before_(before), after_(after) {
  const CutLayout::Dim* of_after = after.dims.data();
  for (const CutLayout::Dim& of_before : before.dims) {
    dims_.emplace_back(axis_sizes, of_before, *of_after++);
  }
}

Overlap::Dim::Dim(absl::Span<const int64_t> axis_sizes,
                  const CutLayout::Dim& before_in,
                  const CutLayout::Dim& after_in)
    : before(before_in),
      after(after_in),
      is_even(before_in.is_even && after_in.is_even) {
  const int both = std::min(before.num_axes, after.num_axes);
  while (prefix < both && before.axes[prefix] == after.axes[prefix]) ++prefix;
  if (after.extent == 0) return;
  most = {after.piece, 1};
  if (!differs()) return;
  const int64_t parts = after.piece / before.piece;
  const bool divides =
      parts * before.piece == after.piece || before.piece % after.piece == 0;
  is_even = is_even && divides;
  if (is_even) {
    most.pieces = std::max<int64_t>(1, parts);
    return;
  }
  int64_t cells = 1;  // behind the prefix
  for (int i = prefix; i < before.num_axes; ++i) {
    cells *= axis_sizes[before.axes[i]];
  }
  most.pieces = std::min(cells, after.piece);
}

Overlap::Meeting Overlap::MeetingOf(int old_axis, int new_axis) const {
  int64_t low = before_.pieces[old_axis];
  int64_t high = after_.pieces[new_axis];
  int64_t low_size = axis_sizes_[old_axis];
  int64_t high_size = axis_sizes_[new_axis];
  if (low > high) {
    std::swap(low, high);
    std::swap(low_size, high_size);
  }
  const int64_t end = low * low_size;
  if (high >= end) {
    return high % end == 0 ? Meeting::kApart : Meeting::kUnclear;
  }
  if (high % low != 0 || end % high != 0) return Meeting::kUnclear;
  const int64_t shared = end / high;  // values of the part that they share
  const bool is_nested = shared % high_size == 0 || high_size % shared == 0;
  if (!is_nested) return Meeting::kUnclear;
  // Else the digits at coordinates 0 and 1 differ in that part; of one axis,
  // the two digits at coordinate 1.
  const bool is_same = old_axis == new_axis && low == high;
  return is_same ? Meeting::kSame : Meeting::kClash;
}

Overlap::Meeting Overlap::MeetingOf(const Dim& dim, int old_axis,
                                    AxisMask axes) const {
  Meeting worst = Meeting::kApart;
  for (int i = dim.prefix; i < dim.after.num_axes; ++i) {
    const int new_axis = dim.after.axes[i];
    if (!Has(axes, new_axis)) continue;
    const Meeting meeting = MeetingOf(old_axis, new_axis);
    if (meeting == Meeting::kClash) return meeting;
    worst = std::max(worst, meeting);
  }
  return worst;
}

Overlap::Parts Overlap::PartsOf(const Dim& dim, AxisMask own,
                                AxisMask held) const {
  Parts parts;
  for (int i = dim.prefix; i < dim.before.num_axes; ++i) {
    const int axis = dim.before.axes[i];
    if (!Has(own, axis)) continue;
    switch (MeetingOf(dim, axis, held)) {
      case Meeting::kApart:
        parts.count *= axis_sizes_[axis];
        break;
      case Meeting::kSame:
        break;
      case Meeting::kClash:
        return {.count = 0};
      case Meeting::kUnclear:
        parts.is_exact = false;
        break;
    }
  }
  return parts;
}

int64_t Overlap::HeldTogether(AxisMask own) const {
  int64_t elements = 1;
  for (const Dim& dim : dims_) {
    int64_t extent = dim.after.extent;
    for (int i = 0; i < dim.after.num_axes; ++i) {
      if (Has(own, dim.after.axes[i])) extent /= Size(dim.after, i);
    }
    elements *= extent;
  }
  return elements;
}

int64_t Overlap::FoundTogether(AxisMask own, int64_t held) const {
  if (held == 0) return 0;
  int64_t elements = held;
  for (const Dim& dim : dims_) {
    const Parts parts = PartsOf(dim, own, own);
    if (parts.count == 0) return 0;
    elements /= parts.count;
  }
  return elements;
}

Share Overlap::FoundAt(const PackedCoords& coords, AxisMask own) const {
  Share share = {1, 1};
  for (const Dim& dim : dims_) {
    share = Times(share, FoundAt(dim, coords, own));
  }
  return share;
}

Share Overlap::FoundAt(const Dim& dim, const PackedCoords& coords,
                       AxisMask own) const {
  Interval piece = {0, dim.after.extent};
  for (int i = 0; i < dim.after.num_axes; ++i) {
    const Interval part =
        CeilSplit(piece.size(), Size(dim.after, i), coords[dim.after.axes[i]]);
    piece = {piece.begin + part.begin, piece.begin + part.end};
  }
  return CutDown(dim.before, 0, dim.after.extent, piece.begin, piece.end,
                 coords, own);
}

Share Overlap::CutDown(const CutLayout::Dim& dim, int from, int64_t extent,
                       int64_t begin, int64_t end, const PackedCoords& coords,
                       AxisMask own) const {
  begin = std::max<int64_t>(begin, 0);
  end = std::min(end, extent);
  if (begin >= end) return {};
  if (from == dim.num_axes) return {end - begin, 1};
  const int64_t parts = Size(dim, from);
  const int64_t chunk = CeilDiv(extent, parts);
  const auto part = [&](int64_t i) {
    const Interval whole = CeilSplit(extent, parts, i);
    return CutDown(dim, from + 1, whole.size(), begin - whole.begin,
                   end - whole.begin, coords, own);
  };
  const int axis = dim.axes[from];
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
    const Share each = CutDown(dim, from + 1, chunk, 0, chunk, coords, own);
    share.elements += between * each.elements;
    share.pieces += between * each.pieces;
  }
  return share;
}

Share Overlap::Most() const {
  Share share = {1, 1};
  for (const Dim& dim : dims_) share = Times(share, dim.most);
  return share;
}

Overlap::Finding Overlap::Least(AxisMask own) const {
  Finding least = {{1, 1}};
  for (const Dim& dim : dims_) {
    // Where a dim stays as it is, every rank has all of it.
    if (!dim.differs()) {
      least.share = Times(least.share, dim.most);
      continue;
    }
    const Finding of_dim = Least(dim, own);
    least.share = Times(least.share, of_dim.share);
    least.is_exact = least.is_exact && of_dim.is_exact;
  }
  return least;
}

Overlap::Finding Overlap::Least(const Dim& dim, AxisMask own) const {
  const Share& most = dim.most;
  if (dim.after.extent == 0) return {most};
  if (dim.is_even) {
    if (dim.prefix == dim.before.num_axes) return {most};
    const Parts parts = PartsOf(dim, own, kAllAxes);
    if (parts.count == 0 || !parts.is_exact) return {{}, parts.is_exact};
    return {{most.elements / parts.count, most.pieces / parts.count}};
  }
  const AxisMask left = MaskOf(dim.before, dim.prefix);
  // Nothing is out of sight.
  if ((left & own) == kNoAxes) return {most, /*is_exact=*/false};
  // Else the new piece is what the prefix leaves, the old ones parts of it.
  const bool sees_one =
      dim.prefix == dim.after.num_axes && (left & ~own) == kNoAxes;
  if (!sees_one) return {{}, /*is_exact=*/false};
  return {{LeastPiece(dim.before, 0, dim.after.extent), 0},
          /*is_exact=*/false};
}

int64_t Overlap::LeastPiece(const CutLayout::Dim& dim, int from,
                            int64_t extent) const {
  if (from == dim.num_axes || extent == 0) return extent;
  const int64_t parts = Size(dim, from);
  const int64_t last = CeilSplit(extent, parts, parts - 1).size();
  // No part but the last is smaller than the first, unless the last is empty.
  const int64_t least = LeastPiece(dim, from + 1, last);
  if (least == 0) return 0;
  return std::min(least, LeastPiece(dim, from + 1, CeilDiv(extent, parts)));
}

int64_t Overlap::MostFound(AxisMask own) const {
  const bool sees_one = (before_.sharded & ~own) == kNoAxes;
  int64_t elements = 1;
  for (const Dim& dim : dims_) {
    int64_t seen = dim.before.piece;
    for (int i = 0; !sees_one && i < dim.before.num_axes; ++i) {
      if (!Has(own, dim.before.axes[i])) seen *= Size(dim.before, i);
    }
    elements *= std::min(seen, dim.after.piece);
  }
  return elements;
}

bool Overlap::IsEven() const {
  return absl::c_all_of(dims_, [](const Dim& dim) { return dim.is_even; });
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

#include "tessera/placement/layout.h"

#include <cstddef>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/hash/hash.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tessera/base/status_macros.h"

namespace tessera {
namespace {

using AxisList = absl::InlinedVector<int, 4>;

// Counts all shard dims from the front.
absl::Status NormalizeDims(const Shape& shape, const DeviceMesh& mesh,
                           Placements& placements) {
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    if (!placements[axis].is_shard()) continue;
    const absl::StatusOr<int> dim = shape.NormalizeDim(placements[axis].dim());
    if (!dim.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "layout: shard dim ", placements[axis].dim(), " along axis '",
          mesh.axis(axis).name, "' out of range for rank-", shape.num_dims(),
          " tensor ", shape.ToString()));
    }
    placements[axis] = Placement::Shard(*dim);
  }
  return absl::OkStatus();
}

// Per axis its place in mesh-axis order among those that shard its dim; 0
// where not Shard.
AxisList MeshOrderPositions(const Placements& placements, int num_dims) {
  AxisList positions(placements.size(), 0);
  AxisList next(num_dims, 0);
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    if (!placements[axis].is_shard()) continue;
    positions[axis] = next[placements[axis].dim()]++;
  }
  return positions;
}

// The axes that shard `dim`, in mesh-axis order.
AxisList AxesSharding(const Placements& placements, int dim) {
  AxisList axes;
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    if (placements[axis].is_shard(dim)) axes.push_back(static_cast<int>(axis));
  }
  return axes;
}

// Writes what `order` says over the positions of the axes that it names.
absl::Status ApplyOrder(const Shape& shape, const Placements& placements,
                        absl::Span<const Layout::DimOrder> order,
                        AxisList& positions) {
  AxisList seen;
  for (const Layout::DimOrder& entry : order) {
    TESSERA_ASSIGN_OR_RETURN(const int dim, shape.NormalizeDim(entry.dim));
    if (absl::c_linear_search(seen, dim)) {
      return absl::InvalidArgumentError(
          absl::StrCat("layout: two cutting orders for dim ", dim));
    }
    seen.push_back(dim);
    AxisList listed = entry.axes;
    absl::c_sort(listed);
    const AxisList sharding = AxesSharding(placements, dim);
    if (listed != sharding) {
      return absl::InvalidArgumentError(absl::StrCat(
          "layout: want a cutting order of dim ", dim, " over the axes (",
          absl::StrJoin(sharding, ","), ") that shard it, found (",
          absl::StrJoin(entry.axes, ","), ")"));
    }
    for (size_t i = 0; i < entry.axes.size(); ++i) {
      positions[entry.axes[i]] = static_cast<int>(i);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPartials(const Layout& layout) {
  std::optional<ReduceOp> first;
  for (int axis = 0; axis < layout.mesh().num_axes(); ++axis) {
    if (!layout.placement(axis).is_partial()) continue;
    const ReduceOp op = layout.placement(axis).op();
    if (op == ReduceOp::kAvg && !IsFloating(layout.dtype())) {
      return absl::InvalidArgumentError(absl::StrCat(
          "layout: P(avg) along axis '", layout.mesh().axis(axis).name,
          "' wants a floating dtype, found ", DTypeName(layout.dtype())));
    }
    if (!first.has_value()) first = op;
    if (!MayMix(*first, op)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "layout: P(", ReduceOpName(op), ") along axis '",
          layout.mesh().axis(axis).name, "' does not commute with P(",
          ReduceOpName(*first), ") along an axis before it"));
    }
  }
  return absl::OkStatus();
}

// Checks that the ragged axes share one cut and name each position once.
absl::Status CheckRaggedAxes(const DeviceMesh& mesh,
                             absl::Span<const Placement> placements) {
  AxisList axes;
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    if (placements[axis].is_ragged()) axes.push_back(axis);
  }
  std::vector<bool> taken(axes.size(), false);
  for (int axis : axes) {
    const Placement& placement = placements[axis];
    if (placement.cut() != placements[axes.front()].cut()) {
      return absl::InvalidArgumentError(
          absl::StrCat("layout: axes '", mesh.axis(axes.front()).name,
                       "' and '", mesh.axis(axis).name,
                       "' name different ragged cuts, want one joint cut"));
    }
    const size_t position = placement.position();
    if (position >= axes.size() || taken[position]) {
      return absl::InvalidArgumentError(absl::StrCat(
          "layout: want the ", axes.size(),
          " axes of the ragged cut at different positions from 0 on, found ",
          placement.position(), " for axis '", mesh.axis(axis).name, "'"));
    }
    taken[position] = true;
  }
  return absl::OkStatus();
}

// The number of ranks along `axes`.
int64_t CountRanks(const DeviceMesh& mesh, const AxisList& axes) {
  int64_t count = 1;
  for (int axis : axes) count *= mesh.axis(axis).size;
  return count;
}

// REQUIRES: all else about the layout is right.
absl::Status CheckRaggedCover(const Layout& layout) {
  const AxisList axes = layout.RaggedAxes();
  if (axes.empty()) return absl::OkStatus();
  const int64_t parts = CountRanks(layout.mesh(), axes);
  const int64_t largest = layout.LargestRegion().box_elements();
  const RaggedCut& cut = layout.placement(axes.front()).cut();
  if (!cut.Covers(parts, largest)) {
    return absl::InvalidArgumentError(
        absl::StrCat("layout: ragged cut ", cut.ToString(), " over ", parts,
                     " ranks does not cover the ", largest,
                     " elements that the shard axes leave"));
  }
  return absl::OkStatus();
}

}  // namespace

Layout::Layout() : Layout(TensorMeta(), DeviceMesh(), {}, {}) {}

Layout::Layout(TensorMeta meta, DeviceMesh mesh, Placements placements,
               absl::InlinedVector<int, 4> positions) {
  const size_t hash = absl::HashOf(meta, mesh, placements, positions);
  rep_ =
      std::make_shared<Rep>(Rep{hash, std::move(meta), std::move(mesh),
                                std::move(placements), std::move(positions)});
}

absl::StatusOr<Layout> Layout::Create(TensorMeta meta, DeviceMesh mesh,
                                      absl::Span<const Placement> placements,
                                      absl::Span<const DimOrder> order) {
  if (placements.size() != mesh.axes().size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "layout: want one placement for each of the ", mesh.num_axes(),
        " axes of mesh '", mesh.ToString(), "', found ", placements.size()));
  }
  const Shape& shape = meta.shape();
  Placements normalized(placements.begin(), placements.end());
  TESSERA_RETURN_IF_ERROR(NormalizeDims(shape, mesh, normalized));
  AxisList positions = MeshOrderPositions(normalized, shape.num_dims());
  TESSERA_RETURN_IF_ERROR(ApplyOrder(shape, normalized, order, positions));
  Layout layout(std::move(meta), std::move(mesh), std::move(normalized),
                std::move(positions));
  TESSERA_RETURN_IF_ERROR(CheckPartials(layout));
  TESSERA_RETURN_IF_ERROR(CheckRaggedAxes(layout.mesh(), layout.placements()));
  TESSERA_RETURN_IF_ERROR(CheckRaggedCover(layout));
  return layout;
}

absl::StatusOr<Layout> Layout::With(absl::Span<const Placement> placements,
                                    absl::Span<const DimOrder> order) const {
  return Create(meta(), mesh(), placements, order);
}

AxisList Layout::ShardAxes(int dim) const {
  AxisList axes = AxesSharding(rep_->placements, dim);
  absl::c_sort(axes, [&](int a, int b) {
    return order_position(a) < order_position(b);
  });
  return axes;
}

AxisList Layout::RaggedAxes() const {
  AxisList axes;
  for (int axis = 0; axis < mesh().num_axes(); ++axis) {
    if (placement(axis).is_ragged()) axes.push_back(axis);
  }
  absl::c_sort(axes, [&](int a, int b) {
    return placement(a).position() < placement(b).position();
  });
  return axes;
}

bool Layout::HasPartial() const {
  return absl::c_any_of(placements(),
                        [](const Placement& p) { return p.is_partial(); });
}

Region Layout::RegionAt(absl::Span<const int> coords) const {
  Region region;
  for (int dim = 0; dim < shape().num_dims(); ++dim) {
    const int64_t extent = shape().extent(dim);
    Interval held{0, extent};
    for (int axis : ShardAxes(dim)) {
      const Interval piece =
          CeilSplit(held.size(), mesh().axis(axis).size, coords[axis]);
      held = {held.begin + piece.begin, held.begin + piece.end};
    }
    region.box.push_back(held.empty() ? Interval{extent, extent} : held);
  }
  const AxisList ragged = RaggedAxes();
  if (ragged.empty()) return region;
  int64_t index = 0;
  for (int axis : ragged) index = index * mesh().axis(axis).size + coords[axis];
  region.flat =
      placement(ragged.front()).cut().Piece(index, region.box_elements());
  return region;
}

Region Layout::RegionOf(int rank) const {
  const std::optional<MeshCoords> coords = mesh().CoordsOf(rank);
  if (coords.has_value()) return RegionAt(*coords);
  Region region;
  for (int64_t extent : shape().extents()) {
    region.box.push_back({extent, extent});
  }
  // The box of a 0-d tensor always has an element: only a flat interval can
  // say that it is not held.
  if (shape().num_dims() == 0 || !RaggedAxes().empty()) {
    region.flat = Interval{region.box_elements(), region.box_elements()};
  }
  return region;
}

TensorMeta Layout::LocalMeta(int rank) const {
  return TensorMeta::Create(dtype(), RegionOf(rank).LocalShape()).value();
}

Region Layout::LargestRegion() const {
  return RegionAt(MeshCoords(mesh().num_axes(), 0));
}

int64_t Layout::MostElements() const {
  const int64_t box_elements = LargestRegion().box_elements();
  const AxisList axes = RaggedAxes();
  if (axes.empty()) return box_elements;
  // A piece is the largest where the box that it is cut from is.
  return placement(axes.front())
      .cut()
      .LargestPiece(CountRanks(mesh(), axes), box_elements);
}

}  // namespace tessera

#include "tessera/placement/strided_shard.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tessera/base/status_macros.h"

namespace tessera {
namespace {

using AxisList = absl::InlinedVector<int, 4>;

// Puts `axis` into `order` behind axes that make `pieces` pieces together.
// False where no place does that.
bool InsertBehindPieces(const DeviceMesh& mesh, int axis, int64_t pieces,
                        AxisList& order) {
  int64_t made = 1;
  auto place = order.begin();
  for (; place != order.end() && made < pieces; ++place) {
    made *= mesh.axis(*place).size;
  }
  if (made != pieces) return false;
  order.insert(place, axis);
  return true;
}

}  // namespace

absl::StatusOr<std::vector<DTensorPlacement>> ToDTensor(const Layout& layout) {
  const DeviceMesh& mesh = layout.mesh();
  std::vector<DTensorPlacement> result;
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    const Placement& placement = layout.placement(axis);
    if (placement.is_ragged()) {
      return absl::UnimplementedError(
          absl::StrCat("layout: DTensor has no ragged cut, found one along "
                       "axis '",
                       mesh.axis(axis).name, "'"));
    }
    result.push_back({placement});
    if (!placement.is_shard()) continue;
    for (int before : layout.ShardAxes(placement.dim())) {
      if (before == axis) break;
      if (before > axis) result.back().split_factor *= mesh.axis(before).size;
    }
  }
  return result;
}

absl::StatusOr<Layout> FromDTensor(
    TensorMeta meta, DeviceMesh mesh,
    absl::Span<const DTensorPlacement> placements) {
  std::vector<Placement> plain;
  for (const DTensorPlacement& p : placements) plain.push_back(p.placement);
  // Checks the number of placements and the dims, and counts these from the
  // front.
  TESSERA_ASSIGN_OR_RETURN(const Layout in_mesh_order,
                           Layout::Create(std::move(meta), mesh, plain));
  std::vector<Layout::DimOrder> orders;
  for (int dim = 0; dim < in_mesh_order.shape().num_dims(); ++dim) {
    orders.push_back({dim, {}});
  }
  for (int axis = mesh.num_axes() - 1; axis >= 0; --axis) {
    const Placement& placement = in_mesh_order.placement(axis);
    const int64_t factor = placements[axis].split_factor;
    const bool fits = placement.is_shard()
                          ? InsertBehindPieces(mesh, axis, factor,
                                               orders[placement.dim()].axes)
                          : factor == 1;
    if (fits) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "layout: split factor ", factor, " of ", placement.ToString(),
        " along axis '", mesh.axis(axis).name,
        "' is not the number of pieces that axes behind it make"));
  }
  return in_mesh_order.With(in_mesh_order.placements(), orders);
}

}  // namespace tessera

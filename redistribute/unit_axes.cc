#include "tessera/redistribute/unit_axes.h"

#include <algorithm>
#include <vector>

#include "absl/algorithm/container.h"

namespace tessera::internal {

Layout WithoutUnitAxes(const Layout& layout) {
  const auto is_unit = [&](int axis) {
    return layout.mesh().axis(axis).size == 1;
  };
  const bool has_unit_axes =
      absl::c_any_of(layout.mesh().axes(),
                     [](const MeshAxis& axis) { return axis.size == 1; });
  if (!has_unit_axes) return layout;
  Placements placements(layout.placements().begin(), layout.placements().end());
  for (int axis = 0; axis < layout.mesh().num_axes(); ++axis) {
    if (is_unit(axis) && !placements[axis].is_ragged()) {
      placements[axis] = Placement::Replicate();
    }
  }
  std::vector<Layout::DimOrder> order;
  for (int dim = 0; dim < layout.shape().num_dims(); ++dim) {
    order.push_back({dim, layout.ShardAxes(dim)});
    auto& axes = order.back().axes;
    axes.erase(std::remove_if(axes.begin(), axes.end(), is_unit), axes.end());
  }
  return layout.With(placements, order).value();
}

}  // namespace tessera::internal

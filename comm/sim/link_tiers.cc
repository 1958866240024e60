#include "tessera/comm/sim/link_tiers.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "tessera/mesh/collective_time.h"

namespace tessera::internal {

LinkTiers::LinkTiers(DeviceMesh mesh, const Topology& topology)
    : mesh_(std::move(mesh)), launch_ps_(topology.launch_ps()) {
  std::vector<Link> by_axis;
  for (int axis = 0; axis < mesh_.num_axes(); ++axis) {
    by_axis.push_back(topology.LinkOf(mesh_, axis));
  }
  links_ = by_axis;
  absl::c_sort(links_, IsSlower);
  links_.erase(std::unique(links_.begin(), links_.end()), links_.end());
  for (const Link& link : by_axis) {
    tiers_.push_back(
        static_cast<int>(absl::c_find(links_, link) - links_.begin()));
  }
}

LinkTiers::Path LinkTiers::Between(const MeshCoords& a,
                                   const MeshCoords& b) const {
  Path path = {.tier = num_tiers()};
  for (size_t axis = 0; axis < a.size(); ++axis) {
    if (a[axis] == b[axis]) continue;
    const int tier = tiers_[axis];
    path.tier = std::min(path.tier, tier);
    path.latency_ps = std::max(path.latency_ps, links_[tier].latency_ps);
  }
  return path;
}

}  // namespace tessera::internal

#ifndef TESSERA_COMM_SIM_LINK_TIERS_H_
#define TESSERA_COMM_SIM_LINK_TIERS_H_

#include <cstdint>
#include <vector>

#include "tessera/mesh/device_mesh.h"
#include "tessera/mesh/topology.h"

namespace tessera::internal {

// The links along the axes of a mesh, in tiers: axes with the same link, the
// slowest tier first. Immutable; thread-safe.
class LinkTiers {
 public:
  LinkTiers(DeviceMesh mesh, const Topology& topology);

  const DeviceMesh& mesh() const { return mesh_; }
  int64_t launch_ps() const { return launch_ps_; }
  int num_tiers() const { return static_cast<int>(links_.size()); }
  const Link& link(int tier) const { return links_[tier]; }

  // What a message goes over: the slowest tier of the axes along which its ends
  // differ, and the highest latency.
  struct Path {
    int tier = 0;
    int64_t latency_ps = 0;
  };
  // REQUIRES: other coordinates.
  Path Between(const MeshCoords& a, const MeshCoords& b) const;

 private:
  const DeviceMesh mesh_;
  const int64_t launch_ps_;
  std::vector<Link> links_;
  std::vector<int> tiers_;  // by mesh axis
};

}  // namespace tessera::internal

#endif  // TESSERA_COMM_SIM_LINK_TIERS_H_

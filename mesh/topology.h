#ifndef TESSERA_MESH_TOPOLOGY_H_
#define TESSERA_MESH_TOPOLOGY_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tessera/mesh/device_mesh.h"

namespace tessera {

// What a message between two ranks costs.
struct Link {
  int64_t latency_ps = 0;        // picoseconds a hop, at least 0
  int64_t bytes_per_second = 1;  // a rank's, one direction, at least 1

  friend bool operator==(const Link&, const Link&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Link& link) {
    return H::combine(std::move(h), link.latency_ps, link.bytes_per_second);
  }
};

// The prices that a planner works with: the links between ranks, the time to
// launch a communication step, the local memory's bandwidth.
//
// Any two ranks have the default link, unless they are in one domain: ranks
// [k * ranks, (k + 1) * ranks) for some k, such as the GPUs of one host. There
// may be domains of several sizes. An axis of a mesh has one link, see LinkOf.
//
//   TESSERA_ASSIGN_OR_RETURN(Topology h100, Topology::Preset("h100-ib"));
//   TESSERA_ASSIGN_OR_RETURN(DeviceMesh mesh, DeviceMesh::Parse("dp=4,tp=8"));
//   h100.LinkOf(mesh, 1)  // tp, within hosts of 8 GPUs: NVLink
//   h100.LinkOf(mesh, 0)  // dp, between hosts: InfiniBand
//
// Immutable value; thread-safe.
class Topology {
 public:
  // The presets, by name:
  //
  //   local-cpu      threads of one process that share memory
  //   a100-hdr       hosts of 8 A100 GPUs with NVLink 3; HDR InfiniBand
  //   h100-ib        hosts of 8 H100 GPUs with NVLink 4; NDR InfiniBand
  //   gb200-nvl72    racks of 72 GB200 GPUs with NVLink 5; NDR InfiniBand
  //   ethernet-100g  hosts of one rank, joined by 100 Gb/s Ethernet
  //   unit           see Unit
  //
  // Bandwidths are a rank's peak in one direction, by the vendors' data sheets:
  // the sources stand beside the figures in topology_presets.cc. Measured
  // figures can be given through FromJson.
  // ERRORS: InvalidArgument for another name, listing these.
  static absl::StatusOr<Topology> Preset(absl::string_view name);
  static absl::Span<const absl::string_view> PresetNames();

  // One picosecond for each byte on a link, a thousandth of that for a byte of
  // local work, nothing else: costs count bytes. Frozen: plans made with it
  // stay as they are.
  static Topology Unit();

  static Topology LocalCpu();

  // All links alike.
  // ERRORS: InvalidArgument for a name that is empty or not of letters, digits,
  // '-', '_' and '.', for a negative time or a bandwidth below 1.
  static absl::StatusOr<Topology> Create(absl::string_view name, Link link,
                                         int64_t launch_ps,
                                         int64_t memory_bytes_per_second);

  // This topology with another link within the domains of so many ranks.
  // ERRORS: InvalidArgument for less than one rank, and as for Create.
  absl::StatusOr<Topology> WithDomain(int ranks, Link link) const;

  // This topology with another link along the axis of this name, wherever its
  // ranks are.
  // ERRORS: InvalidArgument for what no axis can be called, and as for Create.
  absl::StatusOr<Topology> WithLink(absl::string_view axis_name,
                                    Link link) const;

  // This topology with another link between the ranks of two meshes. Otherwise
  // it is the default link.
  // ERRORS: InvalidArgument as for Create.
  absl::StatusOr<Topology> WithInterMeshLink(Link link) const;

  const std::string& name() const { return name_; }
  const Link& inter_mesh_link() const { return inter_mesh_link_; }
  int64_t launch_ps() const { return launch_ps_; }
  int64_t memory_bytes_per_second() const { return memory_bytes_per_second_; }

  // The link along an axis of the mesh: the one given for its name; else that
  // of the smallest domains whose borders run through no group of ranks along
  // the axis; else the default. Borders of domains of D ranks are known to run
  // through none where, for some bound on strides that the axis keeps to,
  //
  //   offset mod c + reach < c
  //   c = gcd(D, strides of the axes beyond the bound)
  //   reach = sum of (size - 1) * stride of the axes within the bound
  //
  // and are taken to run through one elsewhere. The rule is exact for row-major
  // meshes from rank 0. Along an axis of size 1 there is no border.
  // REQUIRES: 0 <= axis < mesh.num_axes().
  Link LinkOf(const DeviceMesh& mesh, int axis) const;

  // The topology as JSON text, the same for equal ones:
  //
  //   {
  //     "version": 1,
  //     "name": "two-tiers",
  //     "launch_ps": 6600000,
  //     "memory_bytes_per_second": 3350000000000,
  //     "link": {"latency_ps": 2700000, "bytes_per_second": 50000000000},
  //     "inter_mesh_link": {"latency_ps": ..., "bytes_per_second": ...},
  //     "domains": [{"ranks": 8, "link": {...}}, ...],
  //     "axis_links": {"tp": {...}, ...}
  //   }
  std::string ToJson() const;

  // The inverse of ToJson. The last three keys may be missing; the domains are
  // in ascending order of their ranks.
  // ERRORS: InvalidArgument for what is not JSON, another version, a key that
  // is unknown, missing or repeated, a value of another type or out of range,
  // naming the key.
  static absl::StatusOr<Topology> FromJson(absl::string_view text);

  friend bool operator==(const Topology&, const Topology&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Topology& t) {
    return H::combine(std::move(h), t.name_, t.link_, t.inter_mesh_link_,
                      t.domains_, t.axis_links_, t.launch_ps_,
                      t.memory_bytes_per_second_);
  }

 private:
  Topology() = default;

  std::string name_;
  Link link_;
  Link inter_mesh_link_;
  std::vector<std::pair<int, Link>> domains_;             // sorted by ranks
  std::vector<std::pair<std::string, Link>> axis_links_;  // sorted by name
  int64_t launch_ps_ = 0;
  int64_t memory_bytes_per_second_ = 1;
};

}  // namespace tessera

#endif  // TESSERA_MESH_TOPOLOGY_H_

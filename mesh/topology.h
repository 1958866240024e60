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

// What the links along one mesh axis cost.
struct Link {
  int64_t latency_ps = 0;        // picoseconds a hop, at least 0
  int64_t bytes_per_second = 1;  // a rank's, one direction, at least 1

  friend bool operator==(const Link&, const Link&) = default;
};

// The prices that a planner works with: a link per mesh axis, the time to
// launch a communication step, the local memory's bandwidth. Axes without a
// link of their own have the default one. Immutable value; thread-safe.
class Topology {
 public:
  // One picosecond for each byte on a link, a thousandth of that for a byte of
  // local work, nothing else: costs count bytes. Frozen: plans made with it
  // stay as they are.
  static Topology Unit();

  // Threads of one process sharing memory: every axis alike.
  static Topology LocalCpu();

  // ERRORS: InvalidArgument for a negative time or a bandwidth below 1.
  static absl::StatusOr<Topology> Create(absl::string_view name, Link link,
                                         int64_t launch_ps,
                                         int64_t memory_bytes_per_second);

  // This topology with another link along the axis of this name.
  // ERRORS: InvalidArgument as for Create.
  absl::StatusOr<Topology> WithLink(absl::string_view axis_name,
                                    Link link) const;

  const std::string& name() const { return name_; }
  const Link& link(absl::string_view axis_name) const;
  int64_t launch_ps() const { return launch_ps_; }
  int64_t memory_bytes_per_second() const { return memory_bytes_per_second_; }

  friend bool operator==(const Topology&, const Topology&) = default;

 private:
  Topology() = default;

  std::string name_;
  Link default_link_;
  std::vector<std::pair<std::string, Link>> links_;  // sorted by name
  int64_t launch_ps_ = 0;
  int64_t memory_bytes_per_second_ = 1;
};

}  // namespace tessera

#endif  // TESSERA_MESH_TOPOLOGY_H_

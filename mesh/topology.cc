#include "tessera/mesh/topology.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tessera/base/status_macros.h"

namespace tessera {
namespace {

absl::Status CheckTime(absl::string_view what, int64_t picoseconds) {
  if (picoseconds >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "topology: want a ", what, " of at least 0 ps, found ", picoseconds));
}

absl::Status CheckBandwidth(absl::string_view what, int64_t bytes_per_second) {
  if (bytes_per_second >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "topology: want a ", what,
      " bandwidth of at least 1 byte a second, found ", bytes_per_second));
}

absl::Status CheckLink(const Link& link) {
  TESSERA_RETURN_IF_ERROR(CheckTime("link latency", link.latency_ps));
  return CheckBandwidth("link", link.bytes_per_second);
}

bool IsBefore(const std::pair<std::string, Link>& entry,
              absl::string_view axis_name) {
  return entry.first < axis_name;
}

}  // namespace

Topology Topology::Unit() {
  Topology unit;
  unit.name_ = "unit";
  unit.default_link_ = {.latency_ps = 0, .bytes_per_second = 1'000'000'000'000};
  unit.memory_bytes_per_second_ = 1'000'000'000'000'000;
  return unit;
}

Topology Topology::LocalCpu() {
  // The order of magnitude of a small server. Measured figures can be given
  // through Create and WithLink.
  Topology local;
  local.name_ = "local-cpu";
  local.default_link_ = {.latency_ps = 2'000'000,
                         .bytes_per_second = 8'000'000'000};
  local.launch_ps_ = 1'000'000;
  local.memory_bytes_per_second_ = 10'000'000'000;
  return local;
}

absl::StatusOr<Topology> Topology::Create(absl::string_view name, Link link,
                                          int64_t launch_ps,
                                          int64_t memory_bytes_per_second) {
  TESSERA_RETURN_IF_ERROR(CheckLink(link));
  TESSERA_RETURN_IF_ERROR(CheckTime("launch time", launch_ps));
  TESSERA_RETURN_IF_ERROR(CheckBandwidth("memory", memory_bytes_per_second));
  Topology topology;
  topology.name_ = std::string(name);
  topology.default_link_ = link;
  topology.launch_ps_ = launch_ps;
  topology.memory_bytes_per_second_ = memory_bytes_per_second;
  return topology;
}

absl::StatusOr<Topology> Topology::WithLink(absl::string_view axis_name,
                                            Link link) const {
  TESSERA_RETURN_IF_ERROR(CheckLink(link));
  Topology result = *this;
  auto& links = result.links_;
  auto at = std::lower_bound(links.begin(), links.end(), axis_name, IsBefore);
  if (at != links.end() && at->first == axis_name) {
    at->second = link;
  } else {
    links.emplace(at, std::string(axis_name), link);
  }
  return result;
}

const Link& Topology::link(absl::string_view axis_name) const {
  const auto at =
      std::lower_bound(links_.begin(), links_.end(), axis_name, IsBefore);
  return at != links_.end() && at->first == axis_name ? at->second
                                                      : default_link_;
}

}  // namespace tessera

#include "tessera/mesh/topology.h"

#include <algorithm>
#include <numeric>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "tessera/base/scanner.h"
#include "tessera/base/status_macros.h"

namespace tessera {
namespace {

absl::Status CheckName(absl::string_view name) {
  const auto is_allowed = [](char c) {
    return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.';
  };
  if (!name.empty() && absl::c_all_of(name, is_allowed)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("topology: want a name of letters, digits, '-', '_' and "
                   "'.', found '",
                   name, "'"));
}

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

// Of entries sorted by key, the first that does not lie before `key`.
template <typename Entries, typename Key>
auto LowerBound(Entries& entries, const Key& key) {
  return std::lower_bound(
      entries.begin(), entries.end(), key,
      [](const auto& entry, const Key& k) { return entry.first < k; });
}

template <typename StoredKey, typename Key>
void Set(std::vector<std::pair<StoredKey, Link>>& entries, const Key& key,
         const Link& link) {
  const auto at = LowerBound(entries, key);
  if (at != entries.end() && at->first == key) {
    at->second = link;
  } else {
    entries.emplace(at, key, link);
  }
}

// Whether by the rule of LinkOf every group of ranks along the axis keeps to
// one domain of so many ranks.
bool KeepsToDomains(const DeviceMesh& mesh, int axis, int domain_ranks) {
  if (mesh.axis(axis).size == 1) return true;
  for (const MeshAxis& bound : mesh.axes()) {
    if (bound.stride < mesh.axis(axis).stride) continue;
    // The axes beyond the bound step over whole cells, of which domains are
    // made. Those within it do not leave the cell that they begin in.
    int cell = domain_ranks;
    int64_t reach = 0;
    for (const MeshAxis& other : mesh.axes()) {
      if (other.stride > bound.stride) {
        cell = std::gcd(cell, other.stride);
      } else {
        reach += int64_t{other.size - 1} * other.stride;
      }
    }
    if (mesh.offset() % cell + reach < cell) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<Topology> Topology::Create(absl::string_view name, Link link,
                                          int64_t launch_ps,
                                          int64_t memory_bytes_per_second) {
  TESSERA_RETURN_IF_ERROR(CheckName(name));
  TESSERA_RETURN_IF_ERROR(CheckLink(link));
  TESSERA_RETURN_IF_ERROR(CheckTime("launch time", launch_ps));
  TESSERA_RETURN_IF_ERROR(CheckBandwidth("memory", memory_bytes_per_second));
  Topology topology;
  topology.name_ = std::string(name);
  topology.link_ = link;
  topology.inter_mesh_link_ = link;
  topology.launch_ps_ = launch_ps;
  topology.memory_bytes_per_second_ = memory_bytes_per_second;
  return topology;
}

absl::StatusOr<Topology> Topology::WithDomain(int ranks, Link link) const {
  if (ranks < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "topology: want a domain of at least 1 rank, found ", ranks));
  }
  TESSERA_RETURN_IF_ERROR(CheckLink(link));
  Topology result = *this;
  Set(result.domains_, ranks, link);
  return result;
}

absl::StatusOr<Topology> Topology::WithLink(absl::string_view axis_name,
                                            Link link) const {
  if (!internal::IsName(axis_name)) {
    return absl::InvalidArgumentError(
        absl::StrCat("topology: want an axis name of letters, digits and '_' "
                     "that begins with no digit, found '",
                     axis_name, "'"));
  }
  TESSERA_RETURN_IF_ERROR(CheckLink(link));
  Topology result = *this;
  Set(result.axis_links_, axis_name, link);
  return result;
}

absl::StatusOr<Topology> Topology::WithInterMeshLink(Link link) const {
  TESSERA_RETURN_IF_ERROR(CheckLink(link));
  Topology result = *this;
  result.inter_mesh_link_ = link;
  return result;
}

Link Topology::LinkOf(const DeviceMesh& mesh, int axis) const {
  const absl::string_view name = mesh.axis(axis).name;
  const auto by_name = LowerBound(axis_links_, name);
  if (by_name != axis_links_.end() && by_name->first == name) {
    return by_name->second;
  }
  for (const auto& [ranks, link] : domains_) {
    if (KeepsToDomains(mesh, axis, ranks)) return link;
  }
  return link_;
}

}  // namespace tessera

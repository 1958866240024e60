#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tessera/base/json_reader.h"
#include "tessera/base/status_macros.h"
#include "tessera/mesh/topology.h"

namespace tessera {
namespace {

using internal::JsonReader;
using OrderedJson = nlohmann::ordered_json;

constexpr int64_t kVersion = 1;

absl::StatusOr<int64_t> ReadInteger(
    const JsonReader& object, absl::string_view key, int64_t min,
    int64_t max = std::numeric_limits<int64_t>::max()) {
  TESSERA_ASSIGN_OR_RETURN(const JsonReader member, object.Member(key));
  return member.Integer(min, max);
}

absl::StatusOr<Link> ReadLink(const JsonReader& value) {
  TESSERA_RETURN_IF_ERROR(value.CheckKeys({"latency_ps", "bytes_per_second"}));
  Link link;
  TESSERA_ASSIGN_OR_RETURN(link.latency_ps,
                           ReadInteger(value, "latency_ps", 0));
  TESSERA_ASSIGN_OR_RETURN(link.bytes_per_second,
                           ReadInteger(value, "bytes_per_second", 1));
  return link;
}

absl::StatusOr<Link> ReadLink(const JsonReader& object, absl::string_view key) {
  TESSERA_ASSIGN_OR_RETURN(const JsonReader member, object.Member(key));
  return ReadLink(member);
}

absl::StatusOr<Topology> AddDomains(Topology topology, const JsonReader& list) {
  TESSERA_ASSIGN_OR_RETURN(const size_t length, list.Length());
  int64_t previous = 0;
  for (size_t i = 0; i < length; ++i) {
    const JsonReader domain = list.Element(i);
    TESSERA_RETURN_IF_ERROR(domain.CheckKeys({"ranks", "link"}));
    TESSERA_ASSIGN_OR_RETURN(const int64_t ranks,
                             ReadInteger(domain, "ranks", previous + 1,
                                         std::numeric_limits<int>::max()));
    TESSERA_ASSIGN_OR_RETURN(const Link link, ReadLink(domain, "link"));
    TESSERA_ASSIGN_OR_RETURN(
        topology, topology.WithDomain(static_cast<int>(ranks), link));
    previous = ranks;
  }
  return topology;
}

absl::StatusOr<Topology> AddAxisLinks(Topology topology,
                                      const JsonReader& object) {
  TESSERA_ASSIGN_OR_RETURN(const auto members, object.Members());
  for (const auto& [axis_name, value] : members) {
    TESSERA_ASSIGN_OR_RETURN(const Link link, ReadLink(value));
    TESSERA_ASSIGN_OR_RETURN(topology, topology.WithLink(axis_name, link));
  }
  return topology;
}

absl::StatusOr<Topology> ReadTopology(const JsonReader& root) {
  // First, since other versions may have other keys.
  TESSERA_RETURN_IF_ERROR(
      ReadInteger(root, "version", kVersion, kVersion).status());
  TESSERA_RETURN_IF_ERROR(root.CheckKeys(
      {"version", "name", "launch_ps", "memory_bytes_per_second", "link"},
      {"inter_mesh_link", "domains", "axis_links"}));
  TESSERA_ASSIGN_OR_RETURN(const JsonReader name_member, root.Member("name"));
  TESSERA_ASSIGN_OR_RETURN(const std::string name, name_member.Text());
  TESSERA_ASSIGN_OR_RETURN(const int64_t launch_ps,
                           ReadInteger(root, "launch_ps", 0));
  TESSERA_ASSIGN_OR_RETURN(const int64_t memory_bytes_per_second,
                           ReadInteger(root, "memory_bytes_per_second", 1));
  TESSERA_ASSIGN_OR_RETURN(const Link link, ReadLink(root, "link"));
  TESSERA_ASSIGN_OR_RETURN(
      Topology topology,
      Topology::Create(name, link, launch_ps, memory_bytes_per_second));
  if (root.Has("inter_mesh_link")) {
    TESSERA_ASSIGN_OR_RETURN(const Link inter_mesh,
                             ReadLink(root, "inter_mesh_link"));
    TESSERA_ASSIGN_OR_RETURN(topology, topology.WithInterMeshLink(inter_mesh));
  }
  if (root.Has("domains")) {
    TESSERA_ASSIGN_OR_RETURN(const JsonReader domains, root.Member("domains"));
    TESSERA_ASSIGN_OR_RETURN(topology,
                             AddDomains(std::move(topology), domains));
  }
  if (root.Has("axis_links")) {
    TESSERA_ASSIGN_OR_RETURN(const JsonReader links, root.Member("axis_links"));
    TESSERA_ASSIGN_OR_RETURN(topology,
                             AddAxisLinks(std::move(topology), links));
  }
  return topology;
}

OrderedJson LinkToJson(const Link& link) {
  return {{"latency_ps", link.latency_ps},
          {"bytes_per_second", link.bytes_per_second}};
}

}  // namespace

std::string Topology::ToJson() const {
  OrderedJson domains = OrderedJson::array();
  for (const auto& [ranks, link] : domains_) {
    domains.push_back({{"ranks", ranks}, {"link", LinkToJson(link)}});
  }
  OrderedJson axis_links = OrderedJson::object();
  for (const auto& [axis_name, link] : axis_links_) {
    axis_links[axis_name] = LinkToJson(link);
  }
  const OrderedJson document = {
      {"version", kVersion},
      {"name", name_},
      {"launch_ps", launch_ps_},
      {"memory_bytes_per_second", memory_bytes_per_second_},
      {"link", LinkToJson(link_)},
      {"inter_mesh_link", LinkToJson(inter_mesh_link_)},
      {"domains", std::move(domains)},
      {"axis_links", std::move(axis_links)},
  };
  return document.dump(2);
}

absl::StatusOr<Topology> Topology::FromJson(absl::string_view text) {
  TESSERA_ASSIGN_OR_RETURN(const internal::Json document,
                           internal::ParseJson("topology", text));
  return ReadTopology(JsonReader("topology", document));
}

}  // namespace tessera

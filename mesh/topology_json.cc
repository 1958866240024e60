#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "nlohmann/json.hpp"
#include "tessera/base/status_macros.h"
#include "tessera/mesh/topology.h"

namespace tessera {
namespace {

using Json = nlohmann::json;
// Keeps keys in the order given. Not for reading: the parser copies values
// recursively then, so that deep ones overflow the stack.
using OrderedJson = nlohmann::ordered_json;

constexpr int64_t kVersion = 1;
constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();
constexpr int64_t kMaxInt = std::numeric_limits<int>::max();

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("topology: ", parts...));
}

// Texts that users gave, cut so that messages stay readable.
std::string Excerpt(absl::string_view text) {
  constexpr size_t kMaxLength = 120;
  if (text.size() <= kMaxLength) return std::string(text);
  return absl::StrCat(text.substr(0, kMaxLength), "...");
}

std::string Describe(const Json& value) {
  // Deep values are not printed: that would recurse.
  if (value.is_structured()) return absl::StrCat("an ", value.type_name());
  return Excerpt(value.dump());
}

// A JSON value and where it stands in the document, as "domains[0].link".
struct Node {
  const Json& value;
  std::string path;

  Node At(absl::string_view key) const {
    return {value[std::string(key)],
            path.empty() ? std::string(key) : absl::StrCat(path, ".", key)};
  }
  Node At(size_t index) const {
    return {value[index], absl::StrCat(path, "[", index, "]")};
  }
  // For messages.
  std::string Where() const {
    return path.empty() ? "the document" : absl::StrCat("'", path, "'");
  }
};

absl::Status CheckIsObject(const Node& node) {
  if (node.value.is_object()) return absl::OkStatus();
  return Invalid("want an object for ", node.Where(), ", found ",
                 Describe(node.value));
}

// Checks that the node is an object which has the required keys and no others
// than these and the optional ones.
absl::Status CheckKeys(const Node& node,
                       absl::Span<const absl::string_view> required,
                       absl::Span<const absl::string_view> optional = {}) {
  TESSERA_RETURN_IF_ERROR(CheckIsObject(node));
  for (const auto& [key, value] : node.value.items()) {
    if (!absl::c_linear_search(required, key) &&
        !absl::c_linear_search(optional, key)) {
      return Invalid("unknown key '", Excerpt(key), "' in ", node.Where());
    }
  }
  for (absl::string_view key : required) {
    if (!node.value.contains(std::string(key))) {
      return Invalid("want a key '", key, "' in ", node.Where(),
                     ", found none");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> ReadInt(const Node& node, int64_t min,
                                int64_t max = kMaxInt64) {
  // Signed where negative, so that these conversions keep the value.
  const bool fits = node.value.is_number_unsigned()
                        ? node.value.get<uint64_t>() <= kMaxInt64
                        : node.value.is_number_integer();
  if (fits) {
    const auto value = node.value.get<int64_t>();
    if (value >= min && value <= max) return value;
  }
  return Invalid("want an integer from ", min, " to ", max, " for ",
                 node.Where(), ", found ", Describe(node.value));
}

absl::StatusOr<std::string> ReadString(const Node& node) {
  if (node.value.is_string()) return node.value.get<std::string>();
  return Invalid("want a string for ", node.Where(), ", found ",
                 Describe(node.value));
}

absl::StatusOr<Link> ReadLink(const Node& node) {
  TESSERA_RETURN_IF_ERROR(CheckKeys(node, {"latency_ps", "bytes_per_second"}));
  Link link;
  TESSERA_ASSIGN_OR_RETURN(link.latency_ps, ReadInt(node.At("latency_ps"), 0));
  TESSERA_ASSIGN_OR_RETURN(link.bytes_per_second,
                           ReadInt(node.At("bytes_per_second"), 1));
  return link;
}

absl::StatusOr<Topology> AddDomains(Topology topology, const Node& node) {
  if (!node.value.is_array()) {
    return Invalid("want an array for ", node.Where(), ", found ",
                   Describe(node.value));
  }
  int64_t previous = 0;
  for (size_t i = 0; i < node.value.size(); ++i) {
    const Node domain = node.At(i);
    TESSERA_RETURN_IF_ERROR(CheckKeys(domain, {"ranks", "link"}));
    TESSERA_ASSIGN_OR_RETURN(
        const int64_t ranks,
        ReadInt(domain.At("ranks"), previous + 1, kMaxInt));
    TESSERA_ASSIGN_OR_RETURN(const Link link, ReadLink(domain.At("link")));
    TESSERA_ASSIGN_OR_RETURN(
        topology, topology.WithDomain(static_cast<int>(ranks), link));
    previous = ranks;
  }
  return topology;
}

absl::StatusOr<Topology> AddAxisLinks(Topology topology, const Node& node) {
  TESSERA_RETURN_IF_ERROR(CheckIsObject(node));
  for (const auto& [axis_name, value] : node.value.items()) {
    TESSERA_ASSIGN_OR_RETURN(
        const Link link,
        ReadLink({value, absl::StrCat(node.path, ".", Excerpt(axis_name))}));
    TESSERA_ASSIGN_OR_RETURN(topology, topology.WithLink(axis_name, link));
  }
  return topology;
}

absl::StatusOr<Topology> ReadTopology(const Node& root) {
  TESSERA_RETURN_IF_ERROR(CheckIsObject(root));
  // First, since other versions may have other keys.
  if (root.value.contains("version")) {
    TESSERA_RETURN_IF_ERROR(
        ReadInt(root.At("version"), kVersion, kVersion).status());
  }
  TESSERA_RETURN_IF_ERROR(CheckKeys(
      root, {"version", "name", "launch_ps", "memory_bytes_per_second", "link"},
      {"inter_mesh_link", "domains", "axis_links"}));
  TESSERA_ASSIGN_OR_RETURN(const std::string name, ReadString(root.At("name")));
  TESSERA_ASSIGN_OR_RETURN(const int64_t launch_ps,
                           ReadInt(root.At("launch_ps"), 0));
  TESSERA_ASSIGN_OR_RETURN(const int64_t memory_bytes_per_second,
                           ReadInt(root.At("memory_bytes_per_second"), 1));
  TESSERA_ASSIGN_OR_RETURN(const Link link, ReadLink(root.At("link")));
  TESSERA_ASSIGN_OR_RETURN(
      Topology topology,
      Topology::Create(name, link, launch_ps, memory_bytes_per_second));
  if (root.value.contains("inter_mesh_link")) {
    TESSERA_ASSIGN_OR_RETURN(const Link inter_mesh,
                             ReadLink(root.At("inter_mesh_link")));
    TESSERA_ASSIGN_OR_RETURN(topology, topology.WithInterMeshLink(inter_mesh));
  }
  if (root.value.contains("domains")) {
    TESSERA_ASSIGN_OR_RETURN(
        topology, AddDomains(std::move(topology), root.At("domains")));
  }
  if (root.value.contains("axis_links")) {
    TESSERA_ASSIGN_OR_RETURN(
        topology, AddAxisLinks(std::move(topology), root.At("axis_links")));
  }
  return topology;
}

// The text as a JSON value. Of a key that repeats in its object the parser
// would keep one of the values.
absl::StatusOr<Json> Parse(absl::string_view text) {
  std::vector<std::set<std::string>> open_objects;
  absl::Status repeats;
  const auto watch_keys = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) {
      open_objects.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      open_objects.pop_back();
    } else if (event == Json::parse_event_t::key) {
      auto key = parsed.get<std::string>();
      if (!open_objects.back().insert(key).second) {
        repeats.Update(Invalid("key '", Excerpt(key), "' repeats"));
      }
    }
    return true;
  };
  try {
    Json value = Json::parse(text.begin(), text.end(), watch_keys);
    TESSERA_RETURN_IF_ERROR(repeats);
    return value;
  } catch (const Json::exception& error) {
    return Invalid("want JSON, found ", Excerpt(error.what()));
  }
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
  TESSERA_ASSIGN_OR_RETURN(const Json document, Parse(text));
  return ReadTopology({document, ""});
}

}  // namespace tessera

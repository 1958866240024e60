#include "tessera/testing/golden_plans.h"

#include <cstddef>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "tessera/base/file.h"
#include "tessera/base/json_reader.h"
#include "tessera/base/status_macros.h"
#include "tessera/redistribute/planner.h"
#include "tessera/testing/plan_checks.h"

namespace tessera::testing {
namespace {

using ::tessera::internal::Json;
using ::tessera::internal::JsonReader;
using OrderedJson = nlohmann::ordered_json;

constexpr int64_t kVersion = 1;
// Of what is not UTF-8.
constexpr auto kReplace = OrderedJson::error_handler_t::replace;

// The limits by key, what they limit, and how messages call that.
struct Limit {
  const char* key;
  std::optional<int64_t> GoldenLimits::*most;
  int64_t (Plan::*figure)() const;
  const char* unit;
};
constexpr Limit kLimits[] = {
    {"bytes_received", &GoldenLimits::bytes_received, &Plan::bytes_received,
     "bytes received"},
    {"launches", &GoldenLimits::launches, &Plan::launches, "launches"},
    {"peak_bytes", &GoldenLimits::peak_bytes, &Plan::peak_bytes,
     "bytes at the peak"},
};

// Nullopt where there is no such key.
absl::StatusOr<std::optional<std::string>> OptionalText(
    const JsonReader& object, absl::string_view key) {
  if (!object.Has(key)) return std::optional<std::string>();
  TESSERA_ASSIGN_OR_RETURN(const JsonReader member, object.Member(key));
  return member.Text();
}

absl::StatusOr<std::optional<int64_t>> OptionalFigure(const JsonReader& object,
                                                      absl::string_view key) {
  if (!object.Has(key)) return std::optional<int64_t>();
  TESSERA_ASSIGN_OR_RETURN(const JsonReader member, object.Member(key));
  return member.Integer(0);
}

absl::StatusOr<TensorMeta> ReadMeta(const JsonReader& value) {
  TESSERA_ASSIGN_OR_RETURN(const JsonReader name, value.Member("dtype"));
  TESSERA_ASSIGN_OR_RETURN(
      const DType dtype,
      name.Parsed([](const std::string& text) { return ParseDType(text); }));
  TESSERA_ASSIGN_OR_RETURN(const JsonReader shape, value.Member("shape"));
  TESSERA_ASSIGN_OR_RETURN(const size_t num_dims, shape.Length());
  Dims extents;
  for (size_t dim = 0; dim < num_dims; ++dim) {
    TESSERA_ASSIGN_OR_RETURN(const int64_t extent,
                             shape.Element(dim).Integer(0));
    extents.push_back(extent);
  }
  absl::StatusOr<TensorMeta> meta = TensorMeta::Create(dtype, extents);
  if (!meta.ok()) return shape.Error(meta.status());
  return meta;
}

absl::StatusOr<DeviceMesh> ReadMesh(const JsonReader& value,
                                    absl::string_view key) {
  TESSERA_ASSIGN_OR_RETURN(const JsonReader mesh, value.Member(key));
  return mesh.Parsed(
      [](const std::string& text) { return DeviceMesh::Parse(text); });
}

absl::StatusOr<Layout> ReadLayout(const JsonReader& value,
                                  absl::string_view key, const TensorMeta& meta,
                                  const DeviceMesh& mesh) {
  TESSERA_ASSIGN_OR_RETURN(const JsonReader placements, value.Member(key));
  TESSERA_ASSIGN_OR_RETURN(
      const Layout replicated,
      Layout::Create(meta, mesh, Placements(mesh.num_axes())));
  return placements.Parsed(
      [&](const std::string& text) { return replicated.With(text); });
}

absl::StatusOr<GoldenLimits> ReadLimits(const JsonReader& value) {
  TESSERA_RETURN_IF_ERROR(
      value.CheckKeys({}, {"bytes_received", "launches", "peak_bytes"}));
  GoldenLimits limits;
  for (const Limit& limit : kLimits) {
    TESSERA_ASSIGN_OR_RETURN(limits.*limit.most,
                             OptionalFigure(value, limit.key));
  }
  return limits;
}

absl::StatusOr<GoldenPlan> ReadPlan(const JsonReader& value) {
  TESSERA_RETURN_IF_ERROR(value.CheckKeys(
      {"mesh", "dtype", "shape", "from", "to"},
      {"name", "to_mesh", "max_workspace_bytes", "plan", "limits"}));
  GoldenPlan golden;
  TESSERA_ASSIGN_OR_RETURN(const auto name, OptionalText(value, "name"));
  golden.name = name.value_or("");
  TESSERA_ASSIGN_OR_RETURN(const TensorMeta meta, ReadMeta(value));
  TESSERA_ASSIGN_OR_RETURN(const DeviceMesh mesh, ReadMesh(value, "mesh"));
  TESSERA_ASSIGN_OR_RETURN(golden.from, ReadLayout(value, "from", meta, mesh));
  DeviceMesh to_mesh = mesh;
  if (value.Has("to_mesh")) {
    TESSERA_ASSIGN_OR_RETURN(to_mesh, ReadMesh(value, "to_mesh"));
  }
  TESSERA_ASSIGN_OR_RETURN(golden.to, ReadLayout(value, "to", meta, to_mesh));
  TESSERA_ASSIGN_OR_RETURN(golden.max_workspace_bytes,
                           OptionalFigure(value, "max_workspace_bytes"));
  TESSERA_ASSIGN_OR_RETURN(golden.plan, OptionalText(value, "plan"));
  if (value.Has("limits")) {
    TESSERA_ASSIGN_OR_RETURN(const JsonReader limits, value.Member("limits"));
    TESSERA_ASSIGN_OR_RETURN(golden.limits, ReadLimits(limits));
  }
  return golden;
}

bool AskTheSame(const GoldenPlan& a, const GoldenPlan& b) {
  return a.from == b.from && a.to == b.to &&
         a.max_workspace_bytes == b.max_workspace_bytes;
}

OrderedJson PlanToJson(const GoldenPlan& golden) {
  OrderedJson json = OrderedJson::object();
  if (!golden.name.empty()) json["name"] = golden.name;
  json["mesh"] = golden.from.mesh().ToString();
  json["dtype"] = std::string(DTypeName(golden.from.dtype()));
  json["shape"] = OrderedJson::array();
  for (int64_t extent : golden.from.shape().extents()) {
    json["shape"].push_back(extent);
  }
  json["from"] = golden.from.PlacementsToString();
  if (golden.to.mesh() != golden.from.mesh()) {
    json["to_mesh"] = golden.to.mesh().ToString();
  }
  json["to"] = golden.to.PlacementsToString();
  if (golden.max_workspace_bytes.has_value()) {
    json["max_workspace_bytes"] = *golden.max_workspace_bytes;
  }
  if (golden.plan.has_value()) json["plan"] = *golden.plan;
  for (const Limit& limit : kLimits) {
    const std::optional<int64_t>& most = golden.limits.*limit.most;
    if (most.has_value()) json["limits"][limit.key] = *most;
  }
  return json;
}

}  // namespace

std::string GoldenPlan::ToString() const {
  std::string text =
      absl::StrCat(name, name.empty() ? "" : ": ", from.ToString(), " to ",
                   to.PlacementsToString(), " on '", from.mesh().ToString());
  if (to.mesh() != from.mesh()) {
    absl::StrAppend(&text, "' and '", to.mesh().ToString());
  }
  absl::StrAppend(&text, "'");
  if (max_workspace_bytes.has_value()) {
    absl::StrAppend(&text, " in ", *max_workspace_bytes, " bytes");
  }
  return text;
}

absl::StatusOr<std::vector<GoldenPlan>> GoldenPlansFromJson(
    absl::string_view json) {
  TESSERA_ASSIGN_OR_RETURN(const Json parsed,
                           ::tessera::internal::ParseJson("golden", json));
  const JsonReader document("golden", parsed);
  // First, since other versions may have other keys.
  TESSERA_ASSIGN_OR_RETURN(const JsonReader version,
                           document.Member("version"));
  TESSERA_RETURN_IF_ERROR(version.Integer(kVersion, kVersion).status());
  TESSERA_RETURN_IF_ERROR(document.CheckKeys({"version", "plans"}));
  TESSERA_ASSIGN_OR_RETURN(const JsonReader list, document.Member("plans"));
  TESSERA_ASSIGN_OR_RETURN(const size_t length, list.Length());
  std::vector<GoldenPlan> plans;
  for (size_t i = 0; i < length; ++i) {
    TESSERA_ASSIGN_OR_RETURN(GoldenPlan golden, ReadPlan(list.Element(i)));
    for (size_t other = 0; other < i; ++other) {
      if (!AskTheSame(golden, plans[other])) continue;
      return list.Element(i).Error(absl::StrCat(
          "other layouts or another workspace than in plans[", other, "]"));
    }
    plans.push_back(std::move(golden));
  }
  return plans;
}

std::string GoldenPlansToJson(absl::Span<const GoldenPlan> plans) {
  std::string text =
      absl::StrCat("{\n  \"version\": ", kVersion, ",\n  \"plans\": [");
  const char* between_plans = "\n";
  for (const GoldenPlan& golden : plans) {
    absl::StrAppend(&text, between_plans, "    {");
    between_plans = ",\n";
    const char* between_keys = "\n";
    const OrderedJson json = PlanToJson(golden);
    for (const auto& [key, value] : json.items()) {
      absl::StrAppend(&text, between_keys, "      \"", key,
                      "\": ", value.dump(-1, ' ', false, kReplace));
      between_keys = ",\n";
    }
    absl::StrAppend(&text, "\n    }");
  }
  absl::StrAppend(&text, plans.empty() ? "" : "\n  ", "]\n}\n");
  return text;
}

absl::StatusOr<std::vector<GoldenPlan>> ReadGoldenPlans(
    const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const std::string text,
                           ::tessera::internal::ReadFile(path));
  absl::StatusOr<std::vector<GoldenPlan>> plans = GoldenPlansFromJson(text);
  if (plans.ok()) return plans;
  return absl::Status(plans.status().code(),
                      absl::StrCat(path, ": ", plans.status().message()));
}

absl::StatusOr<Plan> MakeGoldenPlan(const GoldenPlan& golden,
                                    const Topology& topology) {
  return MakePlan(golden.from, golden.to, topology,
                  {.max_workspace_bytes = golden.max_workspace_bytes});
}

std::string DiffGoldenPlan(const GoldenPlan& golden, const Plan& plan) {
  const std::string line = plan.ToString();
  std::string diff;
  if (golden.plan.has_value() && *golden.plan != line) {
    absl::StrAppend(&diff, "- ", *golden.plan, "\n");
  }
  const bool expects_nothing =
      !golden.plan.has_value() && golden.limits.empty();
  if (!diff.empty() || expects_nothing) {
    absl::StrAppend(&diff, "+ ", line, "\n");
  }
  for (const Limit& limit : kLimits) {
    const std::optional<int64_t>& most = golden.limits.*limit.most;
    const int64_t found = (plan.*limit.figure)();
    if (!most.has_value() || found <= *most) continue;
    absl::StrAppend(&diff, "- at most ", *most, " ", limit.unit, "\n+ ", found,
                    " ", limit.unit, "\n");
  }
  return diff;
}

absl::Status CheckMatchesGolden(const Plan& plan, const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<GoldenPlan> golden_plans,
                           ReadGoldenPlans(path));
  std::string diffs;
  for (const GoldenPlan& golden : golden_plans) {
    if (golden.from != plan.source() || golden.to != plan.target()) continue;
    const std::string diff = DiffGoldenPlan(golden, plan);
    if (diff.empty()) return absl::OkStatus();
    absl::StrAppend(&diffs, diff);
  }
  if (diffs.empty()) {
    return absl::NotFoundError(
        absl::StrCat(path, ": want a plan from ", plan.source().ToString(),
                     " to ", plan.target().PlacementsToString(), " on '",
                     plan.source().mesh().ToString(), "', found none"));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("testing: want what ", path, " has, found other than that\n",
                   diffs, "in\n", DescribePlan(plan)));
}

}  // namespace tessera::testing

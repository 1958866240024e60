#include "tessera/redistribute/plan_json.h"

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tessera/base/json_reader.h"
#include "tessera/base/status_macros.h"
#include "tessera/redistribute/bytes_sent.h"

namespace tessera {
namespace {

using internal::Json;
using internal::JsonReader;
using OrderedJson = nlohmann::ordered_json;  // keys as in the header

constexpr int kVersion = 1;

double Microseconds(int64_t time_ps) {
  return static_cast<double>(time_ps) / 1e6;
}

// Writes the layout, and in front of it its mesh where that is not `mesh`.
void AppendLayout(OrderedJson& object, const std::string& key,
                  const Layout& layout, const DeviceMesh& mesh) {
  if (layout.mesh() != mesh) object[key + "_mesh"] = layout.mesh().ToString();
  object[key] = layout.PlacementsToString();
}

OrderedJson StepToJson(const Step& step, int64_t workspace_bytes) {
  OrderedJson axes = OrderedJson::array();
  for (int axis : step.axes) axes.push_back(step.before.mesh().axis(axis).name);
  OrderedJson json = {{"kind", std::string(StepKindName(step.kind))},
                      {"axes", std::move(axes)},
                      {"before", step.before.PlacementsToString()}};
  AppendLayout(json, "after", step.after, step.before.mesh());
  json["bytes_sent"] = internal::BytesSent(step);
  json["bytes_received"] = step.bytes_received;
  json["messages"] = step.messages;
  json["workspace_bytes"] = workspace_bytes;
  json["time_us"] = Microseconds(step.time_ps);
  json["time_ps"] = step.time_ps;
  return json;
}

OrderedJson StepsToJson(const Plan& plan) {
  const std::vector<int64_t> workspace_bytes = plan.step_workspace_bytes();
  OrderedJson steps = OrderedJson::array();
  for (size_t i = 0; i < workspace_bytes.size(); ++i) {
    steps.push_back(StepToJson(plan.steps()[i], workspace_bytes[i]));
  }
  return steps;
}

OrderedJson DocumentOf(const Plan& plan) {
  OrderedJson json = {{"version", kVersion},
                      {"mesh", plan.source().mesh().ToString()},
                      {"tensor", plan.source().meta().ToString()},
                      {"source", plan.source().PlacementsToString()}};
  AppendLayout(json, "target", plan.target(), plan.source().mesh());
  json["steps"] = StepsToJson(plan);
  json["bytes_received"] = plan.bytes_received();
  json["launches"] = plan.launches();
  json["workspace_bytes"] = plan.workspace_bytes();
  json["peak_bytes"] = plan.peak_bytes();
  json["cost_us"] = Microseconds(plan.time_ps());
  json["fingerprint"] =
      absl::StrCat(absl::Hex(plan.fingerprint(), absl::kZeroPad16));
  return json;
}

// Names the first value that is not as in `expected`. Objects may lack keys.
// REQUIRES: lists are of the same lengths; objects are where `expected` has
// them.
absl::Status CheckSame(const JsonReader& value, const OrderedJson& expected) {
  if (expected.is_array()) {
    for (size_t i = 0; i < expected.size(); ++i) {
      TESSERA_RETURN_IF_ERROR(CheckSame(value.Element(i), expected[i]));
    }
    return absl::OkStatus();
  }
  if (!expected.is_object()) {
    if (value.json() == Json(expected)) return absl::OkStatus();
    return value.Error(expected.dump());
  }
  for (const auto& [key, wanted] : expected.items()) {
    if (!value.Has(key)) continue;
    TESSERA_ASSIGN_OR_RETURN(const JsonReader member, value.Member(key));
    TESSERA_RETURN_IF_ERROR(CheckSame(member, wanted));
  }
  for (const auto& [key, found] : value.json().items()) {
    if (!expected.contains(key)) return value.UnknownKey(key);
  }
  return absl::OkStatus();
}

absl::Status CheckVersion(const JsonReader& document) {
  TESSERA_ASSIGN_OR_RETURN(const JsonReader version,
                           document.Member("version"));
  return CheckSame(version, kVersion);
}

absl::StatusOr<int64_t> FigureOf(const JsonReader& object, const char* key) {
  TESSERA_ASSIGN_OR_RETURN(const JsonReader member, object.Member(key));
  return member.Integer(0);
}

// Calls parse(text), which gives a StatusOr, with the text at `key`.
template <typename Parse>
auto ParseMember(const JsonReader& object, const char* key, Parse parse)
    -> decltype(parse(std::string())) {
  TESSERA_ASSIGN_OR_RETURN(const JsonReader member, object.Member(key));
  return member.Parsed(parse);
}

// The tensor on the mesh at `key`, replicated.
absl::StatusOr<Layout> ReplicatedOn(const JsonReader& object, const char* key,
                                    const TensorMeta& meta) {
  TESSERA_ASSIGN_OR_RETURN(
      const DeviceMesh mesh,
      ParseMember(object, key, [](const std::string& text) {
        return DeviceMesh::Parse(text);
      }));
  return Layout::Create(meta, mesh, Placements(mesh.num_axes()));
}

absl::StatusOr<Layout> ReadSource(const JsonReader& document) {
  TESSERA_ASSIGN_OR_RETURN(
      const TensorMeta meta,
      ParseMember(document, "tensor", [](const std::string& text) {
        return TensorMeta::Parse(text);
      }));
  TESSERA_ASSIGN_OR_RETURN(const Layout replicated,
                           ReplicatedOn(document, "mesh", meta));
  return ParseMember(document, "source", [&](const std::string& text) {
    return replicated.With(text);
  });
}

absl::StatusOr<StepKind> ReadKind(const JsonReader& value) {
  TESSERA_ASSIGN_OR_RETURN(const JsonReader member, value.Member("kind"));
  TESSERA_ASSIGN_OR_RETURN(const std::string name, member.Text());
  const std::optional<StepKind> kind = ParseStepKind(name);
  if (!kind.has_value()) return member.Error("a kind of step");
  return *kind;
}

// An exchange may leave a mesh without axes.
absl::StatusOr<MeshCoords> ReadAxes(const JsonReader& value, StepKind kind,
                                    const DeviceMesh& mesh) {
  TESSERA_ASSIGN_OR_RETURN(const JsonReader axes, value.Member("axes"));
  TESSERA_ASSIGN_OR_RETURN(const size_t length, axes.Length());
  if (length == 0 && kind != StepKind::kExchange) {
    return axes.Error("at least one axis");
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < length; ++i) {
    TESSERA_ASSIGN_OR_RETURN(std::string name, axes.Element(i).Text());
    names.push_back(std::move(name));
  }
  const std::vector<absl::string_view> views(names.begin(), names.end());
  absl::StatusOr<MeshCoords> found = mesh.FindAxes(views);
  if (!found.ok()) return axes.Error(found.status());
  return found;
}

// What stands there is on the mesh of `before` where no other is named, which
// only an exchange leads to.
absl::StatusOr<Layout> ReadAfter(const JsonReader& value, StepKind kind,
                                 const Layout& before) {
  Layout replicated = before;
  if (value.Has("after_mesh")) {
    if (kind != StepKind::kExchange) return value.UnknownKey("after_mesh");
    TESSERA_ASSIGN_OR_RETURN(replicated,
                             ReplicatedOn(value, "after_mesh", before.meta()));
  }
  return ParseMember(value, "after", [&](const std::string& text) {
    return replicated.With(text);
  });
}

absl::StatusOr<Step> ReadStep(const JsonReader& value, const Layout& before) {
  Step step;
  TESSERA_ASSIGN_OR_RETURN(step.kind, ReadKind(value));
  TESSERA_ASSIGN_OR_RETURN(const MeshCoords axes,
                           ReadAxes(value, step.kind, before.mesh()));
  step.axes.assign(axes.begin(), axes.end());
  step.before = before;
  TESSERA_ASSIGN_OR_RETURN(step.after, ReadAfter(value, step.kind, before));
  TESSERA_ASSIGN_OR_RETURN(step.bytes_received,
                           FigureOf(value, "bytes_received"));
  TESSERA_ASSIGN_OR_RETURN(step.messages, FigureOf(value, "messages"));
  TESSERA_ASSIGN_OR_RETURN(step.time_ps, FigureOf(value, "time_ps"));
  return step;
}

// The plan that begins at the source and takes the steps, wherever they lead.
absl::StatusOr<Plan> ReadSteps(const JsonReader& document) {
  TESSERA_ASSIGN_OR_RETURN(const Layout source, ReadSource(document));
  TESSERA_ASSIGN_OR_RETURN(const JsonReader list, document.Member("steps"));
  TESSERA_ASSIGN_OR_RETURN(const size_t length, list.Length());
  std::vector<Step> steps;
  for (size_t i = 0; i < length; ++i) {
    const Layout& before = steps.empty() ? source : steps.back().after;
    TESSERA_ASSIGN_OR_RETURN(Step step, ReadStep(list.Element(i), before));
    steps.push_back(std::move(step));
  }
  Layout target = steps.empty() ? source : steps.back().after;
  return Plan(source, std::move(target), std::move(steps));
}

}  // namespace

std::string PlanToJson(const Plan& plan) { return DocumentOf(plan).dump(2); }

absl::StatusOr<Plan> PlanFromJson(absl::string_view json) {
  TESSERA_ASSIGN_OR_RETURN(const Json parsed,
                           internal::ParseJson("plan", json));
  const JsonReader document("plan", parsed);
  TESSERA_RETURN_IF_ERROR(CheckVersion(document));
  TESSERA_ASSIGN_OR_RETURN(Plan plan, ReadSteps(document));
  // All else follows from what was read.
  TESSERA_RETURN_IF_ERROR(CheckSame(document, DocumentOf(plan)));
  return plan;
}

}  // namespace tessera

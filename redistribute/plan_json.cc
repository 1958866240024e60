#include "tessera/redistribute/plan_json.h"

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tessera/base/status_macros.h"

namespace tessera {
namespace {

// Written in the order of the header; read with fast look-ups.
using OrderedJson = nlohmann::ordered_json;
using Json = nlohmann::json;

constexpr int kVersion = 1;
constexpr size_t kMostQuoted = 60;  // characters of the input, in messages

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

// A value in a document, and how messages call it: "steps[1].axes".
class Value {
 public:
  // LIFETIME: borrows `json`.
  Value(const Json& json, std::string name)
      : json_(&json), name_(std::move(name)) {}

  bool Has(const char* key) const { return json_->contains(key); }

  absl::StatusOr<Value> Member(const char* key) const {
    if (!json_->is_object()) return Error("an object");
    const auto member = json_->find(key);
    if (member != json_->end()) return Value(*member, NameOf(key));
    return absl::InvalidArgumentError(
        absl::StrCat("plan: want a key '", NameOf(key), "', found none"));
  }

  absl::StatusOr<size_t> Length() const {
    if (!json_->is_array()) return Error("a list");
    return json_->size();
  }
  // REQUIRES: index < Length().
  Value Element(size_t index) const {
    return Value((*json_)[index], absl::StrCat(name_, "[", index, "]"));
  }

  absl::StatusOr<std::string> Text() const {
    if (!json_->is_string()) return Error("a text");
    return json_->get<std::string>();
  }

  absl::StatusOr<int64_t> Figure() const {
    // What does not fit int64 is unsigned or floating here.
    if (json_->is_number_integer() && json_->get<int64_t>() >= 0) {
      return json_->get<int64_t>();
    }
    return Error("an integer from 0 to 2^63 - 1");
  }

  // Names the first value that is not as in `expected`. Objects may lack keys.
  // REQUIRES: lists are of the same lengths; objects are where `expected` has
  // them.
  absl::Status CheckSame(const OrderedJson& expected) const {
    if (expected.is_array()) {
      for (size_t i = 0; i < expected.size(); ++i) {
        TESSERA_RETURN_IF_ERROR(Element(i).CheckSame(expected[i]));
      }
      return absl::OkStatus();
    }
    if (!expected.is_object()) {
      if (*json_ == Json(expected)) return absl::OkStatus();
      return Error(expected.dump());
    }
    for (const auto& [key, value] : expected.items()) {
      const auto found = json_->find(key);
      if (found == json_->end()) continue;
      TESSERA_RETURN_IF_ERROR(Value(*found, NameOf(key)).CheckSame(value));
    }
    for (const auto& [key, value] : json_->items()) {
      if (expected.contains(key)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("plan: want no key '",
                       NameOf(key.substr(0, kMostQuoted)), "', found one"));
    }
    return absl::OkStatus();
  }

  absl::Status Error(absl::string_view wanted) const {
    return absl::InvalidArgumentError(absl::StrCat(
        "plan: want ", wanted, " as '", name_, "', found ", Quoted()));
  }

  // An error about what this text says.
  absl::Status Error(const absl::Status& status) const {
    return absl::InvalidArgumentError(
        absl::StrCat("plan: '", name_, "': ", status.message()));
  }

 private:
  std::string NameOf(absl::string_view key) const {
    return absl::StrCat(name_, name_.empty() ? "" : ".", key);
  }

  std::string Quoted() const {
    if (json_->is_structured()) {
      return json_->is_array() ? "a list" : "an object";
    }
    if (!json_->is_string()) return json_->dump();
    const auto& text = json_->get_ref<const std::string&>();
    return absl::StrCat("\"", text.substr(0, kMostQuoted),
                        text.size() > kMostQuoted ? "..." : "", "\"");
  }

  const Json* json_;
  std::string name_;
};

absl::StatusOr<Json> ParseJson(absl::string_view text) {
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const Json::exception& error) {
    const absl::string_view what = error.what();
    return absl::InvalidArgumentError(
        absl::StrCat("plan: want JSON, found: ", what.substr(0, 200)));
  }
}

absl::Status CheckVersion(const Value& document) {
  TESSERA_ASSIGN_OR_RETURN(const Value version, document.Member("version"));
  return version.CheckSame(kVersion);
}

absl::StatusOr<int64_t> FigureOf(const Value& object, const char* key) {
  TESSERA_ASSIGN_OR_RETURN(const Value member, object.Member(key));
  return member.Figure();
}

// Calls parse(text), which gives a StatusOr, with the text at `key`.
template <typename Parse>
auto ParseMember(const Value& object, const char* key, Parse parse)
    -> decltype(parse(std::string())) {
  TESSERA_ASSIGN_OR_RETURN(const Value member, object.Member(key));
  TESSERA_ASSIGN_OR_RETURN(const std::string text, member.Text());
  auto result = parse(text);
  if (!result.ok()) return member.Error(result.status());
  return result;
}

// The tensor on the mesh at `key`, replicated.
absl::StatusOr<Layout> ReplicatedOn(const Value& object, const char* key,
                                    const TensorMeta& meta) {
  TESSERA_ASSIGN_OR_RETURN(
      const DeviceMesh mesh,
      ParseMember(object, key, [](const std::string& text) {
        return DeviceMesh::Parse(text);
      }));
  return Layout::Create(meta, mesh, Placements(mesh.num_axes()));
}

absl::StatusOr<Layout> ReadSource(const Value& document) {
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

absl::StatusOr<StepKind> ReadKind(const Value& value) {
  TESSERA_ASSIGN_OR_RETURN(const Value member, value.Member("kind"));
  TESSERA_ASSIGN_OR_RETURN(const std::string name, member.Text());
  const std::optional<StepKind> kind = ParseStepKind(name);
  if (!kind.has_value()) return member.Error("a kind of step");
  return *kind;
}

// An exchange may leave a mesh without axes.
absl::StatusOr<MeshCoords> ReadAxes(const Value& value, StepKind kind,
                                    const DeviceMesh& mesh) {
  TESSERA_ASSIGN_OR_RETURN(const Value axes, value.Member("axes"));
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

// What stands there is on the mesh of `before` where no other is named.
absl::StatusOr<Layout> ReadAfter(const Value& value, const Layout& before) {
  Layout replicated = before;
  if (value.Has("after_mesh")) {
    TESSERA_ASSIGN_OR_RETURN(replicated,
                             ReplicatedOn(value, "after_mesh", before.meta()));
  }
  return ParseMember(value, "after", [&](const std::string& text) {
    return replicated.With(text);
  });
}

absl::StatusOr<Step> ReadStep(const Value& value, const Layout& before) {
  Step step;
  TESSERA_ASSIGN_OR_RETURN(step.kind, ReadKind(value));
  TESSERA_ASSIGN_OR_RETURN(const MeshCoords axes,
                           ReadAxes(value, step.kind, before.mesh()));
  step.axes.assign(axes.begin(), axes.end());
  step.before = before;
  TESSERA_ASSIGN_OR_RETURN(step.after, ReadAfter(value, before));
  TESSERA_ASSIGN_OR_RETURN(step.bytes_received,
                           FigureOf(value, "bytes_received"));
  TESSERA_ASSIGN_OR_RETURN(step.messages, FigureOf(value, "messages"));
  TESSERA_ASSIGN_OR_RETURN(step.time_ps, FigureOf(value, "time_ps"));
  return step;
}

// The plan that begins at the source and takes the steps, wherever they lead.
absl::StatusOr<Plan> ReadSteps(const Value& document) {
  TESSERA_ASSIGN_OR_RETURN(const Layout source, ReadSource(document));
  TESSERA_ASSIGN_OR_RETURN(const Value list, document.Member("steps"));
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
  TESSERA_ASSIGN_OR_RETURN(const Json parsed, ParseJson(json));
  const Value document(parsed, "");
  TESSERA_RETURN_IF_ERROR(CheckVersion(document));
  TESSERA_ASSIGN_OR_RETURN(Plan plan, ReadSteps(document));
  // All else follows from what was read.
  TESSERA_RETURN_IF_ERROR(document.CheckSame(DocumentOf(plan)));
  return plan;
}

}  // namespace tessera

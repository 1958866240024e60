#include "tools/tessera/plan_command.h"

#include <CLI/CLI.hpp>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "tessera/base/file.h"
#include "tessera/base/status_macros.h"
#include "tessera/redistribute/alternatives.h"
#include "tessera/redistribute/plan_json.h"
#include "tessera/redistribute/planner.h"
#include "tools/tessera/number_flags.h"
#include "tools/tessera/picture.h"
#include "tools/tessera/values.h"

namespace tessera::tools {
namespace {

std::string ToText(const Plan& plan) {
  return absl::StrCat(plan.ToString(), "\n\n", plan.ToTable());
}

// How much longer an alternative takes.
std::string Compare(const Plan& other, const Plan& best) {
  const double more = static_cast<double>(other.time_ps() - best.time_ps());
  std::string text = absl::StrFormat("%.1f us more", more / 1e6);
  if (best.time_ps() == 0) return text;
  absl::StrAppendFormat(&text, " (+%.1f %%)",
                        100 * more / static_cast<double>(best.time_ps()));
  return text;
}

std::string ToText(const Plan& plan, absl::Span<const Plan> alternatives) {
  std::string text = absl::StrCat(
      plan.source().meta().ToString(), " on mesh '",
      plan.source().mesh().ToString(), "'\n", ToText(plan), "\nlaunches ",
      plan.launches(), ", peak ", plan.peak_bytes(), " bytes (",
      FormatBytes(plan.peak_bytes()), "), fingerprint ",
      absl::Hex(plan.fingerprint(), absl::kZeroPad16), "\n");
  for (size_t i = 0; i < alternatives.size(); ++i) {
    absl::StrAppend(&text, "\nalternative ", i + 1, ": ",
                    Compare(alternatives[i], plan), "\n",
                    ToText(alternatives[i]));
  }
  return text;
}

std::string ToJson(const Plan& plan, absl::Span<const Plan> alternatives) {
  using OrderedJson = nlohmann::ordered_json;
  OrderedJson document = OrderedJson::parse(PlanToJson(plan));
  for (const Plan& alternative : alternatives) {
    document["alternatives"].push_back(
        OrderedJson::parse(PlanToJson(alternative)));
  }
  return absl::StrCat(document.dump(2), "\n");
}

}  // namespace

void PlanCommand::AddFlags(CLI::App& app) {
  app.add_option("--mesh", mesh_, "Mesh axes, outer before inner: dp=2,tp=4")
      ->required();
  app.add_option("--shape", shape_, "Extents of the tensor: 4096,14336")
      ->required();
  app.add_option("--dtype", dtype_, "f32, f64, bf16, f16, i32 or i64")
      ->capture_default_str();
  app.add_option("--from", from_, "Layout to begin with: \"[P(sum), S(0)]\"")
      ->required();
  app.add_option("--to", to_, "Layout to end with: \"[R, S(1)]\"")->required();
  app.add_option("--to-mesh", to_mesh_, "Mesh to end on, if another");
  app.add_option("--topology", topology_, "Prices: " + TopologyChoices())
      ->capture_default_str();
  app.add_option("--max-workspace", max_workspace_,
                 "Most bytes between source and target: 64MiB");
  app.add_option("--alternatives", alternatives_,
                 "Print so many other plans, too")
      ->transform(WholeNumber(0, 1000));
  app.add_flag("--json", json_, "Print JSON");
  app.add_option("--svg", svg_path_, "File for a picture of the steps");
}

absl::StatusOr<Outcome> PlanCommand::Run() const {
  TESSERA_ASSIGN_OR_RETURN(const DeviceMesh mesh, ParseMesh("--mesh", mesh_));
  DeviceMesh to_mesh = mesh;
  if (!to_mesh_.empty()) {
    TESSERA_ASSIGN_OR_RETURN(to_mesh, ParseMesh("--to-mesh", to_mesh_));
  }
  TESSERA_ASSIGN_OR_RETURN(const TensorMeta meta, ParseTensor(dtype_, shape_));
  TESSERA_ASSIGN_OR_RETURN(const Layout from,
                           ParseLayout("--from", from_, meta, mesh));
  TESSERA_ASSIGN_OR_RETURN(const Layout to,
                           ParseLayout("--to", to_, meta, to_mesh));
  TESSERA_ASSIGN_OR_RETURN(const Topology topology, ParseTopology(topology_));
  PlanOptions options;
  if (!max_workspace_.empty()) {
    TESSERA_ASSIGN_OR_RETURN(options.max_workspace_bytes,
                             ParseBytes("--max-workspace", max_workspace_));
  }

  TESSERA_ASSIGN_OR_RETURN(const Plan plan,
                           MakePlan(from, to, topology, options));
  std::vector<Plan> alternatives;
  if (alternatives_ > 0) {
    TESSERA_ASSIGN_OR_RETURN(
        alternatives,
        AlternativePlans(from, to, topology, alternatives_, options));
  }
  if (!svg_path_.empty()) {
    TESSERA_ASSIGN_OR_RETURN(const std::string picture, DrawPlan(plan));
    TESSERA_RETURN_IF_ERROR(internal::WriteFile(svg_path_, picture));
  }
  return Outcome{json_ ? ToJson(plan, alternatives)
                       : ToText(plan, alternatives)};
}

}  // namespace tessera::tools

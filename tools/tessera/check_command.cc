#include "tools/tessera/check_command.h"

#include <CLI/CLI.hpp>
#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tessera/base/file.h"
#include "tessera/base/status_macros.h"
#include "tessera/mesh/topology.h"
#include "tessera/testing/golden_plans.h"
#include "tools/tessera/values.h"

namespace tessera::tools {
namespace {

using testing::DiffGoldenPlan;
using testing::GoldenPlan;

// What differs; a plan that cannot be made differs, too.
std::string DiffOf(const GoldenPlan& golden, const absl::StatusOr<Plan>& plan) {
  if (plan.ok()) return DiffGoldenPlan(golden, *plan);
  return absl::StrCat("- ", golden.plan.value_or("a plan"), "\n+ ",
                      plan.status().message(), "\n");
}

// The plan as the planner makes it. Limits stay.
void Accept(const Plan& plan, GoldenPlan& golden) {
  if (golden.plan.has_value() || golden.limits.empty()) {
    golden.plan = plan.ToString();
  }
}

// The report on one file, of these plans, to which it writes if it shall.
absl::StatusOr<Outcome> CheckFile(const std::string& path,
                                  const std::vector<GoldenPlan>& golden_plans,
                                  const Topology& topology, bool update) {
  std::vector<GoldenPlan> accepted = golden_plans;
  Outcome outcome;
  size_t differ = 0;
  size_t updated = 0;
  for (size_t i = 0; i < golden_plans.size(); ++i) {
    const absl::StatusOr<Plan> plan = MakeGoldenPlan(golden_plans[i], topology);
    const std::string diff = DiffOf(golden_plans[i], plan);
    if (diff.empty()) continue;
    ++differ;
    absl::StrAppend(&outcome.text, path, ": ", golden_plans[i].ToString(), "\n",
                    diff);
    if (!update || !plan.ok()) continue;
    Accept(*plan, accepted[i]);
    if (DiffGoldenPlan(accepted[i], *plan).empty()) ++updated;
  }
  if (accepted != golden_plans) {
    TESSERA_RETURN_IF_ERROR(
        internal::WriteFile(path, testing::GoldenPlansToJson(accepted)));
  }
  absl::StrAppend(&outcome.text, path, ": ", golden_plans.size() - differ,
                  " of ", golden_plans.size(), " plans on '", topology.name(),
                  "' are as expected");
  if (updated > 0) absl::StrAppend(&outcome.text, ", ", updated, " updated");
  absl::StrAppend(&outcome.text, "\n");
  outcome.exit_status = differ > updated ? 1 : 0;
  return outcome;
}

}  // namespace

void CheckCommand::AddFlags(CLI::App& app) {
  app.add_option("FILE", paths_, "Golden plans")->required();
  app.add_flag("--update", update_,
               "Write what the planner makes to the files");
  app.add_option(
         "--topology", topology_,
         "Prices: " + TopologyChoices() + "; those of unit never change")
      ->capture_default_str();
}

absl::StatusOr<Outcome> CheckCommand::Run() const {
  TESSERA_ASSIGN_OR_RETURN(const Topology topology, ParseTopology(topology_));
  // Nothing is written where one of them cannot be read.
  std::vector<std::vector<GoldenPlan>> files;
  for (const std::string& path : paths_) {
    TESSERA_ASSIGN_OR_RETURN(files.emplace_back(),
                             testing::ReadGoldenPlans(path));
  }
  Outcome all;
  for (size_t i = 0; i < files.size(); ++i) {
    TESSERA_ASSIGN_OR_RETURN(const Outcome outcome,
                             CheckFile(paths_[i], files[i], topology, update_));
    absl::StrAppend(&all.text, outcome.text);
    all.exit_status = std::max(all.exit_status, outcome.exit_status);
  }
  return all;
}

}  // namespace tessera::tools

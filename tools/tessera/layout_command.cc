#include "tools/tessera/layout_command.h"

#include <CLI/CLI.hpp>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tessera/base/file.h"
#include "tessera/base/status_macros.h"
#include "tools/tessera/layout_picture.h"
#include "tools/tessera/layout_report.h"
#include "tools/tessera/number_flags.h"
#include "tools/tessera/values.h"

namespace tessera::tools {
namespace {

constexpr int64_t kMostRanks = 1'000'000;

// The unit of that name or, without one, the first of the largest.
absl::StatusOr<size_t> FindUnit(const Model& model, const std::string& name) {
  size_t largest = 0;
  std::vector<std::string> names;
  for (size_t i = 0; i < model.units.size(); ++i) {
    const Model::Unit& unit = model.units[i];
    if (unit.name == name) return i;
    names.push_back(unit.name);
    if (unit.num_elements() > model.units[largest].num_elements()) largest = i;
  }
  if (name.empty()) return largest;
  return absl::InvalidArgumentError(absl::StrCat("--unit: want one of ",
                                                 absl::StrJoin(names, ", "),
                                                 ", found '", name, "'"));
}

std::string DrawUnit(const LayoutReport& report, size_t i) {
  const Model::Unit& unit = report.model.units[i];
  return DrawFlatLayout(
      absl::StrCat(
          report.model.name, ", ", unit.name,
          unit.repeat > 1 ? absl::StrCat(" (one of ", unit.repeat, ")") : "",
          ": ", DTypeName(report.dtype), " on ", report.ranks,
          " ranks, cut by ", report.granularity.ToString()),
      report.layouts[i]);
}

}  // namespace

void LayoutCommand::AddFlags(CLI::App& app) {
  app.add_option("--model", model_, ModelChoices())->required();
  app.add_option("--ranks", ranks_, "Parts that each unit is cut into")
      ->required()
      ->transform(WholeNumber(1, kMostRanks));
  app.add_option("--granularity", granularity_,
                 "What is never cut: element, inner-row, row or rows:K")
      ->capture_default_str();
  app.add_option("--dtype", dtype_,
                 "The narrowest that is stored so, if not the model's");
  app.add_flag("--compare", compare_,
               "Add the padding by the rules of Megatron-FSDP and FSDP2");
  app.add_flag("--json", json_, "Print JSON");
  CLI::Option* const svg =
      app.add_option("--svg", svg_path_, "File for a picture of a unit");
  app.add_option("--unit", unit_, "The unit in the picture, if not the largest")
      ->needs(svg);
}

absl::StatusOr<Outcome> LayoutCommand::Run() const {
  TESSERA_ASSIGN_OR_RETURN(Model model, LoadModel(model_));
  TESSERA_ASSIGN_OR_RETURN(const Granularity granularity,
                           ParseGranularity(granularity_));
  DType dtype = model.dtype;
  if (!dtype_.empty()) {
    TESSERA_ASSIGN_OR_RETURN(dtype, ParseDTypeFlag(dtype_));
  }
  TESSERA_ASSIGN_OR_RETURN(const size_t unit, FindUnit(model, unit_));
  TESSERA_ASSIGN_OR_RETURN(const LayoutReport report,
                           LayoutReport::Create(std::move(model), ranks_,
                                                granularity, dtype, compare_));
  if (!svg_path_.empty()) {
    TESSERA_RETURN_IF_ERROR(
        internal::WriteFile(svg_path_, DrawUnit(report, unit)));
  }
  return Outcome{json_ ? report.ToJson() : report.ToTable()};
}

}  // namespace tessera::tools

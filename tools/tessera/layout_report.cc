#include "tools/tessera/layout_report.h"

#include <cstddef>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tessera/base/status_macros.h"
#include "tools/models/model_layout.h"
#include "tools/models/padding_rules.h"
#include "tools/tessera/table.h"
#include "tools/tessera/values.h"

namespace tessera::tools {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string TwoDigits(double percent) {
  return absl::StrFormat("%.2f", percent);
}

// The padding of others in % of the model: of the one that `member` points to.
double OthersPercent(const LayoutReport& report,
                     int64_t LayoutReport::Others::*member) {
  std::vector<int64_t> padding;
  for (const LayoutReport::Others& others : report.others) {
    padding.push_back(others.*member);
  }
  return PercentOfModel(report.model, padding);
}

}  // namespace

absl::StatusOr<LayoutReport> LayoutReport::Create(
    Model model, int64_t ranks, const Granularity& granularity, DType dtype,
    bool compare) {
  LayoutReport report = {.model = std::move(model),
                         .ranks = ranks,
                         .granularity = granularity,
                         .dtype = dtype};
  TESSERA_ASSIGN_OR_RETURN(report.layouts,
                           LayoutsOf(report.model, ranks, granularity, dtype));
  if (!compare) return report;
  for (const Model::Unit& unit : report.model.units) {
    Others others;
    TESSERA_ASSIGN_OR_RETURN(others.megatron_fsdp,
                             MegatronPadding(unit, ranks));
    TESSERA_ASSIGN_OR_RETURN(others.fsdp2, Fsdp2Padding(unit, ranks));
    report.others.push_back(others);
  }
  return report;
}

std::string LayoutReport::ToTable() const {
  std::vector<Row> rows = {
      {"unit", "repeat", "elements", "per rank", "padding %", "bound %"}};
  if (!others.empty()) {
    rows[0].insert(rows[0].end(), {"Megatron-FSDP %", "FSDP2 %"});
  }
  for (size_t i = 0; i < layouts.size(); ++i) {
    const FlatLayout& layout = layouts[i];
    const int64_t elements = layout.tensor_elements();
    rows.push_back({model.units[i].name, absl::StrCat(model.units[i].repeat),
                    absl::StrCat(elements),
                    absl::StrCat(layout.per_rank_elements()),
                    FormatPercent(layout.padding_elements(), elements),
                    FormatPercent(layout.padding_bound(), elements)});
    if (others.empty()) continue;
    rows.back().push_back(FormatPercent(others[i].megatron_fsdp, elements));
    rows.back().push_back(FormatPercent(others[i].fsdp2, elements));
  }
  rows.push_back({"all", "", absl::StrCat(model.num_elements()), "",
                  TwoDigits(PaddingPercent(model, layouts)),
                  TwoDigits(BoundPercent(model, layouts))});
  if (!others.empty()) {
    rows.back().push_back(
        TwoDigits(OthersPercent(*this, &Others::megatron_fsdp)));
    rows.back().push_back(TwoDigits(OthersPercent(*this, &Others::fsdp2)));
  }
  return absl::StrCat(model.name, ": ", DTypeName(dtype), " on ", ranks,
                      " ranks, cut by ", granularity.ToString(), "\n\n",
                      Align(rows));
}

std::string LayoutReport::ToJson() const {
  OrderedJson units = OrderedJson::array();
  for (size_t i = 0; i < layouts.size(); ++i) {
    const FlatLayout& layout = layouts[i];
    OrderedJson unit = {{"name", model.units[i].name},
                        {"repeat", model.units[i].repeat},
                        {"elements", layout.tensor_elements()},
                        {"per_rank_elements", layout.per_rank_elements()},
                        {"padding_elements", layout.padding_elements()},
                        {"lower_bound_elements", layout.padding_bound()}};
    if (!others.empty()) {
      unit["compare"] = {
          {"megatron_fsdp_padding_elements", others[i].megatron_fsdp},
          {"fsdp2_padding_elements", others[i].fsdp2}};
    }
    units.push_back(std::move(unit));
  }
  OrderedJson document = {
      {"version", 1},
      {"model", model.name},
      {"dtype", std::string(DTypeName(dtype))},
      {"ranks", ranks},
      {"granularity", granularity.ToString()},
      {"elements", model.num_elements()},
      {"units", std::move(units)},
      {"padding_percent", PaddingPercent(model, layouts)},
      {"lower_bound_percent", BoundPercent(model, layouts)}};
  if (!others.empty()) {
    document["compare"] = {
        {"megatron_fsdp_padding_percent",
         OthersPercent(*this, &Others::megatron_fsdp)},
        {"fsdp2_padding_percent", OthersPercent(*this, &Others::fsdp2)}};
  }
  return absl::StrCat(document.dump(2), "\n");
}

}  // namespace tessera::tools

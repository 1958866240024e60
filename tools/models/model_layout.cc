#include "tools/models/model_layout.h"

#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tessera::tools {

std::vector<FlatLayout::Tensor> TensorsOf(const Model::Unit& unit,
                                          const Granularity& granularity) {
  std::vector<FlatLayout::Tensor> tensors;
  for (const Model::Param& param : unit.params) {
    tensors.push_back({param.name, param.shape, granularity});
  }
  return tensors;
}

absl::StatusOr<std::vector<FlatLayout>> LayoutsOf(
    const Model& model, int64_t ranks, const Granularity& granularity,
    DType narrowest) {
  std::vector<FlatLayout> layouts;
  for (const Model::Unit& unit : model.units) {
    absl::StatusOr<FlatLayout> layout =
        FlatLayout::Create(TensorsOf(unit, granularity), ranks, narrowest);
    if (!layout.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("unit '", unit.name, "': ", layout.status().message()));
    }
    layouts.push_back(*std::move(layout));
  }
  return layouts;
}

double PercentOfModel(const Model& model, absl::Span<const int64_t> per_unit) {
  double sum = 0;
  for (size_t i = 0; i < model.units.size(); ++i) {
    sum += static_cast<double>(model.units[i].repeat) *
           static_cast<double>(per_unit[i]);
  }
  return 100 * sum / static_cast<double>(model.num_elements());
}

double PaddingPercent(const Model& model,
                      absl::Span<const FlatLayout> layouts) {
  std::vector<int64_t> padding;
  for (const FlatLayout& layout : layouts) {
    padding.push_back(layout.padding_elements());
  }
  return PercentOfModel(model, padding);
}

double BoundPercent(const Model& model, absl::Span<const FlatLayout> layouts) {
  std::vector<int64_t> bounds;
  for (const FlatLayout& layout : layouts) {
    bounds.push_back(layout.padding_bound());
  }
  return PercentOfModel(model, bounds);
}

}  // namespace tessera::tools

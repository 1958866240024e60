#ifndef TESSERA_TOOLS_MODELS_MODEL_LAYOUT_H_
#define TESSERA_TOOLS_MODELS_MODEL_LAYOUT_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tessera/dbuffer/flat_layout.h"
#include "tools/models/model.h"

namespace tessera::tools {

// A unit's parameters in their order, all of one granularity.
std::vector<FlatLayout::Tensor> TensorsOf(const Model::Unit& unit,
                                          const Granularity& granularity);

// The layout of each unit. ERRORS: those of FlatLayout::Create, with the unit.
absl::StatusOr<std::vector<FlatLayout>> LayoutsOf(
    const Model& model, int64_t ranks, const Granularity& granularity,
    DType narrowest);

// What the units have of something, with repeats, in % of all the model's
// elements. REQUIRES: one figure per unit.
double PercentOfModel(const Model& model, absl::Span<const int64_t> per_unit);

// The same of the padding of layouts, and of its lower bound.
double PaddingPercent(const Model& model, absl::Span<const FlatLayout> layouts);
double BoundPercent(const Model& model, absl::Span<const FlatLayout> layouts);

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_MODELS_MODEL_LAYOUT_H_

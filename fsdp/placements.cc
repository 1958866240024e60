#include "tessera/fsdp/placements.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tessera/base/status_macros.h"

namespace tessera {
namespace {

// What a strategy does along one axis.
struct AxisRule {
  bool parameter_flat;
  bool gradient_flat;
  bool optimizer_flat;
};

struct Strategy {
  absl::string_view name;
  AxisRule outer;  // all axes but the last
  AxisRule inner;  // the last axis
};

constexpr AxisRule kReplicated = {false, false, false};
constexpr AxisRule kOptimizer = {false, false, true};
constexpr AxisRule kGradients = {false, true, true};
constexpr AxisRule kEverything = {true, true, true};

constexpr Strategy kStrategies[] = {
    {"ddp", kReplicated, kReplicated},  {"zero1", kOptimizer, kOptimizer},
    {"zero2", kGradients, kGradients},  {"zero3", kEverything, kEverything},
    {"fsdp", kEverything, kEverything}, {"hsdp", kReplicated, kEverything},
    {"hfsdp", kOptimizer, kEverything},
};

BufferPlacement FlatOr(bool flat, BufferPlacement otherwise) {
  return flat ? BufferPlacement::Flat() : otherwise;
}

absl::Status CheckSize(absl::string_view list,
                       const BufferPlacements& placements, int num_axes) {
  if (static_cast<int>(placements.size()) == num_axes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "fsdp: ", list, " placements ", BufferPlacementsToString(placements),
      " have ", placements.size(), " entries, want one for each of ", num_axes,
      " data-parallel axes"));
}

absl::Status Rejected(absl::string_view list,
                      const BufferPlacements& placements, int axis,
                      absl::string_view wanted) {
  return absl::InvalidArgumentError(absl::StrCat(
      "fsdp: ", list, " placements ", BufferPlacementsToString(placements),
      " have ", placements[axis].ToString(), " on data-parallel axis ", axis,
      ", want ", wanted));
}

absl::Status CheckHeld(absl::string_view list,
                       const BufferPlacements& placements) {
  for (int i = 0; i < static_cast<int>(placements.size()); ++i) {
    if (placements[i].is_partial()) {
      return Rejected(list, placements, i, "R or Flat");
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string UnitPlacements::ToString() const {
  return absl::StrCat("param=", BufferPlacementsToString(parameter),
                      " grad=", BufferPlacementsToString(gradient),
                      " optim=", BufferPlacementsToString(optimizer));
}

std::vector<absl::string_view> StrategyNames() {
  std::vector<absl::string_view> names;
  for (const Strategy& strategy : kStrategies) names.push_back(strategy.name);
  return names;
}

absl::StatusOr<UnitPlacements> PlacementsFor(absl::string_view strategy,
                                             int num_axes) {
  for (const Strategy& known : kStrategies) {
    if (known.name != strategy) continue;
    UnitPlacements result;
    for (int i = 0; i < num_axes; ++i) {
      const AxisRule& rule = i + 1 == num_axes ? known.inner : known.outer;
      result.parameter.push_back(
          FlatOr(rule.parameter_flat, BufferPlacement::Replicate()));
      result.gradient.push_back(
          FlatOr(rule.gradient_flat, BufferPlacement::Partial()));
      result.optimizer.push_back(
          FlatOr(rule.optimizer_flat, BufferPlacement::Replicate()));
    }
    return result;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("fsdp: unknown strategy '", strategy, "', want one of ",
                   absl::StrJoin(StrategyNames(), ", ")));
}

absl::Status ValidatePlacements(const UnitPlacements& placements,
                                int num_axes) {
  TESSERA_RETURN_IF_ERROR(
      CheckSize("parameter", placements.parameter, num_axes));
  TESSERA_RETURN_IF_ERROR(CheckSize("gradient", placements.gradient, num_axes));
  TESSERA_RETURN_IF_ERROR(
      CheckSize("optimizer", placements.optimizer, num_axes));
  TESSERA_RETURN_IF_ERROR(CheckHeld("parameter", placements.parameter));
  TESSERA_RETURN_IF_ERROR(CheckHeld("optimizer", placements.optimizer));
  for (int i = 0; i < num_axes; ++i) {
    const BufferPlacement& gradient = placements.gradient[i];
    if (!gradient.is_flat() && gradient != BufferPlacement::Partial()) {
      return Rejected("gradient", placements.gradient, i, "P(sum) or Flat");
    }
    if (gradient.is_flat() && !placements.optimizer[i].is_flat()) {
      return Rejected("optimizer", placements.optimizer, i,
                      "Flat, as the gradient is");
    }
  }
  return absl::OkStatus();
}

}  // namespace tessera

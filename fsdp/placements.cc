#include "tessera/fsdp/placements.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
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

// One of the three lists, with what errors about it name.
struct List {
  absl::string_view name;
  const BufferPlacements& placements;
  absl::Span<const std::string> axes;

  absl::Status Rejected(int axis, absl::string_view wanted) const {
    return absl::InvalidArgumentError(absl::StrCat(
        "fsdp: ", name, " placements ", BufferPlacementsToString(placements),
        " have ", placements[axis].ToString(), " on axis '", axes[axis],
        "', want ", wanted));
  }
};

absl::Status CheckSize(const List& list) {
  if (list.placements.size() == list.axes.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("fsdp: ", list.name, " placements ",
                   BufferPlacementsToString(list.placements), " have ",
                   list.placements.size(), " entries, want one for each of ",
                   list.axes.size(), " data-parallel axes [",
                   absl::StrJoin(list.axes, ","), "]"));
}

// Flat or `other` on every axis.
absl::Status CheckKinds(const List& list, BufferPlacement other) {
  for (int i = 0; i < static_cast<int>(list.placements.size()); ++i) {
    const BufferPlacement& placement = list.placements[i];
    if (placement.is_flat() || placement == other) continue;
    return list.Rejected(i, absl::StrCat(other.ToString(), " or Flat"));
  }
  return absl::OkStatus();
}

// The Flat axes are the first ones to cut.
absl::Status CheckPrefix(const List& list,
                         absl::Span<const std::string> cut_order) {
  absl::string_view first_not_flat;
  for (const std::string& axis : cut_order) {
    const int i =
        static_cast<int>(std::find(list.axes.begin(), list.axes.end(), axis) -
                         list.axes.begin());
    if (!list.placements[i].is_flat()) {
      if (first_not_flat.empty()) first_not_flat = axis;
    } else if (!first_not_flat.empty()) {
      return list.Rejected(
          i, absl::StrCat("Flat only where '", first_not_flat,
                          "' is, which cuts before it in the order ",
                          absl::StrJoin(cut_order, ",")));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckList(const List& list, BufferPlacement other,
                       absl::Span<const std::string> cut_order) {
  TESSERA_RETURN_IF_ERROR(CheckSize(list));
  TESSERA_RETURN_IF_ERROR(CheckKinds(list, other));
  return CheckPrefix(list, cut_order);
}

// Takes "key=[...]" off the front of `text`.
absl::StatusOr<BufferPlacements> ConsumeList(absl::string_view key,
                                             absl::string_view& text) {
  text = absl::StripLeadingAsciiWhitespace(text);
  absl::string_view rest = text;
  const size_t end = rest.find(']');
  if (!absl::ConsumePrefix(&rest, key) || !absl::ConsumePrefix(&rest, "=") ||
      end == absl::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat(
        "fsdp: placements have '", text, "' where '", key, "=[...]' belongs"));
  }
  const absl::string_view list = rest.substr(0, rest.find(']') + 1);
  text.remove_prefix(end + 1);
  return ParseBufferPlacements(list);
}

}  // namespace

std::string UnitPlacements::ToString() const {
  return absl::StrCat("param=", BufferPlacementsToString(parameter),
                      " grad=", BufferPlacementsToString(gradient),
                      " optim=", BufferPlacementsToString(optimizer));
}

absl::StatusOr<UnitPlacements> ParseUnitPlacements(absl::string_view text) {
  UnitPlacements result;
  TESSERA_ASSIGN_OR_RETURN(result.parameter, ConsumeList("param", text));
  TESSERA_ASSIGN_OR_RETURN(result.gradient, ConsumeList("grad", text));
  TESSERA_ASSIGN_OR_RETURN(result.optimizer, ConsumeList("optim", text));
  text = absl::StripAsciiWhitespace(text);
  if (text.empty()) return result;
  return absl::InvalidArgumentError(
      absl::StrCat("fsdp: placements have '", text, "' behind 'optim=[...]'"));
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
                                absl::Span<const std::string> axes,
                                absl::Span<const std::string> cut_order) {
  const List parameter = {"parameter", placements.parameter, axes};
  const List gradient = {"gradient", placements.gradient, axes};
  const List optimizer = {"optimizer", placements.optimizer, axes};
  const BufferPlacement replicate = BufferPlacement::Replicate();
  const BufferPlacement partial = BufferPlacement::Partial();
  TESSERA_RETURN_IF_ERROR(CheckList(parameter, replicate, cut_order));
  TESSERA_RETURN_IF_ERROR(CheckList(gradient, partial, cut_order));
  TESSERA_RETURN_IF_ERROR(CheckList(optimizer, replicate, cut_order));
  for (int i = 0; i < static_cast<int>(axes.size()); ++i) {
    if (placements.gradient[i].is_flat() &&
        !placements.optimizer[i].is_flat()) {
      return optimizer.Rejected(i, "Flat, as the gradient is");
    }
  }
  return absl::OkStatus();
}

}  // namespace tessera

#include "tessera/fsdp/optimizer_groups.h"

#include "absl/strings/str_cat.h"

namespace tessera::internal {

std::vector<ShardRun> RunsOf(absl::Span<const ShardPiece> pieces,
                             absl::FunctionRef<int(ParameterId)> group_of) {
  std::vector<ShardRun> runs;
  for (const ShardPiece& piece : pieces) {
    if (piece.elements.empty()) continue;
    const int group = group_of(piece.parameter);
    if (!runs.empty() && runs.back().group == group) {
      runs.back().elements.end = piece.elements.end;
    } else {
      runs.push_back({group, piece.elements});
    }
  }
  return runs;
}

absl::Status ParameterChoices::Resolve(const Context& context, int num_groups) {
  if (resolved_) return absl::OkStatus();
  for (const auto& unit : context.units()) {
    std::vector<int>& groups = groups_[unit.get()];
    groups.clear();
    for (ParameterId p = 0; p < unit->num_parameters(); ++p) {
      const std::string& name = unit->parameter_name(p);
      const int group = choose_ == nullptr ? 0 : choose_(unit->name(), name);
      if (group < 0 || group >= num_groups) {
        return absl::InvalidArgumentError(absl::StrCat(
            "optimizer: unit '", unit->name(), "' parameter '", name,
            "' is in group ", group, ", want one of ", num_groups));
      }
      groups.push_back(group);
    }
  }
  resolved_ = true;
  return absl::OkStatus();
}

}  // namespace tessera::internal

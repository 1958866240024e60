#include "tessera/fsdp/optimizer_groups.h"

#include "absl/strings/str_cat.h"

namespace tessera::internal {

std::vector<ShardRun> RunsOf(absl::Span<const ShardPiece> pieces,
                             absl::FunctionRef<int(ParameterId)> group_of) {
  std::vector<ShardRun> runs;
  int last_group = kNoGroup;
  for (const ShardPiece& piece : pieces) {
    if (piece.elements.empty()) continue;
    const int group = group_of(piece.parameter);
    const bool goes_on = group == last_group;
    last_group = group;
    if (group == kNoGroup) continue;
    if (goes_on) {
      runs.back().elements.end = piece.elements.end;
    } else {
      runs.push_back({group, piece.elements});
    }
  }
  return runs;
}

std::vector<Interval> KeptRuns(const OptimizerShard& shard,
                               absl::FunctionRef<int(ParameterId)> group_of) {
  const auto kept = [&](ParameterId p) {
    return group_of(p) == kNoGroup ? kNoGroup : 0;
  };
  const bool keeps_all = std::all_of(
      shard.pieces.begin(), shard.pieces.end(),
      [&](const ShardPiece& piece) { return kept(piece.parameter) == 0; });
  if (keeps_all) return {{0, shard.weight.num_elements()}};
  std::vector<Interval> runs;
  for (const ShardRun& run : RunsOf(shard.pieces, kept)) {
    runs.push_back(run.elements);
  }
  return runs;
}

absl::Status ParameterChoices::Resolve(const Context& context, int num_groups) {
  if (resolved_) return absl::OkStatus();
  // Once all units are there.
  TESSERA_RETURN_IF_ERROR(context.optimizer_shards().status());
  for (const auto& unit : context.units()) {
    std::vector<int>& groups = groups_[unit.get()];
    groups.clear();
    for (ParameterId p = 0; p < unit->num_parameters(); ++p) {
      const std::string& name = unit->parameter_name(p);
      const int group = choose_ == nullptr ? 0 : choose_(unit->name(), name);
      if (group != kNoGroup && (group < 0 || group >= num_groups)) {
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

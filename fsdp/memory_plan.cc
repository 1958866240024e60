#include "tessera/fsdp/memory_plan.h"

#include <algorithm>
#include <numeric>

namespace tessera {
namespace {

using BytesOf = int64_t (UnitMemory::*)() const;

bool KeepsWeights(const UnitMemory& unit) {
  return unit.release != ReleaseWeights::kAfterForward;
}

// Gives the units of `sharers`, all that share slots, a slot for each depth and
// up to `ahead` for all depths that have several of them.
void AppendSharedSlots(absl::Span<const UnitMemory> units, BytesOf bytes_of,
                       absl::Span<const int> sharers, int ahead,
                       SlotPlan& plan) {
  std::map<int, std::vector<int>> by_depth;
  for (int unit : sharers) by_depth[units[unit].depth].push_back(unit);

  std::vector<int> crowded;  // units at depths that have several
  int64_t crowded_bytes = 0;
  int without_slot = 0;  // units more than slots
  for (const auto& [depth, at_depth] : by_depth) {
    int64_t bytes = 0;
    for (int unit : at_depth) {
      bytes = std::max(bytes, (units[unit].*bytes_of)());
      plan.slots_of_unit[unit].push_back(static_cast<int>(plan.bytes.size()));
    }
    plan.bytes.push_back(bytes);
    if (at_depth.size() == 1) continue;
    without_slot += static_cast<int>(at_depth.size()) - 1;
    crowded_bytes = std::max(crowded_bytes, bytes);
    crowded.insert(crowded.end(), at_depth.begin(), at_depth.end());
  }
  for (int i = 0; i < std::min(ahead, without_slot); ++i) {
    for (int unit : crowded) {
      plan.slots_of_unit[unit].push_back(static_cast<int>(plan.bytes.size()));
    }
    plan.bytes.push_back(crowded_bytes);
  }
}

}  // namespace

int64_t GroupMemory::MainWeightBytes() const {
  return elements / optimizer_parts * SizeOf(main_weight);
}

int64_t GroupMemory::ModelWeightBytes() const {
  return HasModelWeight() ? elements / parameter_parts * SizeOf(parameter) : 0;
}

int64_t GroupMemory::MainGradBytes() const {
  return requires_grad ? elements / gradient_parts * SizeOf(accumulation) : 0;
}

int64_t GroupMemory::UnshardedWeightBytes() const {
  return parameter_parts > 1 ? elements * SizeOf(parameter) : 0;
}

int64_t GroupMemory::UnreducedGradBytes() const {
  return requires_grad ? elements * SizeOf(wire) : 0;
}

int64_t UnitMemory::UnshardedWeightBytes() const {
  int64_t bytes = 0;
  for (const GroupMemory& g : groups) bytes += g.UnshardedWeightBytes();
  return bytes;
}

int64_t UnitMemory::UnreducedGradBytes() const {
  int64_t bytes = 0;
  for (const GroupMemory& g : groups) bytes += g.UnreducedGradBytes();
  return bytes;
}

int64_t SlotPlan::TotalBytes() const {
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
}

SlotPlan PlanWeightSlots(absl::Span<const UnitMemory> units,
                         const OverlapOptions& overlap) {
  SlotPlan plan;
  plan.slots_of_unit.resize(units.size());
  std::vector<int> sharers;
  for (int i = 0; i < static_cast<int>(units.size()); ++i) {
    const int64_t bytes = units[i].UnshardedWeightBytes();
    if (bytes == 0) continue;
    if (!KeepsWeights(units[i])) {
      sharers.push_back(i);
      continue;
    }
    plan.slots_of_unit[i].push_back(static_cast<int>(plan.bytes.size()));
    plan.bytes.push_back(bytes);
  }
  AppendSharedSlots(units, &UnitMemory::UnshardedWeightBytes, sharers,
                    overlap.prefetch, plan);
  return plan;
}

SlotPlan PlanGradientSlots(absl::Span<const UnitMemory> units,
                           const OverlapOptions& overlap) {
  SlotPlan plan;
  plan.slots_of_unit.resize(units.size());
  std::vector<int> sharers;
  for (int i = 0; i < static_cast<int>(units.size()); ++i) {
    if (units[i].UnreducedGradBytes() > 0) sharers.push_back(i);
  }
  AppendSharedSlots(units, &UnitMemory::UnreducedGradBytes, sharers,
                    overlap.gradients_in_flight - 1, plan);
  return plan;
}

std::map<std::string, int64_t> PlanMemory(absl::Span<const UnitMemory> units,
                                          const OverlapOptions& overlap) {
  std::map<std::string, int64_t> bytes;
  for (const UnitMemory& unit : units) {
    for (const GroupMemory& group : unit.groups) {
      bytes[kMainWeightTag] += group.MainWeightBytes();
      bytes[kModelWeightTag] += group.ModelWeightBytes();
      bytes[kMainGradTag] += group.MainGradBytes();
    }
  }
  bytes[kUnshardedWeightTag] = PlanWeightSlots(units, overlap).TotalBytes();
  bytes[kUnreducedGradTag] = PlanGradientSlots(units, overlap).TotalBytes();
  return bytes;
}

}  // namespace tessera

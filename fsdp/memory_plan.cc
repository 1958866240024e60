#include "tessera/fsdp/memory_plan.h"

#include <algorithm>
#include <cstddef>

namespace tessera {
namespace {

using BytesOf = int64_t (UnitMemory::*)() const;

int GreatestDepth(absl::Span<const UnitMemory> units) {
  int depth = 0;
  for (const UnitMemory& unit : units) depth = std::max(depth, unit.depth);
  return depth;
}

// The slots of the units that `shares` admits and that have bytes.
template <typename Shares>
void AppendSharedSlots(absl::Span<const UnitMemory> units, BytesOf bytes_of,
                       Shares shares, std::vector<SlotPlan>& slots) {
  const int greatest = GreatestDepth(units);
  for (int depth = 1; depth <= greatest; ++depth) {
    int64_t bytes = 0;
    int users = 0;
    for (const UnitMemory& unit : units) {
      if (unit.depth != depth || !shares(unit)) continue;
      bytes = std::max(bytes, (unit.*bytes_of)());
      users += (unit.*bytes_of)() > 0;
    }
    const int most = depth == greatest ? 2 : 1;
    slots.insert(slots.end(), std::min(most, users),
                 SlotPlan{.depth = depth, .unit = -1, .bytes = bytes});
  }
}

bool KeepsWeights(const UnitMemory& unit) {
  return unit.release != ReleaseWeights::kAfterForward;
}

int64_t TotalBytes(absl::Span<const SlotPlan> slots) {
  int64_t bytes = 0;
  for (const SlotPlan& slot : slots) bytes += slot.bytes;
  return bytes;
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

std::vector<SlotPlan> PlanWeightSlots(absl::Span<const UnitMemory> units) {
  std::vector<SlotPlan> slots;
  AppendSharedSlots(
      units, &UnitMemory::UnshardedWeightBytes,
      [](const UnitMemory& unit) { return !KeepsWeights(unit); }, slots);
  for (size_t i = 0; i < units.size(); ++i) {
    const int64_t bytes = units[i].UnshardedWeightBytes();
    if (!KeepsWeights(units[i]) || bytes == 0) continue;
    slots.push_back(
        {.depth = units[i].depth, .unit = static_cast<int>(i), .bytes = bytes});
  }
  return slots;
}

std::vector<SlotPlan> PlanGradientSlots(absl::Span<const UnitMemory> units) {
  std::vector<SlotPlan> slots;
  AppendSharedSlots(
      units, &UnitMemory::UnreducedGradBytes,
      [](const UnitMemory&) { return true; }, slots);
  return slots;
}

std::map<std::string, int64_t> PlanMemory(absl::Span<const UnitMemory> units) {
  std::map<std::string, int64_t> bytes;
  for (const UnitMemory& unit : units) {
    for (const GroupMemory& group : unit.groups) {
      bytes[kMainWeightTag] += group.MainWeightBytes();
      bytes[kModelWeightTag] += group.ModelWeightBytes();
      bytes[kMainGradTag] += group.MainGradBytes();
    }
  }
  bytes[kUnshardedWeightTag] = TotalBytes(PlanWeightSlots(units));
  bytes[kUnreducedGradTag] = TotalBytes(PlanGradientSlots(units));
  return bytes;
}

}  // namespace tessera

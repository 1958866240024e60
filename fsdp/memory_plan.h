#ifndef TESSERA_FSDP_MEMORY_PLAN_H_
#define TESSERA_FSDP_MEMORY_PLAN_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tessera/fsdp/options.h"
#include "tessera/tensor/dtype.h"

namespace tessera {

// The tags under which a context allocates.
inline constexpr char kMainWeightTag[] = "main_weight";
inline constexpr char kModelWeightTag[] = "model_weight";
inline constexpr char kMainGradTag[] = "main_grad";
inline constexpr char kUnshardedWeightTag[] = "unsharded_weight";
inline constexpr char kUnreducedGradTag[] = "unreduced_grad";

// Beside these, for as long as Unit::ScatterWeight runs.
inline constexpr char kScatteredWeightTag[] = "scattered_weight";

// What the memory of one parameter group depends on. The flat layout has
// `elements` elements; a buffer holds one part in n of them, n the product of
// the sizes of its Flat axes.
struct GroupMemory {
  int64_t elements = 0;
  int64_t parameter_parts = 1;
  int64_t gradient_parts = 1;
  int64_t optimizer_parts = 1;
  DType parameter = DType::kF32;
  DType wire = DType::kF32;
  DType accumulation = DType::kF32;
  DType main_weight = DType::kF32;
  bool requires_grad = true;

  // Bytes that stay from the first step on.
  int64_t MainWeightBytes() const;   // elements / optimizer_parts
  int64_t ModelWeightBytes() const;  // elements / parameter_parts, or none
                                     // where the main weight serves as it
  int64_t MainGradBytes() const;     // elements / gradient_parts
  // Bytes in slots.
  int64_t UnshardedWeightBytes() const;  // elements; none if parameter_parts==1
  int64_t UnreducedGradBytes() const;    // elements

  bool HasModelWeight() const {
    return parameter != main_weight || parameter_parts != optimizer_parts;
  }
};

struct UnitMemory {
  int depth = 1;
  ReleaseWeights release = ReleaseWeights::kAfterForward;
  std::vector<GroupMemory> groups = {};

  int64_t UnshardedWeightBytes() const;
  int64_t UnreducedGradBytes() const;
};

// Transient memory that units use in turn.
struct SlotPlan {
  std::vector<int64_t> bytes = {};  // of each slot
  // By unit: the slots it may use, ascending. None: it has no such bytes.
  std::vector<std::vector<int>> slots_of_unit = {};

  int64_t TotalBytes() const;
};

// The slots of a context. One per depth, as large as the largest unit there,
// and for all depths that have several units together as many more as
// `overlap` lets run ahead (gathered weights, or gradients still being
// reduced), as large as the largest of these units; no more than there are
// units to use them. Units that keep their weights beyond their forward have
// slots of their own for them, and no part in the others.
SlotPlan PlanWeightSlots(absl::Span<const UnitMemory> units,
                         const OverlapOptions& overlap);
SlotPlan PlanGradientSlots(absl::Span<const UnitMemory> units,
                           const OverlapOptions& overlap);

// The bytes that a context allocates on every rank, by tag, once every main
// gradient exists: the sums of the figures above. It is also the peak, for
// all of them are then held together.
std::map<std::string, int64_t> PlanMemory(absl::Span<const UnitMemory> units,
                                          const OverlapOptions& overlap = {});

}  // namespace tessera

#endif  // TESSERA_FSDP_MEMORY_PLAN_H_

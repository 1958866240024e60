#ifndef TESSERA_FSDP_OPTIMIZER_SHARD_H_
#define TESSERA_FSDP_OPTIMIZER_SHARD_H_

#include <vector>

#include "tessera/fsdp/unit.h"
#include "tessera/tensor/index.h"
#include "tessera/tensor/tensor_view.h"

namespace tessera {

// A parameter's part of a shard.
struct ShardPiece {
  ParameterId parameter = 0;
  Interval elements = {};  // of the shard's views; empty where it has none
};

// One parameter group as an optimizer sees it: this rank's flat pieces of the
// same elements. LIFETIME: as the context's.
struct OptimizerShard {
  const Unit& unit;
  int group;            // its index among those of the unit
  TensorView weight;    // main-weight dtype
  TensorView gradient;  // accumulation dtype, final; else without elements
  // As they lie in the views. Between them is padding: zero in both, and to
  // stay zero in the weight.
  std::vector<ShardPiece> pieces;
};

}  // namespace tessera

#endif  // TESSERA_FSDP_OPTIMIZER_SHARD_H_

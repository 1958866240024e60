#ifndef PLAN_TESTS_SHARDINGS_H_
#define PLAN_TESTS_SHARDINGS_H_

#include "absl/status/statusor.h"
#include "tessera/placement/layout.h"

namespace plan_tests {

// How a trainer moves its tensors, on two data-parallel times four
// tensor-parallel ranks.
struct Move {
  tessera::Layout from;
  tessera::Layout to;
};

// The gradient of a weight that is split by rows over tp: every dp rank has
// summands of it and keeps a shard.
absl::StatusOr<Move> GradientToShards();

// Activations from split by sequence (dim 1) to split by heads (dim 2).
absl::StatusOr<Move> SequenceToHeads();

}  // namespace plan_tests

#endif  // PLAN_TESTS_SHARDINGS_H_

#ifndef TESSERA_REDISTRIBUTE_EDGES_H_
#define TESSERA_REDISTRIBUTE_EDGES_H_

#include <vector>

#include "absl/types/span.h"
#include "tessera/mesh/topology.h"
#include "tessera/placement/layout.h"
#include "tessera/redistribute/plan.h"
#include "tessera/tensor/reduce_op.h"

namespace tessera::internal {

// All steps that lead from `layout` to another layout by a change along one
// mesh axis, with their figures, in a fixed order. Which there are:
//
// (one row per edge: legality, bytes received, messages, hops)
//
//   [to be completed beside the code]
//
// A Partial placement is made only for ops in `partial_ops`.
std::vector<Step> EdgesFrom(const Layout& layout,
                            absl::Span<const ReduceOp> partial_ops,
                            const Topology& topology);

}  // namespace tessera::internal

#endif  // TESSERA_REDISTRIBUTE_EDGES_H_

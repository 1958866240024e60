#ifndef TESSERA_REDISTRIBUTE_PLANNER_H_
#define TESSERA_REDISTRIBUTE_PLANNER_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "tessera/mesh/topology.h"
#include "tessera/placement/layout.h"
#include "tessera/redistribute/plan.h"

namespace tessera {

struct PlanOptions {
  // The most workspace that a plan may need: Plan::workspace_bytes.
  std::optional<int64_t> max_workspace_bytes;
};

// The cheapest way from `source` to `target` along the edges of edges.h, by
// the prices of `topology`: a shortest path over layouts. Reductions compose
// one mesh axis at a time. Pure: the same arguments give the same plan on
// every rank, in every process; ties go to fewer steps, then to a fixed order
// of edges. No work grows with the number of ranks.
//
//   TESSERA_ASSIGN_OR_RETURN(auto mesh, DeviceMesh::Parse("dp=2,tp=4"));
//   TESSERA_ASSIGN_OR_RETURN(auto from,
//       Layout::Parse("bf16[4096,14336] [P(sum), S(0)]", mesh));
//   TESSERA_ASSIGN_OR_RETURN(auto to, from.With("[R, S(1)]"));
//   TESSERA_ASSIGN_OR_RETURN(Plan plan, MakePlan(from, to,
//   Topology::LocalCpu()));
//
// Ragged cuts stay where they are: source and target must have the same ones,
// and the same Shard placements beside them; what is Partial or Replicate may
// change.
//
// ERRORS: InvalidArgument where meta or mesh differ; Unimplemented where a
// ragged cut would have to move, or for more than 8 mesh axes of size above 1
// or 26 tensor dims.
absl::StatusOr<Plan> MakePlan(const Layout& source, const Layout& target,
                              const Topology& topology,
                              const PlanOptions& options = {});

}  // namespace tessera

#endif  // TESSERA_REDISTRIBUTE_PLANNER_H_

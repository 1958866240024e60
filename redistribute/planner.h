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
// mesh axis by mesh axis, or several at once, whichever is cheaper. Pure: the
// same arguments give the same plan on every rank, in every process; ties go
// to fewer steps, then to fewer exchanges, then to a fixed order of edges. No
// work grows with the number of ranks.
//
//   TESSERA_ASSIGN_OR_RETURN(auto mesh, DeviceMesh::Parse("dp=2,tp=4"));
//   TESSERA_ASSIGN_OR_RETURN(auto from,
//       Layout::Parse("bf16[4096,14336] [P(sum), S(0)]", mesh));
//   TESSERA_ASSIGN_OR_RETURN(auto to, from.With("[R, S(1)]"));
//   TESSERA_ASSIGN_OR_RETURN(
//       Plan plan, MakePlan(from, to, Topology::LocalCpu()));
//
// Target and source may be on two meshes over one world of ranks, as when one
// pipeline stage hands over to the next: what is Partial is reduced on the
// source's mesh, an exchange crosses. One exchange also brings about, moves or
// ends a ragged cut. See crossing.h for these; ragged cuts that stay, and what
// shards beside them, are left alone.
//
// ERRORS: InvalidArgument where source and target are not of one dtype and
// shape, or for a negative limit; ResourceExhausted, naming the least workspace
// that would do, where the limit is below; Unimplemented for more than 8 mesh
// axes of size above 1 or 26 tensor dims.
absl::StatusOr<Plan> MakePlan(const Layout& source, const Layout& target,
                              const Topology& topology,
                              const PlanOptions& options = {});

}  // namespace tessera

#endif  // TESSERA_REDISTRIBUTE_PLANNER_H_

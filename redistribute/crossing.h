#ifndef TESSERA_REDISTRIBUTE_CROSSING_H_
#define TESSERA_REDISTRIBUTE_CROSSING_H_

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "tessera/mesh/topology.h"
#include "tessera/placement/layout.h"
#include "tessera/redistribute/plan.h"
#include "tessera/redistribute/planner.h"

namespace tessera::internal {

// A plan between two layouts that do without a crossing.
using PlanWithin =
    absl::FunctionRef<absl::StatusOr<Plan>(const Layout&, const Layout&)>;

// Plans that cross: to another mesh, or where a ragged cut comes, goes or
// changes. Three parts: what is Partial is reduced; one exchange; what shall be
// Partial is filled. The first and last part are plans of `within`.
//
//   Partial axes of the source   reduced to R, or all scattered over one dim
//   the exchange arrives at      the target, with R, or shards of one dim, for
//                                what is Partial there; on another mesh at any
//                                other layout without ragged cut, too
//
// so that a tensor may cross a slow link in shards, and be gathered behind it.
// Of these ways the cheapest is taken; with a limit on workspace, of those that
// end the exchange at the target's own shards. Prices of the exchange:
//
//   another mesh   launch + messages * latency + piece / bandwidth of the link
//                  between meshes, whatever a rank of both has already; a
//                  message for every old piece that a new one has elements of,
//                  exact where cuts are even and of two pieces of a dim one
//                  divides the other, else all the pieces there are
//   ragged cuts    the same, over the slowest of the axes that it crosses; but
//                  exact figures, the most of any rank, on meshes of at most
//                  LayoutGraph::kMaxRanksTried ranks
//
// REQUIRES: source and target are of one tensor, on two meshes or with ragged
// cuts or shards beside them that differ.
// ERRORS: those of `within`; ResourceExhausted as MakePlan.
absl::StatusOr<Plan> PlanCrossing(const Layout& source, const Layout& target,
                                  const Topology& topology,
                                  const PlanOptions& options,
                                  PlanWithin within);

}  // namespace tessera::internal

#endif  // TESSERA_REDISTRIBUTE_CROSSING_H_

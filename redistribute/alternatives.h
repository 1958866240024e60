#ifndef TESSERA_REDISTRIBUTE_ALTERNATIVES_H_
#define TESSERA_REDISTRIBUTE_ALTERNATIVES_H_

#include <vector>

#include "absl/status/statusor.h"
#include "tessera/mesh/topology.h"
#include "tessera/placement/layout.h"
#include "tessera/redistribute/plan.h"
#include "tessera/redistribute/planner.h"

namespace tessera {

// Other ways than the cheapest, for people who want to know what it is compared
// with: at most `count` plans, the cheapest first, each another one than
// MakePlan's, none of which comes past a layout twice. Each goes the cheapest
// way to some stop and the cheapest way on from there. Stops are the layouts
// that have along every axis of the source's mesh R, S(d), or what source or
// target have there, cutting in mesh-axis order; of more than 4096 those
// without S(d) of neither. So these are not all ways there are. Pure, as
// MakePlan.
//
// REQUIRES: count >= 0.
// ERRORS: those of MakePlan.
// COST: two plans for every stop.
absl::StatusOr<std::vector<Plan>> AlternativePlans(
    const Layout& source, const Layout& target, const Topology& topology,
    int count, const PlanOptions& options = {});

}  // namespace tessera

#endif  // TESSERA_REDISTRIBUTE_ALTERNATIVES_H_

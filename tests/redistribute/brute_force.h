#ifndef TESSERA_TESTS_REDISTRIBUTE_BRUTE_FORCE_H_
#define TESSERA_TESTS_REDISTRIBUTE_BRUTE_FORCE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "tessera/mesh/topology.h"
#include "tessera/placement/layout.h"

namespace tessera::testing {

// The cost of the cheapest way between any two of `layouts`, [from][to], in
// picoseconds, over all edges of edges.h, by relaxing them until nothing
// changes. Ways lead through `layouts` only. Slow and obvious: no bounds, no
// order, no state left out.
// REQUIRES: the layouts are of one tensor on one mesh without ragged cuts or
// axes of size 1, and every edge leads to one of them or is not to be taken.
std::vector<std::vector<int64_t>> CheapestCosts(
    absl::Span<const Layout> layouts, const Topology& topology);

}  // namespace tessera::testing

#endif  // TESSERA_TESTS_REDISTRIBUTE_BRUTE_FORCE_H_

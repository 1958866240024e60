#ifndef TESSERA_TESTS_REDISTRIBUTE_REFERENCE_H_
#define TESSERA_TESTS_REDISTRIBUTE_REFERENCE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tessera/placement/layout.h"

namespace tessera::testing {

// What a tensor means, by index arithmetic alone: its elements are small
// integers, a function of the element's row-major number; from them follows
// what a rank may hold under a layout, and what all ranks' pieces amount to.
// Slow and obvious. Shares no code with regions, plans or kernels.

// The ranks of a mesh, the last axis fastest.
std::vector<int> RanksOf(const DeviceMesh& mesh);

// The value of element `number`: any 41 neighbours are different.
double GlobalValue(int64_t number);

// The row-major numbers of the elements that `rank` holds, in the order in
// which it holds them. REQUIRES: layout.mesh().Contains(rank).
std::vector<int64_t> HeldElements(const Layout& layout, int rank);

// How many elements `rank` holds in `after` and not in `before`, which may be
// on another mesh. REQUIRES: after.mesh().Contains(rank).
int64_t CountNewElements(const Layout& before, const Layout& after, int rank);

// What `rank` holds, such that all ranks together mean the tensor. Along the
// Partial axes every coordinate holds something else; so chosen that averages
// are exact on the way, and all values in bf16.
std::vector<double> LocalValues(const Layout& layout, int rank);

// What is wrong with the pieces, one per rank in the order of RanksOf, if they
// shall mean the tensor: wrong sizes, a wrong value, replicas that differ.
// Empty where nothing is. Whatever has a NaN is wrong.
std::string FindFault(const Layout& layout,
                      absl::Span<const std::vector<double>> pieces);

}  // namespace tessera::testing

#endif  // TESSERA_TESTS_REDISTRIBUTE_REFERENCE_H_

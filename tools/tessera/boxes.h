#ifndef TESSERA_TOOLS_TESSERA_BOXES_H_
#define TESSERA_TOOLS_TESSERA_BOXES_H_

#include <vector>

#include "absl/container/inlined_vector.h"
#include "tessera/placement/region.h"
#include "tessera/tensor/index.h"

namespace tessera::tools {

// One interval of global indices per tensor dim.
using Box = absl::InlinedVector<Interval, 4>;

// The region as boxes that do not overlap, in the order of elements, none of
// them empty: itself or, of a ragged cut, at most 2 * dims - 1 of them.
std::vector<Box> BoxesOf(const Region& region);

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_TESSERA_BOXES_H_

#ifndef TESSERA_TESTING_ELEMENTS_H_
#define TESSERA_TESTING_ELEMENTS_H_

#include <cstdint>
#include <vector>

#include "tessera/mesh/device_mesh.h"
#include "tessera/placement/layout.h"

// Ranks and elements, one by one. Slow and obvious.

namespace tessera::testing::internal {

// Mesh coordinates of all ranks, row-major: the last axis fastest.
std::vector<MeshCoords> AllCoords(const DeviceMesh& mesh);

// The row-major numbers, in the tensor, of the elements that the rank at
// `coords` holds, in the order in which it holds them, which is ascending.
std::vector<int64_t> HeldElements(const Layout& layout,
                                  const MeshCoords& coords);

}  // namespace tessera::testing::internal

#endif  // TESSERA_TESTING_ELEMENTS_H_

#ifndef TESSERA_TESTS_REDISTRIBUTE_RANDOM_LAYOUTS_H_
#define TESSERA_TESTS_REDISTRIBUTE_RANDOM_LAYOUTS_H_

#include "tessera/mesh/device_mesh.h"
#include "tessera/placement/layout.h"
#include "tessera/tensor/tensor_meta.h"
#include "tests/redistribute/sampling.h"

namespace tessera::testing {

// Some layout of `meta` on `mesh`: mostly uneven, in any cutting order, with a
// ragged cut over some axes or none, and Partial(sum) if it may have any.
Layout RandomLayout(const TensorMeta& meta, const DeviceMesh& mesh,
                    bool may_be_partial, SeededRandom& random);

}  // namespace tessera::testing

#endif  // TESSERA_TESTS_REDISTRIBUTE_RANDOM_LAYOUTS_H_

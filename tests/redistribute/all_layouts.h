#ifndef TESSERA_TESTS_REDISTRIBUTE_ALL_LAYOUTS_H_
#define TESSERA_TESTS_REDISTRIBUTE_ALL_LAYOUTS_H_

#include <vector>

#include "absl/types/span.h"
#include "tessera/mesh/device_mesh.h"
#include "tessera/placement/layout.h"
#include "tessera/tensor/reduce_op.h"
#include "tessera/tensor/tensor_meta.h"

namespace tessera::testing {

// Every layout of `meta` on `mesh` that R, S(d) and P(op) for op in `ops` can
// make, with every cutting order, once.
std::vector<Layout> AllLayouts(const TensorMeta& meta, const DeviceMesh& mesh,
                               absl::Span<const ReduceOp> ops);

}  // namespace tessera::testing

#endif  // TESSERA_TESTS_REDISTRIBUTE_ALL_LAYOUTS_H_

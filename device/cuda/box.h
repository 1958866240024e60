#ifndef TESSERA_DEVICE_CUDA_BOX_H_
#define TESSERA_DEVICE_CUDA_BOX_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "tessera/device/cuda/kernels.h"
#include "tessera/device/loops.h"

namespace tessera::internal {

// Where a box begins in each array, in elements.
using BoxOffsets = int64_t[kBoxArrays];

// Calls visit(box, offsets) for boxes that cover the loops over one or two
// views, each of at most `max_elements` elements. Stops at the first error and
// returns it.
cudaError_t ForEachBox(
    const Loops& loops, int64_t max_elements,
    absl::FunctionRef<cudaError_t(const Box&, const BoxOffsets&)> visit);

// True for loops over what lies dense in all views.
bool IsDense(const Loops& loops);

}  // namespace tessera::internal

#endif  // TESSERA_DEVICE_CUDA_BOX_H_

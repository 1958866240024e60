#ifndef TESSERA_DEVICE_CUDA_CUDA_KERNELS_H_
#define TESSERA_DEVICE_CUDA_CUDA_KERNELS_H_

#include <memory>

#include "tessera/device/kernels.h"

namespace tessera::internal {

// Kernels on streams that are CudaStreams. Their bodies run at once: they
// borrow what the call was given. Bits are those of a CPU's kernels, but for
// the bits of NaN and the order of sums, which launch.h says: AddSquares adds
// the squares of 16 bytes of x, in ascending order, as one item.
std::unique_ptr<Kernels> NewCudaKernels();

}  // namespace tessera::internal

#endif  // TESSERA_DEVICE_CUDA_CUDA_KERNELS_H_

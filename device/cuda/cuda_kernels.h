#ifndef TESSERA_DEVICE_CUDA_CUDA_KERNELS_H_
#define TESSERA_DEVICE_CUDA_CUDA_KERNELS_H_

#include <memory>

#include "tessera/device/kernels.h"

namespace tessera::internal {

// Kernels on streams that are CudaStreams.
std::unique_ptr<Kernels> NewCudaKernels();

}  // namespace tessera::internal

#endif  // TESSERA_DEVICE_CUDA_CUDA_KERNELS_H_

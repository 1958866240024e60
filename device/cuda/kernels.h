#ifndef TESSERA_DEVICE_CUDA_KERNELS_H_
#define TESSERA_DEVICE_CUDA_KERNELS_H_

#include <cuda_runtime_api.h>

#include <cstdint>

// What cuda_kernels.cc calls of what nvcc compiles.

namespace tessera::internal {

cudaError_t FillFloats(cudaStream_t stream, float* dst, int64_t n, float value);

}  // namespace tessera::internal

#endif  // TESSERA_DEVICE_CUDA_KERNELS_H_

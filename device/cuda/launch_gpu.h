#ifndef TESSERA_DEVICE_CUDA_LAUNCH_GPU_H_
#define TESSERA_DEVICE_CUDA_LAUNCH_GPU_H_

// The launches of launch.h on a GPU. Included there.

#include <cuda_runtime.h>

#include <cstdint>

namespace tessera::internal {

inline constexpr int kThreads = 256;
// Enough for every GPU there is: its threads go round.
inline constexpr int64_t kMaxBlocks = 132 * 16;

template <typename Body>
__global__ void __launch_bounds__(kThreads)
    ForEachKernel(int64_t n, Body body) {
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n;
       i += stride) {
    body(i);
  }
}

template <typename Body>
cudaError_t ForEach(const Grid& grid, int64_t n, Body body) {
  if (n == 0) return cudaSuccess;
  const int64_t blocks = (n + kThreads - 1) / kThreads;
  ForEachKernel<<<static_cast<unsigned>(blocks < kMaxBlocks ? blocks
                                                            : kMaxBlocks),
                  kThreads, 0, grid.stream>>>(n, body);
  return cudaGetLastError();
}

// The sum of a block's values, in thread 0.
template <int kCount>
__device__ double SumOfBlock(double value) {
  __shared__ double values[kCount];
  values[threadIdx.x] = value;
  for (int half = kCount / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) values[threadIdx.x] += values[threadIdx.x + half];
  }
  return values[0];
}

template <typename Value>
__global__ void __launch_bounds__(kSumThreads)
    PartialSumsKernel(int64_t n, Value value, double* scratch) {
  constexpr int64_t kStride = int64_t{kSumBlocks} * kSumThreads;
  double sum = 0.0;
  for (int64_t i = int64_t{blockIdx.x} * kSumThreads + threadIdx.x; i < n;
       i += kStride) {
    sum += value(i);
  }
  sum = SumOfBlock<kSumThreads>(sum);
  if (threadIdx.x == 0) scratch[blockIdx.x] = sum;
}

static __global__ void __launch_bounds__(kSumBlocks)
    AddPartialSumsKernel(const double* scratch, double* sum) {
  const double all = SumOfBlock<kSumBlocks>(scratch[threadIdx.x]);
  if (threadIdx.x == 0) *sum += all;
}

template <typename Value>
cudaError_t AddSum(const Grid& grid, int64_t n, Value value, double* scratch,
                   double* sum) {
  PartialSumsKernel<<<kSumBlocks, kSumThreads, 0, grid.stream>>>(n, value,
                                                                 scratch);
  AddPartialSumsKernel<<<1, kSumBlocks, 0, grid.stream>>>(scratch, sum);
  return cudaGetLastError();
}

}  // namespace tessera::internal

#endif  // TESSERA_DEVICE_CUDA_LAUNCH_GPU_H_

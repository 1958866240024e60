#ifndef TESSERA_DEVICE_CUDA_LAUNCH_H_
#define TESSERA_DEVICE_CUDA_LAUNCH_H_

// How kernels are launched: once for a GPU, once for the host, where what
// cannot run is run all the same, with the same bodies.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__
#define TESSERA_HOST_DEVICE __host__ __device__
#else
#define TESSERA_HOST_DEVICE
#endif

namespace tessera::internal {

// Memory of the device that a kernel reads or writes: from the first byte to
// the last. A GPU does not look at it.
struct Touched {
  const void* begin;
  size_t bytes;
  bool is_written;
};

// What is launched, and where. LIFETIME: borrows `touched` for the call.
struct Grid {
  cudaStream_t stream;
  const char* name;
  const Touched* touched;
  int num_touched;
};

// The sums of a reduction: so many blocks, whatever the GPU.
inline constexpr int kSumBlocks = 512;
inline constexpr int kSumThreads = 256;

// Runs body(i) for every i in [0, n), in any order, side by side.
template <typename Body>
cudaError_t ForEach(const Grid& grid, int64_t n, Body body);

// *sum += value(0) + ... + value(n - 1), in f64 and in an order that depends on
// n alone: thread t of all kSumBlocks * kSumThreads adds the values t, t +
// kSumBlocks * kSumThreads, ... in ascending order; then halves of a block's
// threads are added (k and k + 128, k and k + 64, ...), then halves of the
// blocks. `scratch`, of kSumBlocks doubles, is the stream's alone.
template <typename Value>
cudaError_t AddSum(const Grid& grid, int64_t n, Value value, double* scratch,
                   double* sum);

}  // namespace tessera::internal

#ifdef __CUDACC__
#include "tessera/device/cuda/launch_gpu.h"  // IWYU pragma: export
#else
#include "tessera/device/cuda/launch_host.h"  // IWYU pragma: export
#endif

#endif  // TESSERA_DEVICE_CUDA_LAUNCH_H_

#ifndef TESSERA_DEVICE_CUDA_LAUNCH_H_
#define TESSERA_DEVICE_CUDA_LAUNCH_H_

// How kernels are launched: once for a GPU, once for the host, where what
// cannot run is run all the same, with the same bodies.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "tessera/device/cuda/pack.h"

namespace tessera::internal {

// Memory of the device that a kernel reads or writes: from the first byte to
// the last. A GPU does not look at it.
struct Touched {
  const void* begin;
  size_t bytes;
  bool is_written;
};

template <typename T>
Touched Reads(const T* begin, int64_t n) {
  return {begin, static_cast<size_t>(n) * sizeof(T), false};
}
template <typename T>
Touched Writes(const T* begin, int64_t n) {
  return {begin, static_cast<size_t>(n) * sizeof(T), true};
}

// What is launched, and where. LIFETIME: borrows `touched` for the call.
struct Grid {
  Grid(cudaStream_t stream_in, const char* name_in, const Touched* touched_in,
       int num_touched_in)
      : stream(stream_in),
        name(name_in),
        touched(touched_in),
        num_touched(num_touched_in) {}
  template <int kCount>
  Grid(cudaStream_t stream_in, const char* name_in,
       const Touched (&touched_in)[kCount])
      : Grid(stream_in, name_in, touched_in, kCount) {}

  cudaStream_t stream;
  const char* name;
  const Touched* touched;
  int num_touched;
};

// Runs body.Store<k>(i, body.Load<k>(i)) for runs of k elements from i on, as
// `packing`, one of kPack, cuts them: k is kPack or 1. Runs go side by side, in
// any order: one is stored before or after another is loaded.
template <int kPack, typename Body>
cudaError_t ForEach(const Grid& grid, const Packing& packing, Body body);

// The threads of a sum: so many, whatever the GPU.
inline constexpr int kSumBlocks = 512;
inline constexpr int kSumThreads = 256;

// *sum += the sum of n items, in f64 and in an order that depends on n alone:
// thread t of all kSumBlocks * kSumThreads begins with 0 and goes
// sum = body.Add(sum, body.Load(i)) for i = t, t + kSumBlocks * kSumThreads,
// ... in ascending order; then halves of a block's threads are added (k and k +
// 128, k and k + 64, ...), then halves of the blocks. `scratch`, of kSumBlocks
// doubles, is the stream's alone.
template <typename Body>
cudaError_t AddSum(const Grid& grid, int64_t n, Body body, double* scratch,
                   double* sum);

}  // namespace tessera::internal

#ifdef __CUDACC__
#include "tessera/device/cuda/launch_gpu.h"  // IWYU pragma: export
#else
#include "tessera/device/cuda/launch_host.h"  // IWYU pragma: export
#endif

#endif  // TESSERA_DEVICE_CUDA_LAUNCH_H_

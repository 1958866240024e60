#ifndef TESSERA_DEVICE_CUDA_LAUNCH_GPU_H_
#define TESSERA_DEVICE_CUDA_LAUNCH_GPU_H_

// The launches of launch.h on a GPU. Included there.

#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

namespace tessera::internal {

inline constexpr int kThreads = 256;

// Runs that a thread loads before it stores the first: so many bytes are on
// their way from memory.
template <typename Item>
inline constexpr int kRunsAtOnce = [] {
  constexpr int kRuns = 64 / sizeof(Item);
  return kRuns < 1 ? 1 : kRuns > 8 ? 8 : kRuns;
}();

template <typename Body, int kRun>
using ItemOf = decltype(std::declval<const Body&>().template Load<kRun>(0));

// Runs of a block's threads.
template <typename Body, int kRun>
inline constexpr int64_t kTile = kThreads* kRunsAtOnce<ItemOf<Body, kRun>>;

// Number `tile` of the tiles over `count` runs; run k begins at element at(k).
template <int kRun, typename Body, typename At>
__device__ void RunTile(int64_t tile, int64_t count, const Body& body, At at) {
  using Item = ItemOf<Body, kRun>;
  constexpr int kAtOnce = kRunsAtOnce<Item>;
  const int64_t first = tile * kTile<Body, kRun> + threadIdx.x;
  Item items[kAtOnce];
#pragma unroll
  for (int k = 0; k < kAtOnce; ++k) {
    const int64_t run = first + k * kThreads;
    if (run < count) items[k] = body.template Load<kRun>(at(run));
  }
#pragma unroll
  for (int k = 0; k < kAtOnce; ++k) {
    const int64_t run = first + k * kThreads;
    if (run < count) body.template Store<kRun>(at(run), items[k]);
  }
}

// A block does one tile: the GPU hands blocks out as they come to their end.
template <int kPack, typename Body>
__global__ void __launch_bounds__(kThreads)
    ForEachKernel(Packing packing, int64_t pack_tiles, Body body) {
  const int64_t tile = blockIdx.x;
  if (tile < pack_tiles) {
    return RunTile<kPack>(tile, packing.num_packs, body,
                          [&](int64_t k) { return packing.PackAt(k); });
  }
  if constexpr (kPack > 1) {
    RunTile<1>(tile - pack_tiles, packing.num_singles(), body,
               [&](int64_t k) { return packing.SingleAt(k); });
  }
}

constexpr int64_t TilesOf(int64_t runs, int64_t tile) {
  return (runs + tile - 1) / tile;
}

template <int kPack, typename Body>
cudaError_t ForEach(const Grid& grid, const Packing& packing, Body body) {
  const int64_t pack_tiles = TilesOf(packing.num_packs, kTile<Body, kPack>);
  const int64_t tiles =
      pack_tiles + TilesOf(packing.num_singles(), kTile<Body, 1>);
  if (tiles == 0) return cudaSuccess;
  ForEachKernel<kPack>
      <<<static_cast<unsigned>(tiles), kThreads, 0, grid.stream>>>(
          packing, pack_tiles, body);
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

template <typename Body>
__global__ void __launch_bounds__(kSumThreads)
    PartialSumsKernel(int64_t n, Body body, double* scratch) {
  using Item = decltype(body.Load(0));
  constexpr int64_t kStride = int64_t{kSumBlocks} * kSumThreads;
  constexpr int kAtOnce = 4;
  double sum = 0.0;
  int64_t i = int64_t{blockIdx.x} * kSumThreads + threadIdx.x;
  for (; i + (kAtOnce - 1) * kStride < n; i += kAtOnce * kStride) {
    Item items[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) items[k] = body.Load(i + k * kStride);
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) sum = body.Add(sum, items[k]);
  }
  for (; i < n; i += kStride) sum = body.Add(sum, body.Load(i));
  sum = SumOfBlock<kSumThreads>(sum);
  if (threadIdx.x == 0) scratch[blockIdx.x] = sum;
}

template <int kBlocks>
__global__ void __launch_bounds__(kBlocks)
    AddPartialSumsKernel(const double* scratch, double* sum) {
  const double all = SumOfBlock<kBlocks>(scratch[threadIdx.x]);
  if (threadIdx.x == 0) *sum += all;
}

template <typename Body>
cudaError_t AddSum(const Grid& grid, int64_t n, Body body, double* scratch,
                   double* sum) {
  PartialSumsKernel<<<kSumBlocks, kSumThreads, 0, grid.stream>>>(n, body,
                                                                 scratch);
  AddPartialSumsKernel<kSumBlocks>
      <<<1, kSumBlocks, 0, grid.stream>>>(scratch, sum);
  return cudaGetLastError();
}

}  // namespace tessera::internal

#endif  // TESSERA_DEVICE_CUDA_LAUNCH_GPU_H_

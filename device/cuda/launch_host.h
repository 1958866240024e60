#ifndef TESSERA_DEVICE_CUDA_LAUNCH_HOST_H_
#define TESSERA_DEVICE_CUDA_LAUNCH_HOST_H_

// The launches of launch.h on the host, where something stands in for CUDA.
// Included there.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace tessera::internal {

// Runs `work` where the stream comes to it. Whoever stands in for CUDA defines
// it, as it defines the functions of CUDA.
cudaError_t LaunchOnHost(const Grid& grid, std::function<void()> work);

template <int kPack, typename Body>
cudaError_t ForEach(const Grid& grid, const Packing& packing, Body body) {
  if (packing.n == 0) return cudaSuccess;
  return LaunchOnHost(grid, [packing, body] {
    const auto run = [&]<int kRun>(int64_t i) {
      body.template Store<kRun>(i, body.template Load<kRun>(i));
    };
    for (int64_t k = 0; k < packing.num_packs; ++k) {
      run.template operator()<kPack>(packing.PackAt(k));
    }
    for (int64_t k = 0; k < packing.num_singles(); ++k) {
      run.template operator()<1>(packing.SingleAt(k));
    }
  });
}

// Adds the upper half of what is left to the lower one until one is left.
inline double SumOfHalves(std::vector<double> values) {
  for (size_t half = values.size() / 2; half > 0; half /= 2) {
    for (size_t k = 0; k < half; ++k) values[k] += values[k + half];
  }
  return values[0];
}

template <typename Body>
cudaError_t AddSum(const Grid& grid, int64_t n, Body body, double*,
                   double* sum) {
  return LaunchOnHost(grid, [=] {
    constexpr int64_t kStride = int64_t{kSumBlocks} * kSumThreads;
    std::vector<double> blocks;
    for (int64_t block = 0; block < kSumBlocks; ++block) {
      std::vector<double> threads(kSumThreads, 0.0);
      for (int64_t thread = 0; thread < kSumThreads; ++thread) {
        for (int64_t i = block * kSumThreads + thread; i < n; i += kStride) {
          threads[thread] = body.Add(threads[thread], body.Load(i));
        }
      }
      blocks.push_back(SumOfHalves(std::move(threads)));
    }
    *sum += SumOfHalves(std::move(blocks));
  });
}

}  // namespace tessera::internal

#endif  // TESSERA_DEVICE_CUDA_LAUNCH_HOST_H_

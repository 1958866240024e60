#ifndef TESSERA_DEVICE_CUDA_CUDA_POOL_H_
#define TESSERA_DEVICE_CUDA_CUDA_POOL_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "tessera/device/cuda/cuda_device.h"

namespace tessera::internal {

// A pool of CUDA's, which keeps what is freed and hands it on in the order of
// streams. Thread-safe.
class CudaPool final : public CudaAllocator {
 public:
  // Of the device with this number, which is current in all calls.
  static absl::StatusOr<std::unique_ptr<CudaPool>> Create(int ordinal);
  ~CudaPool() override;

  // Without a stream, waits until the memory is there for everybody.
  void* Allocate(int64_t bytes, void* stream) override;
  void Free(void* data, int64_t bytes, void* stream) override;

 private:
  explicit CudaPool(int ordinal) : ordinal_(ordinal) {}

  const int ordinal_;
  cudaMemPool_t pool_ = nullptr;
  // The order of what names no stream. Nothing else is given to it.
  cudaStream_t host_order_ = nullptr;
};

}  // namespace tessera::internal

#endif  // TESSERA_DEVICE_CUDA_CUDA_POOL_H_

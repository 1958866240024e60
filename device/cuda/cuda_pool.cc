#include "tessera/device/cuda/cuda_pool.h"

#include "absl/memory/memory.h"
#include "tessera/base/status_macros.h"
#include "tessera/device/cuda/cuda_status.h"

namespace tessera::internal {

absl::StatusOr<std::unique_ptr<CudaPool>> CudaPool::Create(int ordinal) {
  auto created = absl::WrapUnique(new CudaPool(ordinal));
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {.type = cudaMemLocationTypeDevice, .id = ordinal};
  TESSERA_RETURN_IF_ERROR(CudaStatus(
      cudaMemPoolCreate(&created->pool_, &properties), "cudaMemPoolCreate"));
  uint64_t keep_all = UINT64_MAX;
  TESSERA_RETURN_IF_ERROR(CudaStatus(
      cudaMemPoolSetAttribute(created->pool_, cudaMemPoolAttrReleaseThreshold,
                              &keep_all),
      "cudaMemPoolSetAttribute"));
  TESSERA_RETURN_IF_ERROR(CudaStatus(
      cudaStreamCreateWithFlags(&created->host_order_, cudaStreamNonBlocking),
      "cudaStreamCreate"));
  return created;
}

CudaPool::~CudaPool() {
  const CurrentDevice current(ordinal_);
  if (host_order_ != nullptr) {
    cudaStreamSynchronize(host_order_);
    cudaStreamDestroy(host_order_);
  }
  if (pool_ != nullptr) cudaMemPoolDestroy(pool_);
}

void* CudaPool::Allocate(int64_t bytes, void* stream) {
  void* data = nullptr;
  const auto order =
      stream == nullptr ? host_order_ : static_cast<cudaStream_t>(stream);
  if (cudaMallocFromPoolAsync(&data, bytes, pool_, order) != cudaSuccess) {
    cudaGetLastError();  // is told by the null, and by nothing else
    return nullptr;
  }
  if (stream == nullptr && cudaStreamSynchronize(order) != cudaSuccess) {
    cudaFreeAsync(data, order);
    return nullptr;
  }
  return data;
}

void CudaPool::Free(void* data, int64_t, void* stream) {
  cudaFreeAsync(data, stream == nullptr ? host_order_
                                        : static_cast<cudaStream_t>(stream));
}

}  // namespace tessera::internal

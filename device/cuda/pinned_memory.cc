#include "tessera/device/cuda/pinned_memory.h"

#include <cuda_runtime_api.h>

namespace tessera::internal {

PinnedMemory::~PinnedMemory() {
  for (auto& [bytes, blocks] : idle_) {
    for (void* block : blocks) cudaFreeHost(block);
  }
}

void* PinnedMemory::Allocate(int64_t bytes) {
  {
    MutexLock lock(mutex_);
    std::vector<void*>& blocks = idle_[bytes];
    if (!blocks.empty()) {
      void* const block = blocks.back();
      blocks.pop_back();
      return block;
    }
  }
  void* block = nullptr;
  if (cudaHostAlloc(&block, bytes, cudaHostAllocPortable) != cudaSuccess) {
    cudaGetLastError();  // is told by the null, and by nothing else
    return nullptr;
  }
  return block;
}

void PinnedMemory::Free(void* data, int64_t bytes) {
  MutexLock lock(mutex_);
  idle_[bytes].push_back(data);
}

}  // namespace tessera::internal

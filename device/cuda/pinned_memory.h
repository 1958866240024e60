#ifndef TESSERA_DEVICE_CUDA_PINNED_MEMORY_H_
#define TESSERA_DEVICE_CUDA_PINNED_MEMORY_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "tessera/base/mutex.h"

namespace tessera::internal {

// Pinned memory of the host, kept when it is freed for the next block of the
// same size: to ask CUDA for it may wait for all that the GPU has to do.
// Thread-safe.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  // Null where there is none. REQUIRES: bytes > 0; a device is current.
  void* Allocate(int64_t bytes);
  void Free(void* data, int64_t bytes);

 private:
  Mutex mutex_;
  absl::flat_hash_map<int64_t, std::vector<void*>> idle_
      ABSL_GUARDED_BY(mutex_);  // by size
};

}  // namespace tessera::internal

#endif  // TESSERA_DEVICE_CUDA_PINNED_MEMORY_H_

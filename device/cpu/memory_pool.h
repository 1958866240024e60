#ifndef TESSERA_DEVICE_CPU_MEMORY_POOL_H_
#define TESSERA_DEVICE_CPU_MEMORY_POOL_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "tessera/base/mutex.h"
#include "tessera/device/cpu/host_allocator.h"

namespace tessera::internal {

// Host memory that is kept when it is freed, for the next block of the same
// size. What is idle stays below what is in use, or goes back to the system as
// soon as that has to be asked for more: where the same blocks come and go, it
// is not asked again. Thread-safe.
class MemoryPool final : public HostAllocator {
 public:
  MemoryPool() = default;
  ~MemoryPool() override;
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  void* Allocate(int64_t bytes) override;
  void Free(void* block, int64_t bytes) override;

  // How often the system was asked for a block.
  int64_t system_allocations() const;

 private:
  void FreeIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  absl::flat_hash_map<int64_t, std::vector<void*>> idle_
      ABSL_GUARDED_BY(mutex_);  // by size
  int64_t idle_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t bytes_in_use_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t system_allocations_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tessera::internal

#endif  // TESSERA_DEVICE_CPU_MEMORY_POOL_H_

#ifndef TESSERA_DEVICE_CPU_HOST_ALLOCATOR_H_
#define TESSERA_DEVICE_CPU_HOST_ALLOCATOR_H_

#include <cstdint>

namespace tessera {

// Where a CpuDevice has its memory from, where it is not the system's.
// Thread-safe: streams give memory back from threads of their own.
class HostAllocator {
 public:
  virtual ~HostAllocator() = default;
  // At least one byte, aligned to 128; null where there is no memory.
  virtual void* Allocate(int64_t bytes) = 0;
  // What Allocate gave for so many bytes; nothing uses it any more.
  virtual void Free(void* data, int64_t bytes) = 0;
};

}  // namespace tessera

#endif  // TESSERA_DEVICE_CPU_HOST_ALLOCATOR_H_

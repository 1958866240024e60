#ifndef TESSERA_DEVICE_MEMORY_H_
#define TESSERA_DEVICE_MEMORY_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "tessera/base/mutex.h"

namespace tessera {

class Device;
class Stream;

// Bytes as asked for, without any rounding of the allocator below.
struct MemoryUsage {
  int64_t current_bytes = 0;
  int64_t peak_bytes = 0;
  int64_t allocations = 0;  // made so far, those without bytes included

  friend bool operator==(const MemoryUsage&, const MemoryUsage&) = default;
};

// What is allocated on one device: in all, and by the tag that each
// allocation named ("main_grad", "workspace", ...). Tags stay listed after
// their last byte is freed. The peak of the total is not the sum of the tags'
// peaks, which may lie at other times.
struct MemoryReport {
  MemoryUsage total;
  std::map<std::string, MemoryUsage, std::less<>> by_tag;
};

// Counts allocations at issue order: bytes are added when Allocate is called
// and taken off when a buffer is released, even where the memory itself is
// returned later, in stream order. So peaks do not depend on timing.
// Thread-safe.
class MemoryAccountant {
 public:
  void Add(absl::string_view tag, int64_t bytes);
  // Add, unless the total would rise above `limit`: then false, and nothing
  // has changed.
  bool AddWithin(int64_t limit, absl::string_view tag, int64_t bytes);
  void Remove(absl::string_view tag, int64_t bytes);
  // Makes every peak what is allocated now.
  void ResetPeaks();
  MemoryReport Report() const;

 private:
  void AddLocked(absl::string_view tag, int64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  MemoryReport report_ ABSL_GUARDED_BY(mutex_);
};

// Owns one allocation of a device. Move-only; empty when default-made or moved
// from. LIFETIME: the device outlives its buffers.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  // Frees at once: whatever still uses the memory must be done.
  ~Buffer() { Reset(); }

  // Aligned to 128 bytes; null in an empty buffer.
  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  const std::string& tag() const { return tag_; }
  bool empty() const { return device_ == nullptr; }

  // Frees at once and leaves this empty.
  void Reset() { Release(nullptr); }
  // Gives the memory back once all that `stream` has been given so far is
  // done, and leaves this empty. The bytes leave the accounts now.
  void ResetAfter(Stream& stream) { Release(&stream); }

 private:
  friend class Device;
  Buffer(Device* device, void* data, int64_t bytes, absl::string_view tag)
      : device_(device), data_(data), bytes_(bytes), tag_(tag) {}
  void Release(Stream* after);

  Device* device_ = nullptr;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
  std::string tag_;
};

// Owns memory of the host that a device copies to and from without another copy
// between: pinned, where there is a GPU. Not counted in accounts. Move-only;
// empty when default-made or moved from. LIFETIME: the device outlives it.
class HostMemory {
 public:
  HostMemory() = default;
  HostMemory(HostMemory&& other) noexcept { *this = std::move(other); }
  HostMemory& operator=(HostMemory&& other) noexcept;
  // Frees at once: whatever still uses the memory must be done.
  ~HostMemory() { Release(); }

  // Aligned to 16 bytes; null in an empty one.
  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  friend class Device;
  HostMemory(Device* device, void* data, int64_t bytes)
      : device_(device), data_(data), bytes_(bytes) {}
  void Release();

  Device* device_ = nullptr;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_DEVICE_MEMORY_H_

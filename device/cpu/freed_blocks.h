#ifndef TESSERA_DEVICE_CPU_FREED_BLOCKS_H_
#define TESSERA_DEVICE_CPU_FREED_BLOCKS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/base/mutex.h"
#include "tessera/device/cpu/host_allocator.h"
#include "tessera/device/stream.h"

namespace tessera::internal {

// Blocks of memory that were freed in the order of a stream which has not come
// there yet. Each leaves once: given back when the stream comes, or handed on
// before, to a stream that waits. So memory that comes and goes is used again
// however far the host runs ahead. Thread-safe.
class FreedBlocks {
 public:
  struct Block {
    void* data = nullptr;
    int64_t bytes = 0;
    Event freed;  // nobody uses it any more
  };

  // Takes a block. Returns the ticket that it can be given back with.
  int64_t Add(Block block);
  // Gives the block with this ticket back to where it is from, unless it was
  // handed on. At every moment it is to be had here or there.
  void GiveBack(int64_t ticket, HostAllocator& allocator);
  // The block of this size that has been here longest.
  std::optional<Block> HandOn(int64_t bytes);

 private:
  struct Entry {
    int64_t ticket;
    Block block;
  };
  // Removes the entry, if there is one.
  std::optional<Block> TakeOut(std::vector<Entry>::iterator entry)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // oldest first; few
  int64_t tickets_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tessera::internal

#endif  // TESSERA_DEVICE_CPU_FREED_BLOCKS_H_

#include "tessera/device/cpu/freed_blocks.h"

#include <utility>

#include "absl/algorithm/container.h"

namespace tessera::internal {

int64_t FreedBlocks::Add(Block block) {
  MutexLock lock(mutex_);
  entries_.push_back({tickets_, std::move(block)});
  return tickets_++;
}

void FreedBlocks::GiveBack(int64_t ticket, HostAllocator& allocator) {
  MutexLock lock(mutex_);
  const std::optional<Block> block = TakeOut(absl::c_find_if(
      entries_, [&](const Entry& entry) { return entry.ticket == ticket; }));
  if (block.has_value()) allocator.Free(block->data, block->bytes);
}

std::optional<FreedBlocks::Block> FreedBlocks::HandOn(int64_t bytes) {
  MutexLock lock(mutex_);
  return TakeOut(absl::c_find_if(entries_, [&](const Entry& entry) {
    return entry.block.bytes == bytes;
  }));
}

std::optional<FreedBlocks::Block> FreedBlocks::TakeOut(
    std::vector<Entry>::iterator entry) {
  if (entry == entries_.end()) return std::nullopt;
  Block block = std::move(entry->block);
  entries_.erase(entry);
  return block;
}

}  // namespace tessera::internal

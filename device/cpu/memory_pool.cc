#include "tessera/device/cpu/memory_pool.h"

#include <sanitizer/asan_interface.h>

#include <new>

namespace tessera::internal {
namespace {

// What Device::Allocate promises.
constexpr std::align_val_t kAlignment{128};

}  // namespace

MemoryPool::~MemoryPool() {
  MutexLock lock(mutex_);
  FreeIdle();
}

void* MemoryPool::Allocate(int64_t bytes) {
  MutexLock lock(mutex_);
  void* block = nullptr;
  if (const auto it = idle_.find(bytes);
      it != idle_.end() && !it->second.empty()) {
    block = it->second.back();
    it->second.pop_back();
    idle_bytes_ -= bytes;
    ASAN_UNPOISON_MEMORY_REGION(block, bytes);
  } else {
    if (idle_bytes_ > bytes_in_use_) FreeIdle();
    block = ::operator new(bytes, kAlignment, std::nothrow);
    if (block == nullptr) {
      FreeIdle();
      block = ::operator new(bytes, kAlignment, std::nothrow);
    }
    if (block == nullptr) return nullptr;
    ++system_allocations_;
  }
  bytes_in_use_ += bytes;
  return block;
}

void MemoryPool::Free(void* block, int64_t bytes) {
  MutexLock lock(mutex_);
  ASAN_POISON_MEMORY_REGION(block, bytes);
  idle_[bytes].push_back(block);
  idle_bytes_ += bytes;
  bytes_in_use_ -= bytes;
}

int64_t MemoryPool::system_allocations() const {
  MutexLock lock(mutex_);
  return system_allocations_;
}

void MemoryPool::FreeIdle() {
  for (auto& [bytes, blocks] : idle_) {
    for (void* block : blocks) {
      ASAN_UNPOISON_MEMORY_REGION(block, bytes);
      ::operator delete(block, kAlignment);
    }
  }
  idle_.clear();
  idle_bytes_ = 0;
}

}  // namespace tessera::internal

#include "tessera/device/memory.h"

#include <algorithm>

#include "tessera/device/device.h"

namespace tessera {
namespace {

void AddTo(MemoryUsage& usage, int64_t bytes) {
  usage.current_bytes += bytes;
  usage.peak_bytes = std::max(usage.peak_bytes, usage.current_bytes);
  ++usage.allocations;
}

// The usage of `tag`, made where it is not listed yet.
MemoryUsage& UsageOf(MemoryReport& report, absl::string_view tag) {
  const auto it = report.by_tag.find(tag);
  if (it != report.by_tag.end()) return it->second;
  return report.by_tag[std::string(tag)];
}

}  // namespace

void MemoryAccountant::Add(absl::string_view tag, int64_t bytes) {
  MutexLock lock(mutex_);
  AddLocked(tag, bytes);
}

bool MemoryAccountant::AddWithin(int64_t limit, absl::string_view tag,
                                 int64_t bytes) {
  MutexLock lock(mutex_);
  if (bytes > limit - report_.total.current_bytes) return false;
  AddLocked(tag, bytes);
  return true;
}

void MemoryAccountant::AddLocked(absl::string_view tag, int64_t bytes) {
  AddTo(report_.total, bytes);
  AddTo(UsageOf(report_, tag), bytes);
}

void MemoryAccountant::Remove(absl::string_view tag, int64_t bytes) {
  MutexLock lock(mutex_);
  report_.total.current_bytes -= bytes;
  UsageOf(report_, tag).current_bytes -= bytes;
}

void MemoryAccountant::ResetPeaks() {
  MutexLock lock(mutex_);
  report_.total.peak_bytes = report_.total.current_bytes;
  for (auto& [tag, usage] : report_.by_tag) {
    usage.peak_bytes = usage.current_bytes;
  }
}

MemoryReport MemoryAccountant::Report() const {
  MutexLock lock(mutex_);
  return report_;
}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  device_ = std::exchange(other.device_, nullptr);
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  tag_ = std::exchange(other.tag_, {});
  return *this;
}

void Buffer::Release(Stream* after) {
  if (empty()) return;
  device_->accountant_.Remove(tag_, bytes_);
  if (data_ != nullptr) device_->DoFree(data_, bytes_, tag_, after);
  device_ = nullptr;
  data_ = nullptr;
  bytes_ = 0;
  tag_.clear();
}

HostMemory& HostMemory::operator=(HostMemory&& other) noexcept {
  if (this == &other) return *this;
  Release();
  device_ = std::exchange(other.device_, nullptr);
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

void HostMemory::Release() {
  if (device_ != nullptr) device_->DoFreeHost(data_, bytes_);
  device_ = nullptr;
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace tessera

#include "tests/emulation/device_memory.h"

#include <sys/mman.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tessera::emulation {
namespace {

constexpr std::byte kPoison{0xff};
constexpr int64_t kAlignment = 256;
constexpr int64_t kPage = 4096;
constexpr int64_t kGuard = 256;  // behind every block, and before the first

std::byte* Reserve(int64_t bytes) {
  void* const window = mmap(nullptr, bytes, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return window == MAP_FAILED ? nullptr : static_cast<std::byte*>(window);
}

}  // namespace

DeviceMemory::DeviceMemory(int64_t bytes)
    : window_(Reserve(bytes)), bytes_(window_ == nullptr ? 0 : bytes) {}

DeviceMemory::~DeviceMemory() {
  if (window_ != nullptr) munmap(window_, bytes_);
}

void* DeviceMemory::Allocate(int64_t bytes) {
  const int64_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const int64_t begin = used_ + kGuard;
  if (rounded > bytes_ - begin - kGuard) return nullptr;
  std::byte* const data = window_ + begin;
  used_ = begin + rounded;
  blocks_[data] = {.bytes = bytes};
  FillWithPoison(data - kGuard, rounded + 2 * kGuard);
  return data;
}

void DeviceMemory::Poison(void* data) {
  auto* const bytes = static_cast<std::byte*>(data);
  FillWithPoison(bytes, blocks_.at(bytes).bytes);
}

// The part alone: to open all takes long where much is allocated.
void DeviceMemory::FillWithPoison(std::byte* begin, int64_t bytes) {
  Protect(begin, bytes, PROT_READ | PROT_WRITE);
  std::fill_n(begin, bytes, kPoison);
  if (opened_ == 0) Protect(begin, bytes, PROT_NONE);
}

void DeviceMemory::Free(void* data) {
  Poison(data);
  blocks_.at(static_cast<std::byte*>(data)).freed = true;
}

int64_t DeviceMemory::BytesAt(const void* data) const {
  const auto found =
      blocks_.find(static_cast<std::byte*>(const_cast<void*>(data)));
  return found == blocks_.end() || found->second.freed ? -1
                                                       : found->second.bytes;
}

bool DeviceMemory::Contains(const void* address) const {
  const auto* const byte = static_cast<const std::byte*>(address);
  return byte >= window_ && byte < window_ + bytes_;
}

void DeviceMemory::Open() {
  if (opened_++ == 0) {
    Protect(window_, used_ + 2 * kGuard, PROT_READ | PROT_WRITE);
  }
}

void DeviceMemory::Close() {
  if (--opened_ == 0) Protect(window_, used_ + 2 * kGuard, PROT_NONE);
}

void DeviceMemory::Protect(std::byte* begin, int64_t bytes, int protection) {
  if (window_ == nullptr) return;
  const int64_t first = (begin - window_) / kPage * kPage;
  const int64_t end = std::min(bytes_, begin - window_ + bytes);
  mprotect(window_ + first, end - first, protection);
}

bool DeviceMemory::IsPoison(const std::byte* begin, int64_t bytes) const {
  return std::all_of(begin, begin + bytes,
                     [](std::byte byte) { return byte == kPoison; });
}

std::vector<std::string> DeviceMemory::Damage() {
  const Opened opened(*this);
  std::vector<std::string> damage;
  for (const auto& [data, block] : blocks_) {
    if (!IsPoison(data - kGuard, kGuard) ||
        !IsPoison(data + block.bytes, kGuard)) {
      damage.push_back(absl::StrCat("memory beside an allocation of ",
                                    block.bytes, " bytes was written"));
    }
    if (block.freed && !IsPoison(data, block.bytes)) {
      damage.push_back(absl::StrCat("an allocation of ", block.bytes,
                                    " bytes was written after it was freed"));
    }
  }
  return damage;
}

std::vector<std::string> DeviceMemory::Leaks() const {
  std::vector<std::string> leaks;
  for (const auto& [data, block] : blocks_) {
    if (block.freed) continue;
    leaks.push_back(absl::StrCat(block.bytes, " bytes were not freed"));
  }
  return leaks;
}

}  // namespace tessera::emulation

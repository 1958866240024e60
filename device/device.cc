#include "tessera/device/device.h"

#include <new>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tessera {

absl::StatusOr<Buffer> Device::Allocate(int64_t bytes, absl::string_view tag,
                                        Stream* first_use) {
  if (bytes < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "device: want at least 0 bytes for '", tag, "', found ", bytes));
  }
  const auto exhausted = [&] {
    return absl::ResourceExhaustedError(absl::StrCat(
        "device: no memory for ", bytes, " bytes of '", tag, "' on ", name(),
        ": ", accountant_.Report().total.current_bytes, " bytes in use, ",
        memory_limit_bytes_ == INT64_MAX
            ? "no limit"
            : absl::StrCat("limit ", memory_limit_bytes_)));
  };
  // Memory that the limit forbids is not asked for; memory that was not to be
  // had is not counted.
  if (bytes > memory_limit_bytes_) return exhausted();
  void* data = nullptr;
  if (bytes > 0) {
    data = DoAllocate(bytes, tag, first_use);
    if (data == nullptr) return exhausted();
  }
  if (!accountant_.AddWithin(memory_limit_bytes_, tag, bytes)) {
    // In the order of the stream for which it was to be: what used the block
    // before may still do so.
    if (data != nullptr) DoFree(data, bytes, tag, first_use);
    return exhausted();
  }
  return Buffer(this, data, bytes, tag);
}

absl::StatusOr<HostMemory> Device::AllocateHost(int64_t bytes) {
  if (bytes < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "device: want at least 1 byte of host memory, found ", bytes));
  }
  void* const data = DoAllocateHost(bytes);
  if (data == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "device: no host memory for ", bytes, " bytes for ", name()));
  }
  return HostMemory(this, data, bytes);
}

void* Device::DoAllocateHost(int64_t bytes) {
  return ::operator new(bytes, std::nothrow);
}

void Device::DoFreeHost(void* data, int64_t) { ::operator delete(data); }

}  // namespace tessera

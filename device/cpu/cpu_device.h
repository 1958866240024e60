#ifndef TESSERA_DEVICE_CPU_CPU_DEVICE_H_
#define TESSERA_DEVICE_CPU_CPU_DEVICE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "tessera/device/device.h"

namespace tessera {

// Who runs what a CPU stream is given.
enum class CpuStreams {
  // The calling thread, before the call returns. Operations that wait for
  // other ranks or for events block the caller.
  kInline,
  // A thread per stream, in order: streams run side by side.
  kWorker,
};

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

// The host's memory and processor as a device. Several may exist in one
// process, one per rank, each with accounts of its own. Thread-safe.
class CpuDevice final : public Device {
 public:
  struct Options {
    CpuStreams streams = CpuStreams::kInline;
    int64_t memory_limit_bytes = INT64_MAX;
    // The caller's, which outlives the device; null: the system's.
    HostAllocator* allocator = nullptr;
  };

  CpuDevice() : CpuDevice(Options{}) {}
  explicit CpuDevice(Options options);
  ~CpuDevice() override;

  std::string name() const override { return "cpu"; }
  absl::StatusOr<std::unique_ptr<Stream>> NewStream(
      absl::string_view name) override;
  Kernels& kernels() override { return *kernels_; }
  int64_t NowNanos() const override;

 private:
  void* DoAllocate(int64_t bytes, absl::string_view tag) override;
  void DoFree(void* data, int64_t bytes, absl::string_view tag,
              Stream* after) override;

  const Options options_;
  const std::unique_ptr<Kernels> kernels_;
};

}  // namespace tessera

#endif  // TESSERA_DEVICE_CPU_CPU_DEVICE_H_

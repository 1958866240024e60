#ifndef TESSERA_DEVICE_CPU_CPU_DEVICE_H_
#define TESSERA_DEVICE_CPU_CPU_DEVICE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "tessera/device/cpu/host_allocator.h"
#include "tessera/device/device.h"

namespace tessera {
namespace internal {
class CpuTracer;
class FreedBlocks;
class MemoryPool;
}  // namespace internal

// Who runs what a CPU stream is given.
enum class CpuStreams {
  // The calling thread, before the call returns. Operations that wait for
  // other ranks or for events block the caller.
  kInline,
  // A thread per stream, in order: streams run side by side.
  kWorker,
};

// The host's memory and processor as a device. Several may exist in one
// process, one per rank, each with accounts of its own. Freed memory is kept
// for the next allocation of the same size, but never more of it than is in use
// where the system is asked for more. Where sizes repeat from step to step and
// allocations name their first stream, no more is asked for than the accounts
// show. Thread-safe.
class CpuDevice final : public Device {
 public:
  struct Options {
    CpuStreams streams = CpuStreams::kInline;
    int64_t memory_limit_bytes = INT64_MAX;
    // The caller's, which outlives the device and keeps freed memory as it
    // likes; null: the system's.
    HostAllocator* allocator = nullptr;
    bool trace = false;  // fills trace(), without memory
  };

  CpuDevice() : CpuDevice(Options{}) {}
  explicit CpuDevice(Options options);
  ~CpuDevice() override;

  std::string name() const override { return "cpu"; }
  absl::StatusOr<std::unique_ptr<Stream>> NewStream(
      absl::string_view name) override;
  Kernels& kernels() override { return *kernels_; }
  int64_t NowNanos() const override;
  // With times of NowNanos; of all devices of the process.
  Trace trace() const override;
  void ClearTrace() override;

  // How often the system was asked for memory so far; never, where there is a
  // caller's allocator.
  int64_t system_allocations() const;

 private:
  void* DoAllocate(int64_t bytes, absl::string_view tag,
                   Stream* first_use) override;
  void DoFree(void* data, int64_t bytes, absl::string_view tag,
              Stream* after) override;

  const Options options_;
  const std::unique_ptr<Kernels> kernels_;
  const std::unique_ptr<internal::MemoryPool> pool_;
  const std::unique_ptr<internal::FreedBlocks> freed_;
  const std::unique_ptr<internal::CpuTracer> tracer_;  // null: no traces
  HostAllocator& allocator_;  // the pool or the caller's
};

}  // namespace tessera

#endif  // TESSERA_DEVICE_CPU_CPU_DEVICE_H_

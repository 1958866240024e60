#ifndef TESSERA_DEVICE_DEVICE_H_
#define TESSERA_DEVICE_DEVICE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tessera/device/kernels.h"
#include "tessera/device/memory.h"
#include "tessera/device/stream.h"
#include "tessera/device/trace.h"

namespace tessera {

// One rank's device: its memory, streams, kernels and clock. Everything above
// reaches memory and compute through it only, and never reads what a device
// pointer points to. Thread-safe. LIFETIME: outlives its streams and buffers.
class Device {
 public:
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // "cpu", "cuda:0", ...
  virtual std::string name() const = 0;

  // `bytes` of uninitialised memory, aligned to 128 bytes; 0 is legal. It may
  // be used on any stream; with `first_use`, on that one and behind it: then it
  // may be memory that was freed in the order of a stream which has not come
  // there yet (Buffer::ResetAfter), and `first_use` waits for that. ERRORS:
  // ResourceExhausted, with what was asked for, what is in use and the limit;
  // InvalidArgument for negative bytes.
  absl::StatusOr<Buffer> Allocate(int64_t bytes, absl::string_view tag,
                                  Stream* first_use = nullptr);

  // `bytes` of uninitialised memory of the host, at least one, for copies to
  // and from the device. ERRORS: ResourceExhausted; InvalidArgument below one
  // byte.
  absl::StatusOr<HostMemory> AllocateHost(int64_t bytes);

  // A stream of this device. Names appear in errors and traces.
  virtual absl::StatusOr<std::unique_ptr<Stream>> NewStream(
      absl::string_view name) = 0;

  virtual Kernels& kernels() = 0;

  MemoryReport memory() const { return accountant_.Report(); }
  void ResetMemoryPeaks() { accountant_.ResetPeaks(); }

  // Nanoseconds since some fixed point; real or simulated.
  virtual int64_t NowNanos() const = 0;

  // What the streams did since the device was made, or since the last
  // ClearTrace; empty where the device does not record it.
  virtual Trace trace() const { return {}; }
  // Begins a new trace now. What was enqueued before is not in it, even where
  // it still runs: synchronize streams first.
  virtual void ClearTrace() {}

 protected:
  // Allocations that would raise the total above `memory_limit_bytes` fail.
  explicit Device(int64_t memory_limit_bytes = INT64_MAX)
      : memory_limit_bytes_(memory_limit_bytes) {}

 private:
  friend class Buffer;
  friend class HostMemory;

  // Null where there is no memory; `first_use` is null where nothing is said.
  // REQUIRES: bytes > 0.
  virtual void* DoAllocate(int64_t bytes, absl::string_view tag,
                           Stream* first_use) = 0;
  // Frees at once, or in the order of `after` where it is not null.
  virtual void DoFree(void* data, int64_t bytes, absl::string_view tag,
                      Stream* after) = 0;

  // Null where there is no memory. REQUIRES: bytes > 0.
  virtual void* DoAllocateHost(int64_t bytes);
  virtual void DoFreeHost(void* data, int64_t bytes);

  const int64_t memory_limit_bytes_;
  MemoryAccountant accountant_;
};

}  // namespace tessera

#endif  // TESSERA_DEVICE_DEVICE_H_

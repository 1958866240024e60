#ifndef TESSERA_DEVICE_SIM_SIM_DEVICE_H_
#define TESSERA_DEVICE_SIM_SIM_DEVICE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "tessera/base/mutex.h"
#include "tessera/device/device.h"
#include "tessera/device/trace.h"

namespace tessera {

namespace internal {
class SimTimeline;
}  // namespace internal

// A device that does nothing but keep time and accounts: programs run on it as
// on any other, in no memory.
//
//   SimDevice device({.memory_bytes_per_second = 3'350'000'000'000,
//                     .flops_per_second = 400'000'000'000'000,
//                     .launch_ps = 2'000'000});
//   TESSERA_ASSIGN_OR_RETURN(auto stream, device.NewStream("compute"));
//   ...  // any program on `device` and `stream`
//   TESSERA_RETURN_IF_ERROR(stream->Synchronize());
//   const TraceTimes times = TimesOf(device.trace(), "compute");
//   device.memory()  // as on any device
//
// Time. The clock starts at 0 and is the host's: only waiting moves it on, to
// the time of what is waited for; all else that the host does takes no time.
// A launch begins once its stream is done with what came before, events
// included, and not before the host enqueues it. It takes
//
//   launch_ps + max(bytes / memory bandwidth, flops / flop rate)
//
// with bytes and flops as its descriptor says, rounded up to a picosecond.
// Streams do not slow each other down. Times beyond int64 are its greatest.
//
// Launches are not run: their bodies are destroyed. So no host memory is
// written either: what CopyToHost would bring stays as it was. Streams do not
// fail.
//
// Memory. Allocations are counted as on any device, have distinct addresses
// aligned to 128 bytes, and no memory behind them: reading or writing there is
// a fault. Addresses are not used twice.
//
// Thread-safe. REQUIRES: streams wait for events of simulated devices only.
class SimDevice final : public Device {
 public:
  struct Options {
    // Rates, at least 1. What has none takes no time.
    std::optional<int64_t> memory_bytes_per_second = std::nullopt;
    std::optional<int64_t> flops_per_second = std::nullopt;
    int64_t launch_ps = 0;  // of a launch; collectives have their own
    int64_t memory_limit_bytes = INT64_MAX;
    bool trace_memory = false;  // fills Trace::memory
  };

  SimDevice() : SimDevice(Options{}) {}
  explicit SimDevice(const Options& options);
  ~SimDevice() override;

  std::string name() const override { return "sim"; }
  absl::StatusOr<std::unique_ptr<Stream>> NewStream(
      absl::string_view name) override;
  Kernels& kernels() override { return *kernels_; }
  // The host's time, rounded down.
  int64_t NowNanos() const override;

  Trace trace() const override;
  void ClearTrace() override;

 private:
  void* DoAllocate(int64_t bytes, absl::string_view tag,
                   Stream* first_use) override;
  void DoFree(void* data, int64_t bytes, absl::string_view tag,
              Stream* after) override;

  const Options options_;
  const std::shared_ptr<internal::SimTimeline> timeline_;
  const std::unique_ptr<Kernels> kernels_;
  Mutex mutex_;
  int64_t next_address_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera

#endif  // TESSERA_DEVICE_SIM_SIM_DEVICE_H_

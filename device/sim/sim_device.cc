#include "tessera/device/sim/sim_device.h"

#include <utility>

#include "tessera/base/checked_math.h"
#include "tessera/device/sim/sim_stream.h"
#include "tessera/device/sim/sim_timeline.h"

namespace tessera {
namespace {

// What Device::Allocate promises.
constexpr int64_t kAlignment = 128;

// Addresses that systems give to no program: a processor that has so many
// bits of them keeps the upper half for the system.
constexpr int64_t kFirstAddress = int64_t{1} << 55;
constexpr int64_t kEndAddress = int64_t{1} << 56;

// Descriptions without work.
class SimKernels final : public Kernels {
 private:
  LaunchBody FillBody(Stream&, const TensorView&, double) override {
    return nullptr;
  }
  LaunchBody CopyBody(Stream&, const TensorView&, const TensorView&) override {
    return nullptr;
  }
  LaunchBody CastBody(Stream&, const TensorView&, const TensorView&) override {
    return nullptr;
  }
  LaunchBody ScaleBody(Stream&, const TensorView&, double) override {
    return nullptr;
  }
  LaunchBody AddBody(Stream&, const TensorView&, const TensorView&) override {
    return nullptr;
  }
  LaunchBody AccumulateScaledBody(Stream&, const TensorView&, const TensorView&,
                                  double) override {
    return nullptr;
  }
  LaunchBody SgdBody(Stream&, const TensorView&, const TensorView&,
                     const TensorView&, const SgdUpdate&) override {
    return nullptr;
  }
  LaunchBody AdamWBody(Stream&, const TensorView&, const TensorView&,
                       const TensorView&, const TensorView&,
                       const AdamWUpdate&) override {
    return nullptr;
  }
  LaunchBody AddSquaresBody(Stream&, const TensorView&,
                            const TensorView&) override {
    return nullptr;
  }
  LaunchBody CountNonFiniteBody(Stream&, const TensorView&,
                                const TensorView&) override {
    return nullptr;
  }
  LaunchBody ClipToNormBody(Stream&, const TensorView&, const TensorView&,
                            double) override {
    return nullptr;
  }
  LaunchBody CopyFromHostBody(Stream&, const TensorView&,
                              const void*) override {
    return nullptr;
  }
  LaunchBody CopyToHostBody(Stream&, void*, const TensorView&) override {
    return nullptr;
  }
};

internal::Rate RateOf(std::optional<int64_t> per_second) {
  return per_second.has_value() ? internal::Rate(*per_second)
                                : internal::Rate();
}

}  // namespace

SimDevice::SimDevice(const Options& options)
    : Device(options.memory_limit_bytes),
      options_(options),
      timeline_(std::make_shared<internal::SimTimeline>(options.trace_memory)),
      kernels_(std::make_unique<SimKernels>()),
      next_address_(kFirstAddress) {}

SimDevice::~SimDevice() = default;

absl::StatusOr<std::unique_ptr<Stream>> SimDevice::NewStream(
    absl::string_view name) {
  const internal::LaunchPrices prices = {
      .launch_ps = options_.launch_ps,
      .memory = RateOf(options_.memory_bytes_per_second),
      .compute = RateOf(options_.flops_per_second)};
  return std::make_unique<internal::SimStream>(*this, name, prices, timeline_);
}

int64_t SimDevice::NowNanos() const { return timeline_->host_ps() / 1000; }

Trace SimDevice::trace() const { return timeline_->trace(); }

void SimDevice::ClearTrace() { timeline_->Clear(); }

void* SimDevice::DoAllocate(int64_t bytes, absl::string_view tag, Stream*) {
  int64_t address = 0;
  {
    MutexLock lock(mutex_);
    if (bytes > kEndAddress - next_address_) return nullptr;
    address = next_address_;
    next_address_ += CeilDiv(bytes, kAlignment) * kAlignment;
  }
  timeline_->AddMemory(tag, bytes);
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

void SimDevice::DoFree(void*, int64_t bytes, absl::string_view tag,
                       Stream* after) {
  const int64_t free_ps =
      after == nullptr ? 0
                       : static_cast<internal::SimStream*>(after)->free_ps();
  timeline_->AddMemory(tag, -bytes, free_ps);
}

}  // namespace tessera

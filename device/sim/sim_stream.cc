#include "tessera/device/sim/sim_stream.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "tessera/base/checked_math.h"

namespace tessera::internal {

SimStream::SimStream(Device& device, absl::string_view name,
                     const LaunchPrices& prices,
                     std::shared_ptr<SimTimeline> timeline)
    : Stream(device, name),
      prices_(prices),
      timeline_(std::move(timeline)),
      index_(timeline_->AddStream(name)) {}

absl::Status SimStream::Launch(const LaunchDescriptor& descriptor, LaunchBody) {
  const int64_t work_ps = std::max(prices_.memory.TimeFor(descriptor.bytes),
                                   prices_.compute.TimeFor(descriptor.flops));
  free_ps_ =
      timeline_->Run(index_, descriptor.name, /*communicator=*/"", free_ps_,
                     SaturatingAdd(prices_.launch_ps, work_ps));
  return absl::OkStatus();
}

void SimStream::LaunchCollective(absl::string_view name,
                                 absl::string_view communicator,
                                 int64_t duration_ps) {
  free_ps_ = timeline_->Run(index_, name, communicator, free_ps_, duration_ps);
}

Event SimStream::Record() { return Event(timeline_, free_ps_); }

absl::Status SimStream::Wait(const Event& event) {
  if (event.state() == nullptr) return absl::OkStatus();
  assert(dynamic_cast<const SimTimeline*>(event.state().get()) != nullptr);
  free_ps_ = std::max(free_ps_, event.point());
  return absl::OkStatus();
}

absl::Status SimStream::Synchronize() {
  return timeline_->Synchronize(free_ps_);
}

void SimStream::BeginRange(absl::string_view action,
                           absl::string_view subject) {
  timeline_->BeginRange(index_, action, subject);
}

void SimStream::EndRange() { timeline_->EndRange(index_); }

}  // namespace tessera::internal

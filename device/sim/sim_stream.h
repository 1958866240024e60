#ifndef TESSERA_DEVICE_SIM_SIM_STREAM_H_
#define TESSERA_DEVICE_SIM_SIM_STREAM_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tessera/base/rate.h"
#include "tessera/device/sim/sim_timeline.h"
#include "tessera/device/stream.h"

namespace tessera::internal {

// What a launch costs.
struct LaunchPrices {
  int64_t launch_ps = 0;
  Rate memory;   // of bytes
  Rate compute;  // of flops
};

// A stream of a SimDevice: it only keeps the time at which it is free.
class SimStream final : public Stream {
 public:
  SimStream(Device& device, absl::string_view name, const LaunchPrices& prices,
            std::shared_ptr<SimTimeline> timeline);

  // When everything enqueued so far is done.
  int64_t free_ps() const { return free_ps_; }

  absl::Status Launch(const LaunchDescriptor& descriptor,
                      LaunchBody body) override;
  // Enqueues a collective that takes `duration_ps` once this rank has come to
  // it.
  void LaunchCollective(absl::string_view name, absl::string_view communicator,
                        int64_t duration_ps);
  Event Record() override;
  absl::Status Wait(const Event& event) override;
  absl::Status Synchronize() override;
  absl::Status status() const override { return absl::OkStatus(); }
  void BeginRange(absl::string_view action, absl::string_view subject) override;
  void EndRange() override;

 private:
  const LaunchPrices prices_;
  const std::shared_ptr<SimTimeline> timeline_;
  const int index_;  // in the trace
  int64_t free_ps_ = 0;
};

}  // namespace tessera::internal

#endif  // TESSERA_DEVICE_SIM_SIM_STREAM_H_

#ifndef TESSERA_TESTING_SCHEDULED_DEVICE_H_
#define TESSERA_TESTING_SCHEDULED_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tessera/base/inline_function.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tessera/device/device.h"
#include "tessera/device/stream.h"
#include "tessera/testing/race_detector.h"
#include "tessera/testing/scheduler.h"

namespace tessera::testing {

// One rank's device whose streams are queues of a scheduler, on the host's
// memory and with the CPU's kernels. A detector hears of all that is enqueued,
// allocated and freed; to allocate for a stream that uses the memory first is
// an operation of that stream, "allocate", which writes it.
//
// Memory is never used twice: what is new, and what was freed, is full of
// poison, bytes of 0xff, NaN in every floating dtype. So is a guard around it.
// Bytes of either that are written are reported when the device is destroyed.
//
// Used by the host whose turn it is. LIFETIME: borrows both, which outlive its
// events, too.
class ScheduledDevice final : public Device {
 public:
  // `name` is the rank's, "rank 0".
  ScheduledDevice(std::string name, Scheduler& scheduler,
                  RaceDetector& detector, int64_t memory_limit_bytes)
      : Device(memory_limit_bytes),
        name_(std::move(name)),
        scheduler_(scheduler),
        detector_(detector) {}
  ~ScheduledDevice() override;

  std::string name() const override { return name_; }
  absl::StatusOr<std::unique_ptr<Stream>> NewStream(
      absl::string_view name) override;
  Kernels& kernels() override { return cpu_.kernels(); }
  // Steps of the scheduler so far.
  int64_t NowNanos() const override {
    return static_cast<int64_t>(scheduler_.steps().size());
  }

 private:
  // An allocation between its guards.
  struct Block {
    // None where there is no memory.
    static std::optional<Block> Create(int64_t bytes);

    std::byte* data() const;
    bool IsPoison(int64_t begin, int64_t end) const;  // bytes from data()

    int64_t bytes = 0;
    bool freed = false;
    std::string tag;
    std::vector<std::byte> memory;
  };

  void* DoAllocate(int64_t bytes, absl::string_view tag,
                   Stream* first_use) override;
  void DoFree(void* data, int64_t bytes, absl::string_view tag,
              Stream* after) override;
  void Poison(void* data);

  const std::string name_;
  Scheduler& scheduler_;
  RaceDetector& detector_;
  CpuDevice cpu_;  // for its kernels
  std::map<void*, Block> blocks_;
};

// A stream of a ScheduledDevice.
class ScheduledStream final : public Stream {
 public:
  // Does the work of an operation, given the stream's error so far, and returns
  // its own. Called on a failed stream, too.
  using Body = InlineFunction<absl::Status(const absl::Status&), 64>;

  ScheduledStream(Device& device, absl::string_view name, Scheduler& scheduler,
                  RaceDetector& detector);
  ~ScheduledStream() override;

  absl::Status Launch(const LaunchDescriptor& descriptor,
                      LaunchBody body) override;
  Event Record() override;
  absl::Status Wait(const Event& event) override;
  absl::Status Synchronize() override;
  absl::Status status() const override;

  // An operation that runs once `ready` holds; without waiting for that where
  // the stream has failed.
  absl::Status LaunchWhen(const LaunchDescriptor& descriptor,
                          std::function<bool()> ready, Body body);
  // In the detector.
  int number() const;

  // Frees the allocation at `data`, and runs `body`, in the stream's order.
  void Free(const void* data, std::function<void()> body);

  // How many operations and waits the stream was given, and has done.
  int64_t pushed() const;
  int64_t done() const;

 private:
  // What events share with the stream, and may keep longer.
  struct Progress;
  class Passing;

  // Behind what was pushed so far.
  void Push(absl::string_view name, std::function<bool()> ready, Body body);
  // Lets others go first, then returns the error.
  absl::Status Yield();

  const std::shared_ptr<Progress> progress_;
};

}  // namespace tessera::testing

#endif  // TESSERA_TESTING_SCHEDULED_DEVICE_H_

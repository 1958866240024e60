#ifndef TESSERA_TESTS_DEVICE_RECORDING_STREAM_H_
#define TESSERA_TESTS_DEVICE_RECORDING_STREAM_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tessera/device/stream.h"

namespace tessera::testing {

// A stream that notes its launches, and runs them when told to.
class RecordingStream final : public Stream {
 public:
  struct Launched {
    std::string name;
    std::vector<MemoryRange> reads;
    std::vector<MemoryRange> writes;
    int64_t bytes;
    int64_t flops;
    LaunchBody body;
  };

  explicit RecordingStream(Device& device) : Stream(device, "recording") {}

  absl::Status Launch(const LaunchDescriptor& descriptor,
                      LaunchBody body) override {
    launches.push_back({std::string(descriptor.name),
                        {descriptor.reads.begin(), descriptor.reads.end()},
                        {descriptor.writes.begin(), descriptor.writes.end()},
                        descriptor.bytes,
                        descriptor.flops,
                        std::move(body)});
    return absl::OkStatus();
  }
  Event Record() override { return Event(); }
  absl::Status Wait(const Event& event) override { return event.Synchronize(); }
  absl::Status Synchronize() override { return absl::OkStatus(); }
  absl::Status status() const override { return absl::OkStatus(); }

  std::vector<Launched> launches;
};

}  // namespace tessera::testing

#endif  // TESSERA_TESTS_DEVICE_RECORDING_STREAM_H_

#ifndef TESSERA_TESTS_WATCHED_STREAM_H_
#define TESSERA_TESTS_WATCHED_STREAM_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tessera/device/stream.h"

namespace tessera::testing {

// Passes everything on and writes down what was launched.
class WatchedStream : public Stream {
 public:
  explicit WatchedStream(Stream& inner)
      : Stream(inner.device(), "watched"), inner_(inner) {}

  absl::Status Launch(const LaunchDescriptor& descriptor,
                      LaunchBody body) override {
    launches.emplace_back(descriptor.name);
    if (descriptor.name == "copy") copied_bytes += descriptor.bytes / 2;
    for (const auto& ranges : {descriptor.reads, descriptor.writes}) {
      touched.insert(touched.end(), ranges.begin(), ranges.end());
    }
    return inner_.Launch(descriptor, std::move(body));
  }
  Event Record() override { return inner_.Record(); }
  absl::Status Wait(const Event& event) override { return inner_.Wait(event); }
  absl::Status Synchronize() override { return inner_.Synchronize(); }
  absl::Status status() const override { return inner_.status(); }

  std::vector<std::string> launches;
  // Copied from one place on this rank to another: a copy reads and writes.
  int64_t copied_bytes = 0;
  std::vector<MemoryRange> touched;  // read and written, by all launches

 private:
  Stream& inner_;
};

}  // namespace tessera::testing

#endif  // TESSERA_TESTS_WATCHED_STREAM_H_

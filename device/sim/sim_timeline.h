#ifndef TESSERA_DEVICE_SIM_SIM_TIMELINE_H_
#define TESSERA_DEVICE_SIM_SIM_TIMELINE_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tessera/base/mutex.h"
#include "tessera/device/stream.h"
#include "tessera/device/trace.h"
#include "tessera/device/trace_builder.h"

namespace tessera::internal {

// The clock of one simulated device and what it recorded. Its streams and
// events share it: the point of an event is its time in picoseconds.
// Thread-safe.
class SimTimeline final : public Event::State {
 public:
  // Whether AddMemory records.
  explicit SimTimeline(bool traces_memory) : traces_memory_(traces_memory) {}

  // The host waits until `time_ps`.
  absl::Status Synchronize(int64_t time_ps) override;
  int64_t host_ps() const;

  // The index of a new stream.
  int AddStream(absl::string_view name);
  void BeginRange(int stream, absl::string_view action,
                  absl::string_view subject);
  void EndRange(int stream);
  // Runs what takes `duration_ps` on a stream that is free from `free_ps` on.
  // Returns its end.
  int64_t Run(int stream, absl::string_view name,
              absl::string_view communicator, int64_t free_ps,
              int64_t duration_ps);

  // From the host's time on, or from `from_ps` where that is later, so many
  // more bytes are allocated, or fewer where `bytes` is negative.
  void AddMemory(absl::string_view tag, int64_t bytes, int64_t from_ps = 0);

  Trace trace() const;
  void Clear();

 private:
  const bool traces_memory_;
  mutable Mutex mutex_;
  int64_t host_ps_ ABSL_GUARDED_BY(mutex_) = 0;
  TraceBuilder trace_ ABSL_GUARDED_BY(mutex_);
  // Changes of allocated bytes, by time and tag.
  std::map<std::pair<int64_t, std::string>, int64_t> memory_changes_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera::internal

#endif  // TESSERA_DEVICE_SIM_SIM_TIMELINE_H_

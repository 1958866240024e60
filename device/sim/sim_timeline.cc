#include "tessera/device/sim/sim_timeline.h"

#include <algorithm>
#include <utility>

#include "tessera/base/checked_math.h"

namespace tessera::internal {

absl::Status SimTimeline::Synchronize(int64_t time_ps) {
  MutexLock lock(mutex_);
  host_ps_ = std::max(host_ps_, time_ps);
  return absl::OkStatus();
}

int64_t SimTimeline::host_ps() const {
  MutexLock lock(mutex_);
  return host_ps_;
}

int SimTimeline::AddStream(absl::string_view name) {
  MutexLock lock(mutex_);
  return trace_.AddStream(name);
}

void SimTimeline::BeginRange(int stream, absl::string_view action,
                             absl::string_view subject) {
  MutexLock lock(mutex_);
  trace_.BeginRange(stream, action, subject);
}

void SimTimeline::EndRange(int stream) {
  MutexLock lock(mutex_);
  trace_.EndRange(stream);
}

int64_t SimTimeline::Run(int stream, absl::string_view name,
                         absl::string_view communicator, int64_t free_ps,
                         int64_t duration_ps) {
  MutexLock lock(mutex_);
  const int64_t begin = std::max(free_ps, host_ps_);
  const int64_t end = SaturatingAdd(begin, duration_ps);
  trace_.SetTimes(trace_.AddOperation(stream, name, communicator), begin, end);
  return end;
}

void SimTimeline::AddMemory(absl::string_view tag, int64_t bytes,
                            int64_t from_ps) {
  if (!traces_memory_) return;
  MutexLock lock(mutex_);
  memory_changes_[{std::max(from_ps, host_ps_), std::string(tag)}] += bytes;
}

Trace SimTimeline::trace() const {
  MutexLock lock(mutex_);
  Trace trace = trace_.trace();
  std::map<std::string, int64_t> allocated;  // by tag
  for (const auto& [key, change] : memory_changes_) {
    const auto& [time_ps, tag] = key;
    if (change == 0) continue;
    allocated[tag] += change;
    trace.memory.push_back({time_ps, tag, allocated[tag]});
  }
  return trace;
}

void SimTimeline::Clear() {
  MutexLock lock(mutex_);
  trace_.Clear(host_ps_);
  // What is allocated now, the new trace begins with.
  std::map<std::pair<int64_t, std::string>, int64_t> changes;
  for (const auto& [key, change] : memory_changes_) {
    const auto& [time_ps, tag] = key;
    changes[{std::max(time_ps, host_ps_), tag}] += change;
  }
  memory_changes_ = std::move(changes);
}

}  // namespace tessera::internal

#include "tessera/testing/stream_order.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tessera::testing {

// VectorClock.

int64_t VectorClock::at(int stream) const {
  return stream < static_cast<int>(counts_.size()) ? counts_[stream] : 0;
}

int64_t VectorClock::Advance(int stream) {
  if (stream >= static_cast<int>(counts_.size())) counts_.resize(stream + 1);
  return ++counts_[stream];
}

void VectorClock::Join(const VectorClock& other) {
  if (counts_.size() < other.counts_.size()) {
    counts_.resize(other.counts_.size());
  }
  for (size_t i = 0; i < other.counts_.size(); ++i) {
    counts_[i] = std::max(counts_[i], other.counts_[i]);
  }
}

bool VectorClock::Covers(const VectorClock& other) const {
  for (size_t i = 0; i < other.counts_.size(); ++i) {
    if (at(static_cast<int>(i)) < other.counts_[i]) return false;
  }
  return true;
}

// StreamOrder.

int StreamOrder::AddStream(absl::string_view name) {
  names_.emplace_back(name);
  last_.emplace_back();
  without_after_.emplace_back();
  now_.streams.emplace_back();
  return static_cast<int>(names_.size()) - 1;
}

StreamOrder::Operation StreamOrder::Launch(int stream, absl::string_view name) {
  Take({.kind = Kind::kLaunch, .stream = stream});
  const VectorClock& clock = now_.streams[stream];
  last_[stream] = absl::StrCat(name, " #", clock.at(stream));
  for (size_t wait : without_after_[stream]) {
    waits_[wait].after = last_[stream];
  }
  without_after_[stream].clear();
  return {last_[stream], stream, clock};
}

StreamOrder::Point StreamOrder::Record(int stream) {
  Take({.kind = Kind::kRecord, .stream = stream});
  return {stream, static_cast<int64_t>(now_.records.size()) - 1, last_[stream]};
}

bool StreamOrder::Wait(int stream, const Point* point) {
  const size_t call = waits_.size();
  StreamWait& wait = waits_.emplace_back();
  wait.stream = names_[stream];
  without_after_[stream].push_back(call);
  wait_steps_.emplace_back();
  if (point != nullptr) {
    wait.recorded_on = names_[point->stream];
    wait.before = point->before;
  }
  if (drop_wait_ == static_cast<int64_t>(call)) return false;
  if (point == nullptr) return true;
  wait_steps_.back() = steps_.size();
  Take({.kind = Kind::kWait, .stream = stream, .record = point->record});
  return true;
}

void StreamOrder::SynchronizeHost(const Point& point) {
  Take({.kind = Kind::kSynchronizeHost, .record = point.record});
}

void StreamOrder::Take(const Step& step) {
  steps_.push_back(step);
  Apply(step, now_);
}

const VectorClock& StreamOrder::Apply(const Step& step, State& state) {
  VectorClock& stream = state.streams[step.stream];
  switch (step.kind) {
    case Kind::kLaunch:
      stream.Join(state.host);
      stream.Advance(step.stream);
      break;
    case Kind::kRecord:
      state.records.push_back(stream);
      break;
    case Kind::kWait:
      stream.Join(state.records[step.record]);
      break;
    case Kind::kSynchronizeHost:
      state.host.Join(state.records[step.record]);
      return state.host;
  }
  return stream;
}

std::vector<VectorClock> StreamOrder::Replay(
    std::optional<size_t> left_out) const {
  State state;
  state.streams.resize(names_.size());
  std::vector<VectorClock> clocks;
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (i == left_out) continue;
    const VectorClock& clock = Apply(steps_[i], state);
    if (steps_[i].kind == Kind::kLaunch ||
        steps_[i].kind == Kind::kSynchronizeHost) {
      clocks.push_back(clock);
    }
  }
  return clocks;
}

std::vector<StreamWait> StreamOrder::Waits() const {
  std::vector<StreamWait> waits = waits_;
  const std::vector<VectorClock> clocks = Replay(std::nullopt);
  for (size_t call = 0; call < waits.size(); ++call) {
    const bool dropped = drop_wait_ == static_cast<int64_t>(call);
    const std::optional<size_t>& step = wait_steps_[call];
    waits[call].redundant =
        !dropped && (!step.has_value() || Replay(step) == clocks);
  }
  return waits;
}

}  // namespace tessera::testing

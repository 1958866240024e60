#include "tessera/testing/race_detector.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace tessera::testing {
namespace {

absl::string_view Verb(bool writes) { return writes ? " writes" : " reads"; }

std::string Bytes(Interval range) {
  return absl::StrCat(" bytes ", range.ToString());
}

bool Contains(Interval a, Interval b) {
  return a.begin <= b.begin && b.end <= a.end;
}

bool IsNothing(const MemoryRange& range) {
  return range.begin == nullptr || range.bytes == 0;
}

uintptr_t AddressOf(const void* p) { return reinterpret_cast<uintptr_t>(p); }

// Where `range` lies, counted from `begin`.
Interval OffsetsOf(const MemoryRange& range, uintptr_t begin) {
  const auto first = static_cast<int64_t>(AddressOf(range.begin) - begin);
  return {first, first + range.bytes};
}

}  // namespace

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

// RaceDetector: order.

int RaceDetector::AddStream(absl::string_view name) {
  streams_.emplace_back().name = std::string(name);
  return static_cast<int>(streams_.size()) - 1;
}

void RaceDetector::Settle(StreamState& stream) {
  stream.clock.Join(host_);
  VectorClock all = stream.clock;
  for (const PendingWait& wait : stream.pending) all.Join(wait.clock);
  for (const PendingWait& wait : stream.pending) {
    VectorClock without = stream.clock;
    for (const PendingWait& other : stream.pending) {
      if (&other != &wait) without.Join(other.clock);
    }
    waits_[wait.index].redundant = without.Covers(wait.clock);
  }
  stream.pending.clear();
  stream.clock = std::move(all);
}

RaceDetector::OperationRef RaceDetector::Enqueue(int stream,
                                                 absl::string_view name) {
  StreamState& state = streams_[stream];
  Settle(state);
  const int64_t number = state.clock.Advance(stream);
  state.last = absl::StrCat(name, " #", number);
  for (size_t wait : state.without_after) waits_[wait].after = state.last;
  state.without_after.clear();
  return std::make_shared<Operation>(Operation{state.last, stream, number});
}

void RaceDetector::Launch(int stream, absl::string_view name,
                          absl::Span<const MemoryRange> reads,
                          absl::Span<const MemoryRange> writes) {
  const OperationRef operation = Enqueue(stream, name);
  for (const MemoryRange& range : reads) Check(operation, range, false);
  for (const MemoryRange& range : writes) Check(operation, range, true);
  for (const MemoryRange& range : reads) Keep(operation, range, false);
  for (const MemoryRange& range : writes) Keep(operation, range, true);
}

RaceDetector::Point RaceDetector::Record(int stream) {
  StreamState& state = streams_[stream];
  Settle(state);
  return {state.clock, state.name, state.last};
}

bool RaceDetector::Wait(int stream, const Point* point) {
  const size_t index = waits_.size();
  StreamState& state = streams_[stream];
  StreamWait& wait = waits_.emplace_back();
  wait.stream = state.name;
  state.without_after.push_back(index);
  if (point != nullptr) {
    wait.recorded_on = point->stream;
    wait.before = point->before;
  }
  if (options_.drop_wait == static_cast<int64_t>(index)) return false;
  state.pending.push_back(
      {index, point == nullptr ? VectorClock() : point->clock});
  return true;
}

void RaceDetector::SynchronizeHost(const Point& point) {
  host_.Join(point.clock);
}

// RaceDetector: memory.

void RaceDetector::Allocate(const void* begin, int64_t bytes,
                            absl::string_view tag) {
  Allocation& allocation = allocations_[AddressOf(begin)];
  allocation.number = static_cast<int64_t>(allocations_.size()) - 1;
  allocation.begin = AddressOf(begin);
  allocation.bytes = bytes;
  allocation.tag = std::string(tag);
}

RaceDetector::Allocation& RaceDetector::AllocationOf(const MemoryRange& range) {
  const uintptr_t begin = AddressOf(range.begin);
  const auto next = allocations_.upper_bound(begin);
  if (next != allocations_.begin()) {
    Allocation& last = std::prev(next)->second;
    if (begin < last.begin + last.bytes + kGuardBytes) return last;
  }
  if (next != allocations_.end() && begin + kGuardBytes >= next->first) {
    return next->second;
  }
  return callers_;
}

void RaceDetector::Check(const OperationRef& operation,
                         const MemoryRange& range, bool writes) {
  if (IsNothing(range)) return;
  const Allocation& allocation = AllocationOf(range);
  const Interval offsets = OffsetsOf(range, allocation.begin);
  const std::string access =
      absl::StrCat(Describe(operation), Verb(writes), Bytes(offsets), " of ",
                   Describe(allocation));
  if (!Contains({0, allocation.bytes}, offsets)) {
    return Report(absl::StrCat(access, ", which has ", allocation.bytes));
  }
  if (!allocation.freed.empty()) {
    return Report(absl::StrCat(access, ", which ", allocation.freed));
  }
  for (const Access& other : allocation.accesses) {
    if (!writes && !other.writes) continue;
    if (Intersect(other.range, offsets).empty()) continue;
    if (IsBefore(other, ClockOf(operation))) continue;
    Report(absl::StrCat(access, ", not ordered after ", Describe(other.by),
                        ", which", Verb(other.writes), Bytes(other.range)));
  }
}

void RaceDetector::Keep(const OperationRef& operation, const MemoryRange& range,
                        bool writes) {
  if (IsNothing(range)) return;
  Allocation& allocation = AllocationOf(range);
  const Interval offsets = OffsetsOf(range, allocation.begin);
  // What conflicts with an access that goes, and is not ordered after it, does
  // and is so with this one.
  std::erase_if(allocation.accesses, [&](const Access& other) {
    return Contains(offsets, other.range) && (writes || !other.writes) &&
           IsBefore(other, ClockOf(operation));
  });
  allocation.accesses.push_back({operation, writes, offsets});
}

RaceDetector::Allocation* RaceDetector::LiveAllocation(
    const void* begin, absl::string_view freer) {
  const auto found = allocations_.find(AddressOf(begin));
  if (found == allocations_.end()) {
    Report(absl::StrCat(freer, " frees memory that was never allocated"));
    return nullptr;
  }
  Allocation& allocation = found->second;
  if (allocation.freed.empty()) return &allocation;
  Report(absl::StrCat(freer, " frees ", Describe(allocation), ", which ",
                      allocation.freed));
  return nullptr;
}

void RaceDetector::FreeOnHost(const void* begin) {
  Allocation* const allocation = LiveAllocation(begin, "the host");
  if (allocation == nullptr) return;
  for (const Access& access : allocation->accesses) {
    if (IsBefore(access, host_)) continue;
    Report(absl::StrCat("the host frees ", Describe(*allocation),
                        ", not ordered after ", Describe(access.by), ", which",
                        Verb(access.writes), Bytes(access.range)));
  }
  allocation->freed = "the host has freed";
}

void RaceDetector::FreeOnStream(const void* begin, int stream) {
  const OperationRef operation = Enqueue(stream, "free");
  Allocation* const allocation = LiveAllocation(begin, Describe(operation));
  if (allocation == nullptr) return;
  Check(operation, {begin, allocation->bytes}, /*writes=*/true);
  allocation->freed = absl::StrCat(Describe(operation), " has freed");
}

// RaceDetector: reports.

void RaceDetector::Report(absl::string_view problem) {
  if (num_problems_++ >= options_.max_problems) return;
  problems_.push_back(absl::StrCat(options_.device, ": ", problem));
}

std::string RaceDetector::Describe(const OperationRef& operation) const {
  return absl::StrCat(operation->name, " on '",
                      streams_[operation->stream].name, "'");
}

std::string RaceDetector::Describe(const Allocation& allocation) {
  if (allocation.begin == 0) return "the caller's memory";
  return absl::StrCat("'", allocation.tag, "' (allocation ", allocation.number,
                      ")");
}

}  // namespace tessera::testing

#include "tessera/testing/race_detector.h"

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

bool IsBefore(const StreamOrder::Operation& operation,
              const VectorClock& clock) {
  return clock.at(operation.stream) >= operation.number();
}

// Where `range` lies, counted from `begin`.
Interval OffsetsOf(const MemoryRange& range, uintptr_t begin) {
  const auto first = static_cast<int64_t>(AddressOf(range.begin) - begin);
  return {first, first + range.bytes};
}

}  // namespace

RaceDetector::RaceDetector(const Options& options)
    : device_(options.device),
      max_problems_(options.max_problems),
      order_(options.drop_wait) {
  callers_.bytes = INT64_MAX;
}

RaceDetector::OperationRef RaceDetector::Enqueue(int stream,
                                                 absl::string_view name) {
  return std::make_shared<StreamOrder::Operation>(order_.Launch(stream, name));
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

// Memory.

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
    if (IsBefore(*other.by, operation->clock)) continue;
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
           IsBefore(*other.by, operation->clock);
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
    if (IsBefore(*access.by, order_.host())) continue;
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

// Reports.

void RaceDetector::Report(absl::string_view problem) {
  if (num_problems_++ >= max_problems_) return;
  problems_.push_back(absl::StrCat(device_, ": ", problem));
}

std::string RaceDetector::Describe(const OperationRef& operation) const {
  return absl::StrCat(operation->name, " on '", order_.name(operation->stream),
                      "'");
}

std::string RaceDetector::Describe(const Allocation& allocation) {
  if (allocation.begin == 0) return "the caller's memory";
  return absl::StrCat("'", allocation.tag, "' (allocation ", allocation.number,
                      ")");
}

}  // namespace tessera::testing

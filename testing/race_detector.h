#ifndef TESSERA_TESTING_RACE_DETECTOR_H_
#define TESSERA_TESTING_RACE_DETECTOR_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tessera/device/stream.h"
#include "tessera/tensor/index.h"

namespace tessera::testing {

// A point in the order of the operations of several streams: by stream, how
// many of its operations lie before.
class VectorClock {
 public:
  int64_t at(int stream) const;
  // One more operation of `stream`; returns its number, the first being 1.
  int64_t Advance(int stream);
  // All that lies before `other` lies before this, too.
  void Join(const VectorClock& other);
  bool Covers(const VectorClock& other) const;

 private:
  std::vector<int64_t> counts_;  // 0 beyond the end
};

// One call of Stream::Wait, and what it is for.
struct StreamWait {
  std::string stream;       // that waits
  std::string recorded_on;  // the stream of the event; "" where it had passed
  // The last operation in front of the event, and the first one behind the
  // wait; "" where there is none. Operations are named "copy #3": the third of
  // its stream.
  std::string before;
  std::string after;
  // Other order implies it: without this one wait, every operation would still
  // come after the same others.
  bool redundant = false;
};

// Says which operations on one device's memory are not ordered. Pure: it runs
// nothing and touches no memory; it is told, in the order of the host's calls,
// what streams are given.
//
// An operation comes after
// * the earlier ones of its stream,
// * what lies before the events that its stream waited for,
// * what the host had waited for when it enqueued it,
// and after nothing else: not after what the host enqueued earlier on another
// stream, nor, through a collective, after anything on another rank. So what is
// found does not depend on how the streams happen to run.
//
// These are problems:
// * two operations that access a byte, one of them writing, and are not
//   ordered. Ranges count as declared, from first to last byte. Where several
//   ordered accesses came before, the last is named.
// * memory that is freed, on the host or behind a stream, while an operation on
//   it is not ordered before that; or that is used afterwards, or freed twice.
// * an access that begins in an allocation, or up to kGuardBytes beside it, and
//   does not lie within. What begins elsewhere is the caller's memory, of which
//   only the order of accesses is checked.
//
// Not thread-safe.
class RaceDetector {
 public:
  static constexpr int64_t kGuardBytes = 128;

  struct Options {
    std::string device = "rank 0";  // begins every problem
    // The call of Wait to leave out, from 0.
    std::optional<int64_t> drop_wait = std::nullopt;
    int max_problems = 20;  // that are kept
  };

  // What lies in front of an event.
  struct Point {
    VectorClock clock;
    std::string stream;
    std::string before;  // the last operation of the stream
  };

  explicit RaceDetector(Options options) : options_(std::move(options)) {
    callers_.bytes = INT64_MAX;
  }

  // Returns the stream's number.
  int AddStream(absl::string_view name);

  // The host enqueues an operation on `stream`.
  void Launch(int stream, absl::string_view name,
              absl::Span<const MemoryRange> reads,
              absl::Span<const MemoryRange> writes);
  Point Record(int stream);
  // `stream` waits; without a point, for an event that has always passed.
  // Returns false for the one to leave out: then the stream must not wait.
  bool Wait(int stream, const Point* point);
  // The host waits.
  void SynchronizeHost(const Point& point);

  // REQUIRES: no memory of an allocation before, nor kGuardBytes of it.
  void Allocate(const void* begin, int64_t bytes, absl::string_view tag);
  // The allocation at `begin` is freed at once, or as an operation of `stream`.
  void FreeOnHost(const void* begin);
  void FreeOnStream(const void* begin, int stream);

  // A problem that somebody else has found.
  void Report(absl::string_view problem);

  // The first max_problems, as they were found, e.g.
  // "rank 0: fill #2 on 'gather' writes bytes [0,64) of 'weights' (allocation
  // 3), not ordered after copy #7 on 'compute', which reads bytes [0,128)".
  const std::vector<std::string>& problems() const { return problems_; }
  int64_t num_problems() const { return num_problems_; }
  // Every call of Wait, the one left out included.
  const std::vector<StreamWait>& waits() const { return waits_; }

 private:
  struct Operation {
    std::string name;  // "copy #3"
    int stream;
    int64_t number;
  };
  using OperationRef = std::shared_ptr<const Operation>;

  struct Access {
    OperationRef by;
    bool writes;
    Interval range;  // of bytes in the allocation
  };

  struct Allocation {
    int64_t number = 0;
    uintptr_t begin = 0;
    int64_t bytes = 0;
    std::string tag;
    // Those that later ones may conflict with.
    std::vector<Access> accesses;
    std::string freed;  // how; "" where it is not
  };

  // A wait behind which nothing has been enqueued yet.
  struct PendingWait {
    size_t index;  // in waits_
    VectorClock clock;
  };

  struct StreamState {
    std::string name;
    VectorClock clock;  // without the pending waits
    std::vector<PendingWait> pending;
    std::vector<size_t> without_after;  // waits behind which no operation is
    std::string last;                   // operation
  };

  // Joins what lies before the next operation or event on `stream`.
  void Settle(StreamState& stream);
  // The next operation of `stream`.
  OperationRef Enqueue(int stream, absl::string_view name);
  void Check(const OperationRef& operation, const MemoryRange& range,
             bool writes);
  void Keep(const OperationRef& operation, const MemoryRange& range,
            bool writes);
  // What `range` begins in or beside, else the caller's memory.
  Allocation& AllocationOf(const MemoryRange& range);
  Allocation* LiveAllocation(const void* begin, absl::string_view freer);
  bool IsBefore(const Access& access, const VectorClock& clock) const {
    return clock.at(access.by->stream) >= access.by->number;
  }
  const VectorClock& ClockOf(const OperationRef& operation) const {
    return streams_[operation->stream].clock;
  }

  std::string Describe(const OperationRef& operation) const;
  static std::string Describe(const Allocation& allocation);

  const Options options_;
  std::vector<StreamState> streams_;
  VectorClock host_;                             // what the host has waited for
  std::map<uintptr_t, Allocation> allocations_;  // by begin
  Allocation callers_;                           // all the rest
  std::vector<std::string> problems_;
  int64_t num_problems_ = 0;
  std::vector<StreamWait> waits_;
};

}  // namespace tessera::testing

#endif  // TESSERA_TESTING_RACE_DETECTOR_H_

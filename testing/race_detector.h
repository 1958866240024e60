#ifndef TESSERA_TESTING_RACE_DETECTOR_H_
#define TESSERA_TESTING_RACE_DETECTOR_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tessera/device/stream.h"
#include "tessera/tensor/index.h"
#include "tessera/testing/stream_order.h"

namespace tessera::testing {

// Says which operations on one device's memory are not ordered. Pure: it runs
// nothing and touches no memory; it is told, in the order of the host's calls,
// what streams are given.
//
// What comes before what, StreamOrder says.
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

  explicit RaceDetector(const Options& options);

  // As those of StreamOrder.
  int AddStream(absl::string_view name) { return order_.AddStream(name); }
  StreamOrder::Point Record(int stream) { return order_.Record(stream); }
  bool Wait(int stream, const StreamOrder::Point* point) {
    return order_.Wait(stream, point);
  }
  void SynchronizeHost(const StreamOrder::Point& point) {
    order_.SynchronizeHost(point);
  }
  std::vector<StreamWait> Waits() const { return order_.Waits(); }

  // The host enqueues an operation on `stream`.
  void Launch(int stream, absl::string_view name,
              absl::Span<const MemoryRange> reads,
              absl::Span<const MemoryRange> writes);

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

 private:
  using OperationRef = std::shared_ptr<const StreamOrder::Operation>;

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

  OperationRef Enqueue(int stream, absl::string_view name);
  void Check(const OperationRef& operation, const MemoryRange& range,
             bool writes);
  void Keep(const OperationRef& operation, const MemoryRange& range,
            bool writes);
  // What `range` begins in or beside, else the caller's memory.
  Allocation& AllocationOf(const MemoryRange& range);
  Allocation* LiveAllocation(const void* begin, absl::string_view freer);
  std::string Describe(const OperationRef& operation) const;
  static std::string Describe(const Allocation& allocation);

  const std::string device_;
  const int max_problems_;
  StreamOrder order_;
  std::map<uintptr_t, Allocation> allocations_;  // by begin
  Allocation callers_;                           // all the rest
  std::vector<std::string> problems_;
  int64_t num_problems_ = 0;
};

}  // namespace tessera::testing

#endif  // TESSERA_TESTING_RACE_DETECTOR_H_

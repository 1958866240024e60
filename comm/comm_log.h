#ifndef TESSERA_COMM_COMM_LOG_H_
#define TESSERA_COMM_COMM_LOG_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "tessera/base/mutex.h"
#include "tessera/comm/collective.h"
#include "tessera/tensor/dtype.h"

namespace tessera {

// One collective as one rank enqueued it.
struct CollectiveRecord {
  int64_t sequence = 0;      // of its launch on its communicator, from 0
  std::string communicator;  // the communicator's name: its mesh axes
  CollectiveKind kind = CollectiveKind::kBarrier;
  ReduceOp op = ReduceOp::kSum;
  DType dtype = DType::kF32;
  int64_t elements = 0;  // of the larger of send and recv
  int64_t bytes_received = 0;
  int group_size = 1;

  std::string ToString() const;  // "dp_inner #3 reduce_scatter sum f32 96"
};

struct CommCounter {
  int64_t calls = 0;
  int64_t bytes_received = 0;
  friend bool operator==(const CommCounter&, const CommCounter&) = default;
};

// What one rank has issued on all its communicators, calls that an aborted
// group refused included: counters per (communicator name, kind), and the last
// records. Every collective appears
// exactly once; groups of one rank and barriers issue none and do not appear.
// Thread-safe.
class CommLog {
 public:
  // Keeps the last `ring_size` records.
  explicit CommLog(size_t ring_size = 1024) : ring_size_(ring_size) {
    ring_.reserve(ring_size);
  }

  using Key = std::pair<std::string, CollectiveKind>;
  using KeyView = std::pair<absl::string_view, CollectiveKind>;
  // Finds a key by its view.
  struct KeyLess {
    using is_transparent = void;
    bool operator()(const KeyView& a, const KeyView& b) const { return a < b; }
  };
  using Counters = std::map<Key, CommCounter, KeyLess>;

  // Allocates only for the first record of a communicator and kind.
  void Append(const CollectiveRecord& record);
  Counters counters() const;
  // The last records, oldest first, in the order they were enqueued.
  std::vector<CollectiveRecord> recent() const;
  // Counters to zero, no records.
  void Clear();

 private:
  // A record without its name, which its counter has.
  struct Entry {
    Counters::const_iterator counter;
    int64_t sequence;
    ReduceOp op;
    DType dtype;
    int64_t elements;
    int64_t bytes_received;
    int group_size;
  };
  static CollectiveRecord RecordOf(const Entry& entry);

  const size_t ring_size_;
  mutable Mutex mutex_;
  Counters counters_ ABSL_GUARDED_BY(mutex_);
  // The last records; once there are ring_size_, the oldest is at oldest_.
  std::vector<Entry> ring_ ABSL_GUARDED_BY(mutex_);
  size_t oldest_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tessera

#endif  // TESSERA_COMM_COMM_LOG_H_

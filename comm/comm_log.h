#ifndef TESSERA_COMM_COMM_LOG_H_
#define TESSERA_COMM_COMM_LOG_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tessera/base/log.h"
#include "tessera/base/mutex.h"
#include "tessera/comm/collective.h"
#include "tessera/tensor/dtype.h"

namespace tessera {

// How far a rank has come with what it was given on one communicator: all below
// these sequence numbers.
struct CommProgress {
  std::atomic<int64_t> started = 0;
  std::atomic<int64_t> done = 0;
};

// Where a collective is on this rank: in the stream; waiting for other ranks,
// moving data, or failed at that; done.
enum class CollectiveState { kEnqueued, kStarted, kDone };
// "enqueued", "started", "done".
absl::string_view CollectiveStateName(CollectiveState state);

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
  // When it was asked for. Backends without threads of their own do not tell.
  CollectiveState state = CollectiveState::kEnqueued;

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
//
// The backends local and mpi write the last records to a file, as a table,
// where the first of the rank's collectives fails: see Options::dump_folder.
// Thread-safe.
class CommLog {
 public:
  struct Options {
    size_t ring_size = 1024;  // the last records that are kept
    // Where a failure leaves the file "tessera-rank<rank>.txt"; it must be
    // there. Empty: the folder that the environment variable TESSERA_COMM_DUMP
    // names; none where it is not set.
    std::string dump_folder = {};
    Logger logger = {};  // told where the file is
  };
  CommLog() : CommLog(Options{}) {}
  explicit CommLog(Options options);

  using Key = std::pair<std::string, CollectiveKind>;
  using KeyView = std::pair<absl::string_view, CollectiveKind>;
  // Finds a key by its view.
  struct KeyLess {
    using is_transparent = void;
    bool operator()(const KeyView& a, const KeyView& b) const { return a < b; }
  };
  using Counters = std::map<Key, CommCounter, KeyLess>;

  // Allocates only for the first record of a communicator and kind. `progress`
  // is its communicator's, which the record's state follows; null: the state
  // stays as it is.
  void Append(const CollectiveRecord& record,
              std::shared_ptr<const CommProgress> progress = nullptr);
  Counters counters() const;
  // The last records, oldest first, in the order they were enqueued.
  std::vector<CollectiveRecord> recent() const;
  // Counters to zero, no records.
  void Clear();

  // The last records, oldest first, one line each under a head line.
  std::string ToTable() const;
  // The same to a file, which is written over. ERRORS: PermissionDenied.
  absl::Status WriteTable(const std::string& path) const;
  // A collective of this rank of the world has failed: writes the table, with
  // the failure above it, to the folder of the options. The first time only.
  void NoteFailure(int rank, const absl::Status& failure);

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
    CollectiveState state;
    std::shared_ptr<const CommProgress> progress;
  };
  static CollectiveRecord RecordOf(const Entry& entry);

  const size_t ring_size_;
  const std::string dump_folder_;
  const Logger logger_;
  std::atomic<bool> has_failed_ = false;
  mutable Mutex mutex_;
  Counters counters_ ABSL_GUARDED_BY(mutex_);
  // The last records; once there are ring_size_, the oldest is at oldest_.
  std::vector<Entry> ring_ ABSL_GUARDED_BY(mutex_);
  size_t oldest_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tessera

#endif  // TESSERA_COMM_COMM_LOG_H_

#ifndef TESSERA_COMM_OPERATION_POOL_H_
#define TESSERA_COMM_OPERATION_POOL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tessera/base/mutex.h"
#include "tessera/comm/collective.h"
#include "tessera/comm/comm_log.h"
#include "tessera/device/stream.h"

namespace tessera::internal {

class OperationPool;

// What a backend's group does for the operations of its members. Thread-safe.
class OperationGroup {
 public:
  virtual ~OperationGroup() = default;

  // Takes part in the group's next operation, of at least one call, as group
  // rank `rank` and blocks until this rank is done with it.
  // ERRORS: those of Communicator.
  virtual absl::Status Run(int rank, absl::Span<const Collective> calls) = 0;

  // Fails what has not started with Aborted: "comm: 'dp' is aborted: <reason>".
  virtual void Abort(absl::string_view reason) = 0;

  // OK, or Aborted with the reason.
  virtual absl::Status status() = 0;

  // The member with this rank has no communicator any more, nor anything on its
  // way. Called by a destructor: does not wait.
  virtual void Forget(int /*rank*/) {}
};

// An operation on its way through a stream. Where it is destroyed without
// having run, the group's other members would wait for it in vain: it aborts
// the group. Move-only.
class Operation {
 public:
  Operation(Operation&&) = default;
  Operation& operator=(Operation&&) = delete;
  ~Operation();

  // Takes part in the group's next operation. Called at most once.
  absl::Status Run();

 private:
  friend class OperationPool;

  // The calls and what they borrow.
  struct Arguments {
    std::vector<Collective> calls;
    std::vector<Transfer> transfers;
    int64_t sequence = 0;
    bool has_run = false;
  };

  Operation(std::shared_ptr<OperationPool> pool,
            std::unique_ptr<Arguments> arguments);

  std::shared_ptr<OperationPool> pool_;
  std::unique_ptr<Arguments> arguments_;  // null where moved from
};

// Where the operations of one communicator get their memory, which goes from
// one to the next. May be destroyed on any thread, with the last operation.
// Thread-safe, but for Launch. LIFETIME: borrows the stream.
class OperationPool : public std::enable_shared_from_this<OperationPool> {
 public:
  // Of the member with this rank in the group and in the world. `progress` is
  // kept up; `log` is told of failures.
  OperationPool(std::shared_ptr<OperationGroup> group, int rank, int world_rank,
                Stream& stream, std::shared_ptr<CommLog> log,
                std::shared_ptr<CommProgress> progress);
  ~OperationPool() { group_->Forget(rank_); }

  // Enqueues the group's next operation on the stream. Copies what the calls
  // borrow. `communicator` is the name of the group. One call at a time.
  // ERRORS: that of the group's status; the stream's.
  absl::Status Launch(absl::Span<const Collective> calls, int64_t sequence,
                      absl::string_view communicator);

 private:
  friend class Operation;
  using Arguments = Operation::Arguments;

  Operation New(absl::Span<const Collective> calls, int64_t sequence);
  std::unique_ptr<Arguments> Take();
  void Return(std::unique_ptr<Arguments> arguments);
  absl::Status Run(const Arguments& arguments);
  // Aborts the group for an operation that will not run.
  void Abandon(const Arguments& arguments);

  const std::shared_ptr<OperationGroup> group_;
  const int rank_;
  const int world_rank_;
  Stream& stream_;
  const std::shared_ptr<CommLog> log_;
  const std::shared_ptr<CommProgress> progress_;
  // Of the last launch; used again for their memory.
  std::vector<MemoryRange> reads_;
  std::vector<MemoryRange> writes_;
  // The largest launch so far: what any memory is soon large enough for.
  size_t most_calls_ = 0;
  size_t most_transfers_ = 0;
  Mutex mutex_;
  std::vector<std::unique_ptr<Arguments>> free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera::internal

#endif  // TESSERA_COMM_OPERATION_POOL_H_

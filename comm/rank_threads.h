#ifndef TESSERA_COMM_RANK_THREADS_H_
#define TESSERA_COMM_RANK_THREADS_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "tessera/base/mutex.h"

namespace tessera::internal {

// Keeps the first error of a rank, of those that others follow from.
// Thread-safe.
class FirstError {
 public:
  void Report(int rank, const absl::Status& status);
  absl::Status Get() const;

 private:
  mutable Mutex mutex_;
  absl::Status first_ ABSL_GUARDED_BY(mutex_);
};

// Calls run(rank) for each rank in [0, num_ranks) on a thread of its own and
// returns once all have ended. Where the system has no thread for a rank, calls
// refuse(rank, ResourceExhausted) in its place.
void RunOnThreads(int num_ranks, absl::FunctionRef<void(int)> run,
                  absl::FunctionRef<void(int, const absl::Status&)> refuse);

}  // namespace tessera::internal

#endif  // TESSERA_COMM_RANK_THREADS_H_

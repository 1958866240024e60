#include "tessera/comm/rank_threads.h"

#include <system_error>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tessera::internal {

void FirstError::Report(int rank, const absl::Status& status) {
  MutexLock lock(mutex_);
  if (status.ok()) return;
  const bool is_better = absl::IsAborted(first_) && !absl::IsAborted(status);
  if (!first_.ok() && !is_better) return;
  first_ = absl::Status(status.code(),
                        absl::StrCat("rank ", rank, ": ", status.message()));
}

absl::Status FirstError::Get() const {
  MutexLock lock(mutex_);
  return first_;
}

void RunOnThreads(int num_ranks, absl::FunctionRef<void(int)> run,
                  absl::FunctionRef<void(int, const absl::Status&)> refuse) {
  std::vector<std::thread> threads;
  threads.reserve(num_ranks);
  for (int rank = 0; rank < num_ranks; ++rank) {
    try {
      threads.emplace_back([run, rank] { run(rank); });
    } catch (const std::system_error& e) {
      refuse(rank, absl::ResourceExhaustedError(
                       absl::StrCat("comm: want a thread, found ", e.what())));
    }
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace tessera::internal

#include "tessera/comm/local/run_ranks.h"

#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tessera/base/mutex.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/call_program.h"

namespace tessera {
namespace {

using Program = absl::FunctionRef<absl::Status(LocalRank&)>;

// Keeps the first error, of those that others follow from. Thread-safe.
class FirstError {
 public:
  void Report(int rank, const absl::Status& status) {
    MutexLock lock(mutex_);
    if (status.ok()) return;
    const bool is_better = absl::IsAborted(first_) && !absl::IsAborted(status);
    if (!first_.ok() && !is_better) return;
    first_ = absl::Status(status.code(),
                          absl::StrCat("rank ", rank, ": ", status.message()));
  }
  absl::Status Get() const {
    MutexLock lock(mutex_);
    return first_;
  }

 private:
  mutable Mutex mutex_;
  absl::Status first_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::Status RunLocalRanks(int num_ranks, Program program,
                           const LocalRunOptions& options) {
  if (num_ranks < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("comm: want at least 1 rank, found ", num_ranks));
  }
  LocalWorld world(num_ranks, options.world);
  FirstError error;

  // A rank's error is on record before the others' that follow from it.
  const auto end = [&](int rank, const absl::Status& status) {
    error.Report(rank, status);
    world.Leave(rank, status);
  };
  const auto run_rank = [&](int rank) {
    CpuDevice device(options.device);
    std::unique_ptr<Stream> stream;
    std::unique_ptr<Communicator> communicator;
    std::optional<CommSet> comms;
    const auto run = [&]() -> absl::Status {
      TESSERA_ASSIGN_OR_RETURN(stream, device.NewStream("compute"));
      TESSERA_ASSIGN_OR_RETURN(communicator, world.Join(rank, *stream));
      comms.emplace(*communicator);
      LocalRank local = {rank, num_ranks, device, *stream, *comms};
      TESSERA_RETURN_IF_ERROR(
          internal::CallProgram([&] { return program(local); }));
      return stream->Synchronize();
    };
    // Before the stream is destroyed, which waits for what it still holds.
    end(rank, run());
  };

  std::vector<std::thread> threads;
  threads.reserve(num_ranks);
  for (int rank = 0; rank < num_ranks; ++rank) {
    try {
      threads.emplace_back(run_rank, rank);
    } catch (const std::system_error& e) {
      end(rank, absl::ResourceExhaustedError(
                    absl::StrCat("comm: want a thread, found ", e.what())));
    }
  }
  for (std::thread& thread : threads) thread.join();
  return error.Get();
}

}  // namespace tessera

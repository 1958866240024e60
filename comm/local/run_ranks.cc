#include "tessera/comm/local/run_ranks.h"

#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "tessera/base/processors.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/call_program.h"
#include "tessera/comm/rank_threads.h"

namespace tessera {
namespace {

using Program = absl::FunctionRef<absl::Status(LocalRank&)>;

}  // namespace

absl::Status RunLocalRanks(int num_ranks, Program program,
                           const LocalRunOptions& options) {
  if (num_ranks < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("comm: want at least 1 rank, found ", num_ranks));
  }
  LocalWorld world(num_ranks, options.world);
  internal::FirstError error;

  // A rank's error is on record before the others' that follow from it.
  const auto end = [&](int rank, const absl::Status& status) {
    error.Report(rank, status);
    world.Leave(rank, status);
  };
  const auto run_rank = [&](int rank) {
    if (options.bind_to_processors) internal::BindThisThread(rank);
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

  internal::RunOnThreads(num_ranks, run_rank, end);
  return error.Get();
}

}  // namespace tessera

#include "tessera/testing/run_ranks.h"

#include <vector>

#include "tessera/testing/rank_errors.h"

namespace tessera::testing {

absl::Status RunRanks(int num_ranks,
                      absl::FunctionRef<absl::Status(LocalRank&)> program,
                      const LocalRunOptions& options) {
  // A rank writes its own.
  std::vector<absl::Status> ends(num_ranks < 0 ? 0 : num_ranks);
  const auto run = [&](LocalRank& rank) {
    absl::Status& end = ends[rank.rank];
    end = absl::InternalError("the program threw");  // until it returns
    end = program(rank);
    if (end.ok()) end = rank.stream.Synchronize();
    return end;
  };
  const absl::Status first = RunLocalRanks(num_ranks, run, options);
  return internal::WithEveryRank(first, ends);
}

}  // namespace tessera::testing

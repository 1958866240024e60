#include "tessera/testing/run_ranks.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

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

  int failed = 0;
  std::string lines;
  for (int rank = 0; rank < num_ranks; ++rank) {
    if (ends[rank].ok()) continue;
    ++failed;
    absl::StrAppend(&lines, "\n  rank ", rank, ": ", ends[rank].ToString());
  }
  if (failed == 0) return first;
  return absl::Status(
      first.code(),
      absl::StrCat("testing: ", failed, " of ", num_ranks,
                   " ranks failed, first ", first.message(), lines));
}

}  // namespace tessera::testing

#ifndef TESSERA_TESTING_RUN_RANKS_H_
#define TESSERA_TESTING_RUN_RANKS_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "tessera/comm/local/run_ranks.h"

namespace tessera::testing {

// Runs `program` once per rank, on threads: RunLocalRanks for tests. A rank
// that returns an error makes the others' communication fail, not hang; so does
// one that returns early, as behind a failed ASSERT. Returns OK, or the error
// of the rank that failed first, with a line for every rank that failed:
//
//   testing: 2 of 4 ranks failed, first rank 2: no such file
//     rank 0: ABORTED: comm: ...
//     rank 2: NOT_FOUND: no such file
//
//   EXPECT_OK(RunRanks(4, [&](LocalRank& rank) -> absl::Status {
//     SCOPED_TRACE(rank.rank);  // named by each EXPECT that fails
//     ...
//   }));
absl::Status RunRanks(int num_ranks,
                      absl::FunctionRef<absl::Status(LocalRank&)> program,
                      const LocalRunOptions& options = {});

}  // namespace tessera::testing

#endif  // TESSERA_TESTING_RUN_RANKS_H_

#ifndef TESSERA_BENCH_TURNS_H_
#define TESSERA_BENCH_TURNS_H_

#include <functional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tessera/comm/local/run_ranks.h"

namespace tessera::bench {

// Something that all ranks do together.
using Work = std::function<absl::Status()>;

// Lets `num_ranks` ranks, a thread each, do several things by turns, so that
// what else the machine does meets all of them alike, and returns the median
// seconds of each. A turn takes from when the first rank begins to when the
// last one is done. `prepare` gives the things that a rank does, as many on
// all of them. The first turn only warms up.
absl::StatusOr<std::vector<double>> MedianSeconds(
    int num_ranks, int turns,
    absl::FunctionRef<absl::StatusOr<std::vector<Work>>(LocalRank&)> prepare);

}  // namespace tessera::bench

#endif  // TESSERA_BENCH_TURNS_H_

#ifndef TESSERA_SWEEP_TURNS_H_
#define TESSERA_SWEEP_TURNS_H_

#include <functional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tessera/comm/local/run_ranks.h"

namespace tessera::internal {

// Something that all ranks do together.
using Work = std::function<absl::Status()>;

struct Turns {
  int count = 1;  // at least 1
  // A turn repeats its work until it has taken about so long, by what it took
  // rank 0 to warm up.
  double seconds = 0;
};

// How often a turn repeats work that takes `seconds_once`: at least once, at
// most 10,000 times.
int CallsPerTurn(const Turns& turns, double seconds_once);

// The middle one in order. REQUIRES: not empty.
double Median(std::vector<double> values);

// Lets `num_ranks` ranks, a thread each, do several things by turns, so that
// what else the machine does meets all of them alike, and returns for each the
// median seconds of doing it once. A turn takes as long as the slowest rank,
// from when the first rank begins. `prepare` gives the things that a rank does,
// as many on all of them. The first turn only warms up; in it rank 0 decides
// for all ranks how often they repeat what. Ranks are bound to processors: see
// LocalRunOptions.
absl::StatusOr<std::vector<double>> MedianSeconds(
    int num_ranks, const Turns& turns,
    absl::FunctionRef<absl::StatusOr<std::vector<Work>>(LocalRank&)> prepare);

}  // namespace tessera::internal

#endif  // TESSERA_SWEEP_TURNS_H_

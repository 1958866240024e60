#ifndef TESSERA_TESTS_FSDP_ANY_RANKS_H_
#define TESSERA_TESTS_FSDP_ANY_RANKS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "tessera/comm/local/run_ranks.h"
#include "tessera/testing/run_scheduled_ranks.h"
#include "tests/sanitized.h"

namespace tessera::testing {

// Runs a program that takes LocalRank& and ScheduledRank& alike: on threads
// with inline streams, with workers, and under a scheduler, which finds what is
// not ordered. Returns the first error.
template <typename Program>
absl::Status OnAnyRanks(int num_ranks, Program program) {
  absl::Status status;
  for (CpuStreams streams : {CpuStreams::kInline, CpuStreams::kWorker}) {
    status.Update(
        RunLocalRanks(num_ranks, program, {.device = {.streams = streams}}));
  }
  for (uint64_t seed = 0; seed < (kThreadSanitized ? 0 : 3); ++seed) {
    status.Update(RunScheduledRanks(num_ranks, program, {.seed = seed}));
  }
  return status;
}

}  // namespace tessera::testing

#endif  // TESSERA_TESTS_FSDP_ANY_RANKS_H_

#ifndef TESSERA_TESTS_GPU_RUN_GPU_RANKS_H_
#define TESSERA_TESTS_GPU_RUN_GPU_RANKS_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "tessera/testing/run_scheduled_ranks.h"

namespace tessera::testing {

// How many GPUs there are, or why there is none, in words.
struct GpusHere {
  int count = 0;
  std::string reason;
};
GpusHere FindGpus();

// Runs the program once for each rank, in a thread of its own, on a GPU of its
// own and under NCCL. As RunScheduledRanks in all but the order, which is the
// GPUs'. ERRORS: the first one of a rank.
absl::Status RunGpuRanks(
    int num_ranks, absl::FunctionRef<absl::Status(ScheduledRank&)> program);

}  // namespace tessera::testing

// Skips the test where there are fewer GPUs, and says why.
#define TESSERA_NEEDS_GPUS(wanted)                                        \
  if (const auto gpus = ::tessera::testing::FindGpus();                   \
      gpus.count < (wanted)) {                                            \
    GTEST_SKIP() << "wants " << (wanted) << " GPUs, found " << gpus.count \
                 << " " << gpus.reason;                                   \
  }                                                                       \
  static_assert(true)

#endif  // TESSERA_TESTS_GPU_RUN_GPU_RANKS_H_

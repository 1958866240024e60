#ifndef TESSERA_TESTS_EMULATION_RUN_AS_SCHEDULED_H_
#define TESSERA_TESTS_EMULATION_RUN_AS_SCHEDULED_H_

#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "tessera/testing/run_scheduled_ranks.h"
#include "tests/emulation/run_emulated_ranks.h"

namespace tessera::emulation {

// RunEmulatedRanks in the place of RunScheduledRanks.
inline absl::Status RunAsScheduled(
    int num_ranks,
    absl::FunctionRef<absl::Status(testing::ScheduledRank&)> program,
    const testing::ScheduledRunOptions& options,
    testing::ScheduledReport* report) {
  EmulatedRunOptions emulated;
  emulated.gpus.seed = options.seed;
  emulated.gpus.drop_wait = options.drop_wait;
  emulated.gpus.device.memory_limit_bytes = options.memory_limit_bytes;
  GpuReport told;
  const absl::Status status = RunEmulatedRanks(
      num_ranks,
      [&](EmulatedRank& rank) {
        testing::ScheduledRank self = {rank.rank, rank.num_ranks, rank.device,
                                       rank.stream, rank.comms};
        return program(self);
      },
      emulated, &told);
  if (report != nullptr) {
    *report = {.problems = std::move(told.problems),
               .waits = std::move(told.waits),
               .steps = std::move(told.steps)};
  }
  return status;
}

}  // namespace tessera::emulation

#endif  // TESSERA_TESTS_EMULATION_RUN_AS_SCHEDULED_H_

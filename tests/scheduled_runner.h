#ifndef TESSERA_TESTS_SCHEDULED_RUNNER_H_
#define TESSERA_TESTS_SCHEDULED_RUNNER_H_

#include <functional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "tessera/testing/run_scheduled_ranks.h"

namespace tessera::testing {

// RunScheduledRanks, or what does the same with other devices.
using ScheduledRunner = std::function<absl::Status(
    int num_ranks, absl::FunctionRef<absl::Status(ScheduledRank&)> program,
    const ScheduledRunOptions& options, ScheduledReport* report)>;

}  // namespace tessera::testing

#endif  // TESSERA_TESTS_SCHEDULED_RUNNER_H_

#ifndef TESSERA_TESTS_REDISTRIBUTE_RUN_PLANS_H_
#define TESSERA_TESTS_REDISTRIBUTE_RUN_PLANS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tessera/comm/comm_log.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tessera/redistribute/plan.h"
#include "tessera/testing/run_scheduled_ranks.h"
#include "tests/scheduled_runner.h"

namespace tessera::testing {

// What came of one plan on one rank.
struct RankOutcome {
  std::vector<double> target;  // NaN where nothing was written
  int64_t workspace_peak = 0;  // bytes
  std::vector<CollectiveRecord> collectives;
};

// Per plan, per rank of the world.
using Outcomes = std::vector<std::vector<RankOutcome>>;

// Executes the plans one after the other on as many ranks as threads, from
// sources as the reference has them into targets full of poison. The stream is
// waited for only at the end.
absl::StatusOr<Outcomes> RunPlans(int num_ranks, absl::Span<const Plan> plans,
                                  CpuStreams streams = CpuStreams::kInline);

// Runs `plans`, on meshes within ranks [0, num_ranks), and returns what is
// wrong: values that are not the tensor's; communication other than the plans
// say; workspace other than they say. Empty where all is right.
std::string RunAndFindFault(int num_ranks, absl::Span<const Plan> plans,
                            CpuStreams streams = CpuStreams::kInline);

// The same under RunScheduledRanks or the like, on three streams in turn,
// between which nothing is ordered. What it finds is wrong, too.
std::string RunScheduledAndFindFault(
    int num_ranks, absl::Span<const Plan> plans, uint64_t seed,
    const ScheduledRunner& run = RunScheduledRanks);

// Runs `plan` with ExecuteReference, from sources as the reference has them
// into targets full of poison, and returns what is wrong: its error, or values
// that are not the tensor's. Empty where all is right.
std::string RunReferenceAndFindFault(const Plan& plan);

}  // namespace tessera::testing

#endif  // TESSERA_TESTS_REDISTRIBUTE_RUN_PLANS_H_

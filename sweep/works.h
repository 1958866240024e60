#ifndef TESSERA_SWEEP_WORKS_H_
#define TESSERA_SWEEP_WORKS_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "tessera/comm/local/run_ranks.h"
#include "tessera/redistribute/plan.h"
#include "tessera/sweep/turns.h"

namespace tessera::internal {

// Executes the plan, between memory of its own; returns once it is done.
// COLLECTIVE over the plan's mesh, as is what it does. ERRORS: those of
// Prepare. LIFETIME: the rank outlives it.
absl::StatusOr<Work> RedistributionWork(std::shared_ptr<const Plan> plan,
                                        LocalRank& rank);

// True if the plan communicates, in nothing but collectives that cut evenly or
// go over one axis.
bool HasBareForm(const Plan& plan);

// The plan's collectives one by one, as a program would call them that has
// memory for each result: each takes what the one before it wrote, or what
// slices leave of that, where it is. REQUIRES: HasBareForm(plan). COLLECTIVE
// over the plan's mesh, as is what each does. ERRORS: those of CommSet::Get.
// LIFETIME: the rank outlives them.
absl::StatusOr<std::vector<Work>> BareCollectives(const Plan& plan,
                                                  LocalRank& rank);

}  // namespace tessera::internal

#endif  // TESSERA_SWEEP_WORKS_H_

#ifndef TESSERA_TESTING_PLAN_CHECKS_H_
#define TESSERA_TESTING_PLAN_CHECKS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tessera/redistribute/plan.h"

namespace tessera::testing {

// What tests may want of a plan, for any test framework. Each function returns
// OK, or FailedPrecondition with what is wanted, what is found and, in lines of
// its own, the plan:
//
//   testing: want steps "AG(dp)", found "RS(dp) AG(tp)" in
//     [P(sum), S(0)] -RS(dp)-> [S(1), S(0)] -AG(tp)-> [S(1), R]
//     step            axes  before -> after ...
//
// For GoogleTest there are matchers of the same names in matchers.h. Pure;
// thread-safe.

// Verify(plan) is OK: the steps lead from source to target, by their figures.
absl::Status CheckVerified(const Plan& plan);

// The names of the steps, in order: "RS(dp) AG(tp)"; "" without steps.
std::string StepLine(const Plan& plan);
// StepLine(plan) == line.
absl::Status CheckSteps(const Plan& plan, absl::string_view line);

// plan.bytes_received() <= bytes: the most that a rank sends or receives.
absl::Status CheckBytesAtMost(const Plan& plan, int64_t bytes);

// plan.peak_bytes() < bytes: source, target and workspace of a rank.
absl::Status CheckPeakBelow(const Plan& plan, int64_t bytes);

// plan.launches() <= launches: steps that communicate.
absl::Status CheckLaunchesAtMost(const Plan& plan, int64_t launches);

// Along this mesh axis no step, whatever its kind, replicates what the axis
// sharded or cut before: S or Ragged in front of it, R behind it. Reductions,
// P to R, are none of those. An axis of another mesh is the same if its name
// is.
// ERRORS: also InvalidArgument for an axis that the source's mesh does not
// have.
absl::Status CheckNeverGathers(const Plan& plan, absl::string_view axis);

// The plan as messages show it: its line and its table, indented by two.
std::string DescribePlan(const Plan& plan);

}  // namespace tessera::testing

#endif  // TESSERA_TESTING_PLAN_CHECKS_H_

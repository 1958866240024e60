#ifndef TESSERA_TESTING_GOLDEN_PLANS_H_
#define TESSERA_TESTING_GOLDEN_PLANS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tessera/mesh/topology.h"
#include "tessera/placement/layout.h"
#include "tessera/redistribute/plan.h"

namespace tessera::testing {

// Plans that shall stay as they are, as a JSON file that tests and
// `tessera check` compare with what the planner makes today:
//
//   {
//     "version": 1,
//     "plans": [
//       {
//         "name": "gradient",
//         "mesh": "dp=2,tp=4",
//         "dtype": "bf16",
//         "shape": [4096,14336],
//         "from": "[P(sum), S(0)]",
//         "to": "[R, S(1)]",
//         "max_workspace_bytes": 67108864,
//         "plan": "[P(sum), S(0)] -RS(dp)-> ...",
//         "limits": {"bytes_received":88080384,"launches":2}
//       }
//     ]
//   }
//
// A plan is expected to be the line `plan` (Plan::ToString), or to keep to the
// limits, each at most, or both. The name, `max_workspace_bytes`
// (PlanOptions) and `to_mesh`, where the target is on another mesh than the
// source, may be missing. There are no costs: plans on Topology::Unit are
// frozen, those on others change with its prices.

// Each the most that a plan may have.
struct GoldenLimits {
  std::optional<int64_t> bytes_received;
  std::optional<int64_t> launches;
  std::optional<int64_t> peak_bytes;

  bool empty() const { return !bytes_received && !launches && !peak_bytes; }
  friend bool operator==(const GoldenLimits&, const GoldenLimits&) = default;
};

struct GoldenPlan {
  std::string name;  // of the author's choice; may be empty
  Layout from;
  Layout to;
  std::optional<int64_t> max_workspace_bytes;
  std::optional<std::string> plan;
  GoldenLimits limits;

  // "gradient: bf16[8,4] [P(sum), S(0)] to [R, S(1)] on 'dp=2,tp=4'".
  std::string ToString() const;

  friend bool operator==(const GoldenPlan&, const GoldenPlan&) = default;
};

// ERRORS: InvalidArgument, naming the value that is wrong as "plans[2].mesh",
// for what is not of this format, another version, a plan without a question
// of its own: one whose ends and workspace are those of another.
absl::StatusOr<std::vector<GoldenPlan>> GoldenPlansFromJson(
    absl::string_view json);

// The inverse, a key a line.
std::string GoldenPlansToJson(absl::Span<const GoldenPlan> plans);

// The file's plans. ERRORS: those of GoldenPlansFromJson, NotFound for a file
// that cannot be read; messages begin with the path.
absl::StatusOr<std::vector<GoldenPlan>> ReadGoldenPlans(
    const std::string& path);

// The plan from golden.from to golden.to. ERRORS: those of MakePlan.
absl::StatusOr<Plan> MakeGoldenPlan(const GoldenPlan& golden,
                                    const Topology& topology);

// What differs, in lines: what is expected behind '-', what the plan has behind
// '+'. Empty where the plan is as expected. Where nothing is expected, the
// plan's line behind '+'.
//
//   - [P(sum), S(0)] -AR(dp)-> [R, S(0)] -A2A(tp)-> [R, S(1)]
//   + [P(sum), S(0)] -RS(dp)-> [S(0)[1], S(0)[0]] -XC(dp,tp)-> [R, S(1)]
//   - at most 1 launches
//   + 2 launches
std::string DiffGoldenPlan(const GoldenPlan& golden, const Plan& plan);

// The plan is as expected by one of the file's plans between its ends.
// ERRORS: those of ReadGoldenPlans; NotFound where the file has no plan between
// these ends; FailedPrecondition with what differs, and the plan.
absl::Status CheckMatchesGolden(const Plan& plan, const std::string& path);

}  // namespace tessera::testing

#endif  // TESSERA_TESTING_GOLDEN_PLANS_H_

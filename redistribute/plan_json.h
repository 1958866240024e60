#ifndef TESSERA_REDISTRIBUTE_PLAN_JSON_H_
#define TESSERA_REDISTRIBUTE_PLAN_JSON_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tessera/redistribute/plan.h"

namespace tessera {

// Plans as JSON, for tools, logs and golden files:
//
//   {
//     "version": 1,
//     "mesh": "dp=2,tp=4",
//     "tensor": "bf16[1024,4096]",
//     "source": "[P(sum), S(0)]",
//     "target": "[P(sum), S(1)]",
//     "steps": [
//       {
//         "kind": "all_to_all",
//         "axes": ["tp"],
//         "before": "[P(sum), S(0)]",
//         "after": "[P(sum), S(1)]",
//         "bytes_sent": 1572864,
//         "bytes_received": 1572864,
//         "messages": 3,
//         "workspace_bytes": 0,
//         "time_us": 203.608,
//         "time_ps": 203608000
//       }
//     ],
//     "bytes_received": 1572864,
//     "launches": 1,
//     "workspace_bytes": 0,
//     "peak_bytes": 4194304,
//     "cost_us": 203.608,
//     "fingerprint": "43ac32d00d76150b"
//   }
//
// Bytes are the most that a rank sends and receives, in exchanges of more than
// 1024 ranks about what it sends. Layouts are as in Layout::ToString, less the
// tensor; times in picoseconds are exact, those in microseconds for people. A
// step that leads to another mesh names it, as in "after_mesh": "tp=4@8"; so
// does a plan, as "target_mesh".

// REQUIRES: all layouts of the plan are of one tensor.
std::string PlanToJson(const Plan& plan);

// The inverse of PlanToJson. Reads what PlanToJson writes and nothing else,
// white space, the order of keys and the notation of numbers aside. What
// follows from the rest may be missing, else it must agree with it: `before`,
// bytes sent, workspaces, times in microseconds, and of the plan all but
// version, mesh, tensor, source and steps. Whether a step of its kind leads
// from its `before` to its `after` is not checked. ERRORS: InvalidArgument,
// naming the key that is wrong, missing or unknown.
absl::StatusOr<Plan> PlanFromJson(absl::string_view json);

}  // namespace tessera

#endif  // TESSERA_REDISTRIBUTE_PLAN_JSON_H_

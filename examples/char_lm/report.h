#ifndef CHAR_LM_REPORT_H_
#define CHAR_LM_REPORT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "char_lm/options.h"
#include "char_lm/text.h"
#include "char_lm/trainer.h"

namespace char_lm {

// What the program prints, part by part, each with a heading.

// The text, the mesh, and how Tessera would move a weight of the model from
// partial sums sharded by rows to columns of the total.
absl::StatusOr<std::string> DescribeRun(const Options& options,
                                        const Text& text);

// How far losses may differ, relatively. 0: in no bit.
struct Tolerances {
  double oracle = 0;
  double big_batch = 1e-4;
};
Tolerances TolerancesOf(const Options& options);

// The losses of the run under Tessera beside those of the other two.
// CheckLosses: FailedPrecondition where they differ by more than they may.
std::string DescribeLosses(const TrainResult& result,
                           const std::vector<double>& oracle,
                           const std::vector<double>& big_batch,
                           const Tolerances& tolerances);
absl::Status CheckLosses(const TrainResult& result,
                         const std::vector<double>& oracle,
                         const std::vector<double>& big_batch,
                         const Tolerances& tolerances);

// Calls and bytes of the last step by axis and kind.
std::string DescribeCommunication(const TrainResult& result);

// The peak of every buffer as the allocator counted it, beside the formula.
// CheckMemory: FailedPrecondition where they differ on any rank. Workspace that
// comes and goes is not in the formula, and may be in the total.
std::string DescribeMemory(const TrainResult& result);
absl::Status CheckMemory(const TrainResult& result);

// Peaks and the traffic of rank 0 in one step, under two strategies.
struct NamedResult {
  std::string name;
  const TrainResult& result;
};
std::string DescribeSideBySide(const NamedResult& a, const NamedResult& b);

}  // namespace char_lm

#endif  // CHAR_LM_REPORT_H_

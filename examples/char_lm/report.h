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

// The losses of the run under Tessera beside those of the other two.
// CheckLosses: FailedPrecondition where the oracle's differ in any bit or the
// big batch's by more than 1e-4 relative.
std::string DescribeLosses(const TrainResult& result,
                           const std::vector<double>& oracle,
                           const std::vector<double>& big_batch);
absl::Status CheckLosses(const TrainResult& result,
                         const std::vector<double>& oracle,
                         const std::vector<double>& big_batch);

// Calls and bytes of the last step by axis and kind.
std::string DescribeCommunication(const TrainResult& result);

// The peak of every buffer as the allocator counted it, beside the formula.
// CheckMemory: FailedPrecondition where they differ on any rank.
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

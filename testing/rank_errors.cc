#include "tessera/testing/rank_errors.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace tessera::testing::internal {

absl::Status WithEveryRank(const absl::Status& first,
                           absl::Span<const absl::Status> ends) {
  int failed = 0;
  std::string lines;
  for (size_t rank = 0; rank < ends.size(); ++rank) {
    if (ends[rank].ok()) continue;
    ++failed;
    absl::StrAppend(&lines, "\n  rank ", rank, ": ", ends[rank].ToString());
  }
  if (failed == 0) return first;
  return absl::Status(
      first.code(),
      absl::StrCat("testing: ", failed, " of ", ends.size(),
                   " ranks failed, first ", first.message(), lines));
}

}  // namespace tessera::testing::internal

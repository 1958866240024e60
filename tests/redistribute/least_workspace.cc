#include "tests/redistribute/least_workspace.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "tessera/redistribute/planner.h"

namespace tessera::testing {

absl::StatusOr<int64_t> LeastWorkspace(const Layout& source,
                                       const Layout& target,
                                       const Topology& topology) {
  const absl::Status status =
      MakePlan(source, target, topology, {.max_workspace_bytes = 0}).status();
  if (status.ok()) return 0;
  if (status.code() != absl::StatusCode::kResourceExhausted) return status;
  // "... want a workspace of at least 64 bytes, found a limit of 0"
  const std::pair<std::string, std::string> parts = absl::StrSplit(
      std::string(status.message()), absl::MaxSplits(" at least ", 1));
  const std::vector<std::string> words = absl::StrSplit(parts.second, ' ');
  int64_t bytes = 0;
  if (!absl::SimpleAtoi(words[0], &bytes)) return status;
  return bytes;
}

}  // namespace tessera::testing

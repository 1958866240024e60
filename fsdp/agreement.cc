#include "tessera/fsdp/agreement.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "tessera/base/stable_hash.h"
#include "tessera/base/status_macros.h"

namespace tessera::internal {
namespace {

// The first difference between texts, if any. `ranks` are the ranks of the
// world they are from.
absl::Status FirstDifference(absl::string_view complaint,
                             absl::Span<const std::string> texts,
                             absl::Span<const int> ranks) {
  const std::vector<std::string> wanted = absl::StrSplit(texts[0], '\n');
  for (size_t i = 1; i < texts.size(); ++i) {
    if (texts[i] == texts[0]) continue;
    const std::vector<std::string> found = absl::StrSplit(texts[i], '\n');
    const auto [a, b] =
        std::mismatch(wanted.begin(), wanted.end(), found.begin(), found.end());
    const auto entry = [](auto it, auto end) {
      return it == end || it->empty() ? std::string("nothing") : *it;
    };
    return absl::FailedPreconditionError(
        absl::StrCat(complaint, ": entry ", a - wanted.begin(), " is ",
                     entry(a, wanted.end()), " on rank ", ranks[0], " and ",
                     entry(b, found.end()), " on rank ", ranks[i]));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CompareEntries(Communicator& group, absl::string_view complaint,
                            absl::string_view text) {
  TESSERA_ASSIGN_OR_RETURN(
      const std::vector<std::string> hashes,
      group.HostAllGather(absl::StrCat(absl::Hex(StableHash(text)))));
  if (std::equal(hashes.begin() + 1, hashes.end(), hashes.begin())) {
    return absl::OkStatus();
  }
  // Only now: those of all ranks together are large.
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                           group.HostAllGather(text));
  return FirstDifference(complaint, texts, group.members());
}

}  // namespace tessera::internal

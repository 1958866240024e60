#ifndef TESSERA_COMM_CALLS_H_
#define TESSERA_COMM_CALLS_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tessera/comm/collective.h"
#include "tessera/device/stream.h"

namespace tessera::internal {

// What the members of a group ask in one operation, by group rank.
using Calls = absl::Span<const Collective* const>;

// What the members disagree on, in words, or "" where they agree. `ranks` are
// the members' names:
// "rank 0 calls all_reduce sum f32[12], ranks 1,3 call broadcast f32[4] root 0"
std::string FindDisagreement(Calls calls, absl::Span<const int> ranks);

// The same of launches of several calls: by group rank, what each member gives
// at once. Where they agree, and only there, all that `calls` holds is the
// calls, by call, then by group rank.
std::string FindDisagreement(
    absl::Span<const absl::Span<const Collective>> launches,
    absl::Span<const int> ranks, std::vector<const Collective*>& calls);

// Appends the memory that `call` reads and writes.
void AppendRanges(const Collective& call, std::vector<MemoryRange>& reads,
                  std::vector<MemoryRange>& writes);

}  // namespace tessera::internal

#endif  // TESSERA_COMM_CALLS_H_

#ifndef TESSERA_TESTING_RANK_ERRORS_H_
#define TESSERA_TESTING_RANK_ERRORS_H_

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace tessera::testing::internal {

// One error for what became of every rank, by rank: `first`, of the rank that
// failed first and naming it, with a line for each that failed, as RunRanks
// has it; `first` alone where none did.
absl::Status WithEveryRank(const absl::Status& first,
                           absl::Span<const absl::Status> ends);

}  // namespace tessera::testing::internal

#endif  // TESSERA_TESTING_RANK_ERRORS_H_

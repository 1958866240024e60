#ifndef TESSERA_COMM_NCCL_RENDEZVOUS_H_
#define TESSERA_COMM_NCCL_RENDEZVOUS_H_

#include <chrono>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera::internal {

// Where ranks that know nothing of each other but this meet.
struct Rendezvous {
  std::string address = "";  // of rank 0: a name or a number
  int port = 0;
  int rank = 0;
  int num_ranks = 1;

  // From RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
  // ERRORS: InvalidArgument for one that is not set or malformed, naming it.
  static absl::StatusOr<Rendezvous> FromEnvironment();
};

// What rank 0 gave, a few hundred bytes, of the same size everywhere, on every
// rank. Rank 0 listens on all its addresses until each of the others has come,
// which try until it does: ranks may begin in any order. Strangers who connect
// are sent away. COLLECTIVE over the ranks.
// ERRORS: DeadlineExceeded, naming who has not come; InvalidArgument where a
// rank comes that has another number of ranks; Unavailable where rank 0 cannot
// listen there.
absl::StatusOr<std::string> ShareFromRankZero(
    const Rendezvous& place, absl::string_view given,
    std::chrono::milliseconds timeout);

}  // namespace tessera::internal

#endif  // TESSERA_COMM_NCCL_RENDEZVOUS_H_

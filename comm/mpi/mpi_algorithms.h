#ifndef TESSERA_COMM_MPI_MPI_ALGORITHMS_H_
#define TESSERA_COMM_MPI_MPI_ALGORITHMS_H_

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "tessera/comm/collective.h"

namespace tessera::internal {

// Bytes that go to or come from another rank.
struct Message {
  int peer = 0;  // group rank
  void* data = nullptr;
  int64_t bytes = 0;  // above 0
};

using Messages = absl::InlinedVector<Message, 32>;

// Sends and receives all of these and returns once they are done: the k-th to a
// peer is that peer's k-th from here. They lie in different memory.
using MoveMessages = absl::FunctionRef<absl::Status(
    absl::Span<const Message> sends, absl::Span<const Message> recvs)>;

// The part of group rank `rank` in one operation, of which all ranks make a
// call that agrees. `scratch` is memory to use, and to use again in the next
// operation. ERRORS: those of `move`.
absl::Status RunCall(const Collective& call, int rank, int group_size,
                     MoveMessages move, std::vector<char>& scratch);

}  // namespace tessera::internal

#endif  // TESSERA_COMM_MPI_MPI_ALGORITHMS_H_

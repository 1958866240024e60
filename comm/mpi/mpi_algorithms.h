#ifndef TESSERA_COMM_MPI_MPI_ALGORITHMS_H_
#define TESSERA_COMM_MPI_MPI_ALGORITHMS_H_

#include <cstdint>
#include <memory>
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

// Memory beside the caller's that the messages of a group go from and to, one
// operation at a time. Messages that never end keep it: see MpiBatch.
struct OperationMemory {
  std::vector<char> scratch;                    // used again and again
  std::vector<std::unique_ptr<char[]>> copies;  // of the operation
};

// Sends and receives all of these and returns once they are done: the k-th to a
// peer is that peer's k-th from here. They lie in different memory.
using MoveMessages = absl::FunctionRef<absl::Status(
    absl::Span<const Message> sends, absl::Span<const Message> recvs)>;

// The part of group rank `rank` in one operation, of which all ranks make a
// call that agrees. What it takes of `memory` is free when it returns, unless
// `move` failed. ERRORS: those of `move`.
absl::Status RunCall(const Collective& call, int rank, int group_size,
                     MoveMessages move, OperationMemory& memory);

}  // namespace tessera::internal

#endif  // TESSERA_COMM_MPI_MPI_ALGORITHMS_H_

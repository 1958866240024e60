#ifndef TESSERA_COMM_NCCL_NCCL_WINDOW_H_
#define TESSERA_COMM_NCCL_NCCL_WINDOW_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tessera/comm/communicator.h"

namespace tessera {

// Memory that the GPUs of a group reach in each other: a symmetric window, as
// NCCL calls it (ncclMemAlloc, and ncclCommWindowRegister with
// NCCL_WIN_COLL_SYMMETRIC). Collectives on it take the kernels that NCCL has
// for that, which are faster for small messages above all.
//
//   TESSERA_ASSIGN_OR_RETURN(auto window, NcclWindow::Create(*comm, bytes));
//   DBuffer::Wrap(group, placements, dtype, rank, window->data(), bytes);
//
// NCCL wants what ranks give to a collective to lie at the same place in their
// windows, and does not look: all of them lay theirs out alike. So a window is
// one buffer that all ranks make together, rather than memory of NcclAllocator,
// which each rank hands out as it is asked.
//
// Its bytes are in no account of the device. Not thread-safe. LIFETIME: the
// device outlives it; communicators may go before or after.
class NcclWindow {
 public:
  // The same bytes on all ranks of the group, and registered with it.
  // COLLECTIVE over the group; blocks the host.
  // ERRORS: InvalidArgument for less than a byte, or a group of another
  // backend; on every rank, FailedPrecondition where ranks want different
  // sizes, and ResourceExhausted where one has no memory, naming it; those of
  // Register.
  static absl::StatusOr<std::unique_ptr<NcclWindow>> Create(Communicator& group,
                                                            int64_t bytes);
  // Waits for what the groups do, until their deadlines.
  virtual ~NcclWindow() = default;
  NcclWindow(const NcclWindow&) = delete;
  NcclWindow& operator=(const NcclWindow&) = delete;

  // Aligned to 4096 bytes.
  virtual void* data() const = 0;
  virtual int64_t bytes() const = 0;

  // Registers it with another group, on the same GPU, whose ranks all do so: on
  // another stream, or along other axes. Other groups use it like any memory.
  // Nothing in a group of one rank, or a second time. COLLECTIVE over the
  // group; blocks the host.
  // ERRORS: InvalidArgument for a group of another backend or GPU;
  // FailedPrecondition where NCCL has no symmetric memory between the group's
  // GPUs: the group goes on, and may use the window like any memory;
  // DeadlineExceeded, Aborted and Internal as those of communicators.
  virtual absl::Status Register(Communicator& group) = 0;

 protected:
  NcclWindow() = default;
};

}  // namespace tessera

#endif  // TESSERA_COMM_NCCL_NCCL_WINDOW_H_

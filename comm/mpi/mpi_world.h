#ifndef TESSERA_COMM_MPI_MPI_WORLD_H_
#define TESSERA_COMM_MPI_MPI_WORLD_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tessera/comm/comm_log.h"
#include "tessera/comm/communicator.h"
#include "tessera/device/stream.h"

namespace tessera {
namespace internal {
class MpiGroup;
}  // namespace internal

// MPI_Init_thread for all threads of this process, and MPI_Finalize: for
// programs that do not call them themselves. COLLECTIVE over all processes.
// ERRORS: FailedPrecondition where MPI has been started already, or does not
// serve several threads, or is not there to be finished; Unavailable without
// MPI in this build.
absl::Status StartMpi();
absl::Status FinishMpi();

// Ranks as processes, on any number of hosts of one kind: the `mpi` backend,
// for memory of the host.
//
//   // mpirun -n 4 trainer
//   TESSERA_RETURN_IF_ERROR(StartMpi());
//   TESSERA_ASSIGN_OR_RETURN(MpiWorld world, MpiWorld::Create());
//   TESSERA_ASSIGN_OR_RETURN(auto comm, world.Join(stream));
//
// MPI moves bytes; Tessera reduces, in ascending group rank with bf16 and f16
// accumulated in f32, so that results are those of the local backend bit by
// bit. Where views are not contiguous, what is sent and received is copied.
//
//   collective      bytes sent by each rank     messages
//   --------------  --------------------------  ---------------------
//   all_reduce      2 * N * (n-1)/n             2(n-1)
//   reduce_scatter  N * (n-1)/n                 n-1 (a)
//   all_gather      (n-1) * what it gives       n-1
//   all_to_all      N * (n-1)/n                 n-1
//   broadcast       root 2 * N, others N        2(n-1)
//   send_recv       those of the call           those of the call
//
//   (a)  for every MiB of the largest piece
//
// Ranks meet before each operation and compare their calls, with n-1 messages
// more (see Options::check). What is short comes with these: the first 3 KiB
// for each peer. An all_reduce or broadcast of which a rank sends up to 256 KiB
// altogether, (n-1) * N, goes from all to all, or from the root, at once, in
// n-1 messages. A rank that waits for others looks for messages over and over,
// so other threads of its core come second.
//
// The meeting is what tells every rank of a disagreement, and lets nobody send
// from or receive into memory of an operation that some rank does not come to.
// So no rank runs ahead of the others, as it may under MPI_Bcast.
//
// Groups share a duplicate of the MPI communicator, in which tags tell them
// apart: no stream takes another one's messages, and none disturbs the
// program's own. A group may be made by its members alone and be forgotten by
// any of them at any time. MPI frees the duplicate in MPI_Finalize, for
// MPI_Comm_free would be collective.
//
// An operation that fails once ranks have met (a process dies, somebody aborts)
// may leave messages under way, which a rank that goes on may yet bring to
// their end. Memory of Tessera's own then stays to the end of the process;
// views are the caller's, who has to keep them until MPI_Finalize.
//
// Thread-safe; a handle, whose copies mean the same world. LIFETIME: may be
// destroyed before its communicators; these and their streams go before
// MPI_Finalize.
class MpiWorld {
 public:
  // Equal on all ranks.
  struct Options {
    // How long a rank waits for the others in one operation.
    std::chrono::milliseconds timeout = std::chrono::seconds(60);
    // Whether ranks meet and compare their calls before each operation. Without
    // it, ranks that disagree get wrong results, Internal or a timeout.
    bool check = true;
    // What is larger goes in several messages. MPI's limit is 2^31 - 1.
    int64_t max_message_bytes = 1 << 30;
  };

  // The world of MPI_COMM_WORLD.
  static absl::StatusOr<MpiWorld> Create() { return Create(Options{}); }
  static absl::StatusOr<MpiWorld> Create(const Options& options);

  // The world of any other communicator within one group, by the handle that is
  // an int in every MPI: `MpiWorld::CreateFrom(MPI_Comm_c2f(comm))`. A rank's
  // number is that in `comm`, which is duplicated: COLLECTIVE over it.
  // ERRORS: FailedPrecondition unless MPI is there for all threads
  // (MPI_THREAD_MULTIPLE); InvalidArgument for a handle of another kind or
  // options that cannot be; Unavailable without MPI in this build.
  static absl::StatusOr<MpiWorld> CreateFrom(int comm) {
    return CreateFrom(comm, Options{});
  }
  static absl::StatusOr<MpiWorld> CreateFrom(int comm, const Options& options);

  int rank() const;
  int num_ranks() const;

  // The communicator of all ranks, named "world". COLLECTIVE over the world,
  // one call of a rank at a time; waits for the others. `log` counts this
  // rank's collectives; null makes one.
  // ERRORS: those of Communicator.
  absl::StatusOr<std::unique_ptr<Communicator>> Join(
      Stream& stream, std::shared_ptr<CommLog> log = nullptr);

 private:
  explicit MpiWorld(std::shared_ptr<internal::MpiGroup> all)
      : all_(std::move(all)) {}

  // All ranks, on the host only: where groups of all are made.
  std::shared_ptr<internal::MpiGroup> all_;
};

}  // namespace tessera

#endif  // TESSERA_COMM_MPI_MPI_WORLD_H_

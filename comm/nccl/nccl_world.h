#ifndef TESSERA_COMM_NCCL_NCCL_WORLD_H_
#define TESSERA_COMM_NCCL_NCCL_WORLD_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tessera/comm/comm_log.h"
#include "tessera/comm/communicator.h"
#include "tessera/device/cuda/cuda_device.h"
#include "tessera/device/stream.h"

namespace tessera {
namespace internal {
class NcclGroup;
}  // namespace internal

// What ranks have to share before they can form a world: an ncclUniqueId.
struct NcclId {
  std::array<char, 128> bytes = {};
};

// A new one, for one world. ERRORS: Unavailable where NCCL is not built in;
// Internal with NCCL's own text.
absl::StatusOr<NcclId> NewNcclId();

// Memory that NCCL can register, for one CudaDevice: ncclMemAlloc, in blocks
// that are kept and cut up. What lies in it, whole DBuffers above all, is sent
// and received without a copy in between where the network and the group allow
// it. It is one option, of the device:
//
//   TESSERA_ASSIGN_OR_RETURN(auto memory, NcclAllocator::Create());
//   CudaDevice::Create(local_rank, {.allocator = memory.get()});
//
// A group of a world on that device registers each block once
// (ncclCommRegister), when it is first given memory in it, and deregisters it
// when its ncclComm_t goes. Memory of Allocate may also be lent: to
// DBuffer::Wrap, say.
//
// What is freed goes to other streams in the order of their work. LIFETIME:
// outlives the device and its worlds.
class NcclAllocator : public CudaAllocator {
 public:
  // ERRORS: Unavailable where NCCL is not built in.
  static absl::StatusOr<std::unique_ptr<NcclAllocator>> Create();

  // The block in which `address` lies; empty where there is none.
  virtual MemoryRange BlockOf(const void* address) const = 0;
};

// Ranks with one GPU each, as processes or threads: the `nccl` backend.
//
//   // torchrun, srun or the like have set RANK, WORLD_SIZE and so on
//   TESSERA_ASSIGN_OR_RETURN(auto device, CudaDevice::Create(local_rank));
//   TESSERA_ASSIGN_OR_RETURN(auto world,
//                            NcclWorld::CreateFromEnvironment(*device));
//   TESSERA_ASSIGN_OR_RETURN(auto comm, world.Join(*stream));
//
// NCCL reduces, in an order of its own and in the dtype of the views: bits are
// not those of other backends, and may differ where sizes do. The op avg is a
// sum that is scaled afterwards, in the wire dtype. The ops min and max need
// not propagate NaN.
//
//   collective      NCCL's, one group for each launch
//   --------------  ---------------------------------------------
//   all_reduce      ncclAllReduce
//   reduce_scatter  ncclReduceScatter; of ragged pieces one ncclReduce each
//   all_gather      ncclAllGather; of ragged pieces one ncclBroadcast each
//   all_to_all      ncclSend and ncclRecv
//   broadcast       ncclBroadcast
//   send_recv       ncclSend and ncclRecv
//   barrier         ncclAllReduce of one number
//
// What is not contiguous is packed and unpacked by kernels on the stream, in
// memory of the device tagged "nccl staging".
//
// A communicator belongs to one stream, an ncclComm_t to a communicator; they
// are freed together, once the world and all of its communicators are gone.
// NCCL may let a rank wait there for those of its host.
//
// Groups that all ranks of one make at the same time, those of Partition, Split
// and CommSet::GetTogether and those of all its members, come from
// ncclCommSplit. NCCL wants the ncclComm_t that is split to be idle: the host
// waits for what is enqueued on it, and no graph that has captured it may run.
// They share nothing with it (ncclConfig_t::splitShare is 0): where resources
// are shared, NCCL aborts all that have them with the first, and what streams
// do side by side goes through the same ones. Groups that their members make
// alone, and all those of a borrowed ncclComm_t, which may be a blocking one
// that knows no timeout, come from an id that one member makes and sends to the
// others through the ncclComm_t of the group that theirs is made from.
// HostAllGather goes there, too. So all of these have their place among the
// collectives of the group, the same on all ranks, and wait for those before.
//
// NCCL runs collectives of several communicators one after the other, as they
// were enqueued: ranks that share two groups enqueue what they share in the
// same order.
//
// ERRORS: those of Communicator, but for these. Ranks that disagree are not
// told of it, but time out. A rank that stays away past the timeout, or an
// error that NCCL reports, aborts the communicator: the stream fails with
// DeadlineExceeded, or Internal with NCCL's own text, once the host waits for
// it or for a stream that waits for it, issues a collective on it, or calls
// Check. Abort is this rank's only: the others learn of it as of a rank that
// stays away, or sooner where NCCL tells them. What a graph has captured has no
// timeout.
//
// Thread-safe; a handle, whose copies mean the same world. LIFETIME: the device
// outlives it; it may be destroyed before its communicators.
class NcclWorld {
 public:
  struct Options {
    // How long an operation may take, from where it was enqueued; and how long
    // a rank waits for the others where a group is made.
    std::chrono::milliseconds timeout = std::chrono::minutes(10);
  };

  // COLLECTIVE over the ranks with this id. ERRORS: InvalidArgument for a rank
  // that is none of [0, num_ranks); DeadlineExceeded; Unavailable where NCCL is
  // not built in; Internal with NCCL's own text.
  static absl::StatusOr<NcclWorld> Create(CudaDevice& device, const NcclId& id,
                                          int rank, int num_ranks) {
    return Create(device, id, rank, num_ranks, Options{});
  }
  static absl::StatusOr<NcclWorld> Create(CudaDevice& device, const NcclId& id,
                                          int rank, int num_ranks,
                                          const Options& options);

  // Of the ranks of a communicator of the host, such as MPI's, which is needed
  // for this call only. COLLECTIVE over it.
  static absl::StatusOr<NcclWorld> CreateFrom(CudaDevice& device,
                                              Communicator& host) {
    return CreateFrom(device, host, Options{});
  }
  static absl::StatusOr<NcclWorld> CreateFrom(CudaDevice& device,
                                              Communicator& host,
                                              const Options& options);

  // From the environment variables RANK and WORLD_SIZE, with rank 0 at
  // MASTER_ADDR, where it listens on the TCP port MASTER_PORT until all others
  // have come, or the timeout passes: the launcher must not use that port.
  // ERRORS: also InvalidArgument for a variable that is not set or malformed,
  // naming it, or ranks that differ in WORLD_SIZE; Unavailable where rank 0
  // cannot listen there.
  static absl::StatusOr<NcclWorld> CreateFromEnvironment(CudaDevice& device) {
    return CreateFromEnvironment(device, Options{});
  }
  static absl::StatusOr<NcclWorld> CreateFromEnvironment(
      CudaDevice& device, const Options& options);

  // Of the caller's ncclComm_t, which is used for this world's first stream and
  // outlives it. Where that fails it is revoked (ncclCommRevoke), and still the
  // caller's to free. ERRORS: InvalidArgument where it is not on `device`.
  static absl::StatusOr<NcclWorld> Borrow(CudaDevice& device, void* nccl_comm) {
    return Borrow(device, nccl_comm, Options{});
  }
  static absl::StatusOr<NcclWorld> Borrow(CudaDevice& device, void* nccl_comm,
                                          const Options& options);

  int rank() const;
  int num_ranks() const;

  // The communicator of all ranks, named "world", on a stream of the device.
  // COLLECTIVE over the world, one call of a rank at a time. `log` counts this
  // rank's collectives; null makes one.
  // ERRORS: InvalidArgument for a stream of another device; those of
  // Communicator.
  absl::StatusOr<std::unique_ptr<Communicator>> Join(
      Stream& stream, std::shared_ptr<CommLog> log = nullptr);

  // OK, or the error of a communicator of this world, which is then aborted:
  // for programs that wait for the GPU by other means than streams. Does not
  // block.
  absl::Status Check();

 private:
  explicit NcclWorld(std::shared_ptr<internal::NcclGroup> all)
      : all_(std::move(all)) {}

  std::shared_ptr<internal::NcclGroup> all_;
};

}  // namespace tessera

#endif  // TESSERA_COMM_NCCL_NCCL_WORLD_H_

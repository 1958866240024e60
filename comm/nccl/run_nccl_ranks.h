#ifndef TESSERA_COMM_NCCL_RUN_NCCL_RANKS_H_
#define TESSERA_COMM_NCCL_RUN_NCCL_RANKS_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "tessera/comm/comm_set.h"
#include "tessera/comm/nccl/nccl_world.h"
#include "tessera/device/cuda/cuda_device.h"
#include "tessera/device/stream.h"

namespace tessera {

// What the program of one rank gets to work with. Owned by RunNcclRanks.
struct NcclRank {
  int rank;
  int num_ranks;
  CudaDevice& device;  // number `rank`
  Stream& stream;      // the rank's compute stream; `comms.world()` is on it
  CommSet& comms;
};

// Runs `program` once per rank, each on a thread of this process with a GPU of
// its own, and joins them. A rank that returns an error aborts `comms.world()`:
// the others notice as NcclWorld says, at the timeout at the latest. Returns
// OK, or the error of the rank that failed first, with "rank N: " before its
// message.
// ERRORS: also InvalidArgument for num_ranks < 1, and Unavailable where CUDA or
// NCCL is not built in or there are fewer GPUs than ranks, before any program
// is run.
absl::Status RunNcclRanks(int num_ranks,
                          absl::FunctionRef<absl::Status(NcclRank&)> program,
                          const NcclWorld::Options& options = {});

}  // namespace tessera

#endif  // TESSERA_COMM_NCCL_RUN_NCCL_RANKS_H_

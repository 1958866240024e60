#ifndef TESSERA_TESTS_EMULATION_RUN_EMULATED_RANKS_H_
#define TESSERA_TESTS_EMULATION_RUN_EMULATED_RANKS_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "tessera/comm/comm_set.h"
#include "tessera/comm/nccl/nccl_world.h"
#include "tessera/device/cuda/cuda_device.h"
#include "tessera/device/stream.h"
#include "tests/emulation/run_emulated_gpus.h"

namespace tessera::emulation {

// What the program of one rank gets to work with: as ScheduledRank, on an
// emulated GPU and with the NCCL backend.
struct EmulatedRank {
  int rank;
  int num_ranks;
  CudaDevice& device;
  Stream& stream;  // the rank's compute stream; `comms.world()` is on it
  CommSet& comms;
  NcclWorld& world;
};

struct EmulatedRunOptions {
  GpuRunOptions gpus = {};
  NcclWorld::Options nccl = {};
};

// As RunEmulatedGpus, with Tessera's own NCCL backend on emulated NCCL.
// Problems are also: calls of ranks that do not match, uses of what is gone,
// and what the program leaves behind.
absl::Status RunEmulatedRanks(
    int num_ranks, absl::FunctionRef<absl::Status(EmulatedRank&)> program,
    const EmulatedRunOptions& options = {}, GpuReport* report = nullptr);

}  // namespace tessera::emulation

#endif  // TESSERA_TESTS_EMULATION_RUN_EMULATED_RANKS_H_

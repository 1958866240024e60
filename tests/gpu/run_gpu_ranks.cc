#include "tests/gpu/run_gpu_ranks.h"

#include "tessera/comm/nccl/run_nccl_ranks.h"
#include "tessera/device/cuda/cuda_device.h"

namespace tessera::testing {

GpusHere FindGpus() {
  const auto count = CudaDeviceCount();
  if (!count.ok()) return {0, count.status().ToString()};
  return {*count, ""};
}

absl::Status RunGpuRanks(
    int num_ranks, absl::FunctionRef<absl::Status(ScheduledRank&)> program) {
  return RunNcclRanks(num_ranks, [&](NcclRank& rank) {
    ScheduledRank self = {rank.rank, rank.num_ranks, rank.device, rank.stream,
                          rank.comms};
    return program(self);
  });
}

}  // namespace tessera::testing

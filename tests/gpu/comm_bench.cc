// Tessera's collectives beside NCCL's own, on two to eight GPUs.

#include <algorithm>
#include <cstdio>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/nccl/run_nccl_ranks.h"
#include "tessera/device/cuda/cuda_device.h"
#include "tests/gpu/comm_speed.h"

namespace tessera {
namespace {

absl::Status Run() {
  TESSERA_ASSIGN_OR_RETURN(const int gpus, CudaDeviceCount());
  if (gpus < 2) {
    return absl::UnavailableError(
        absl::StrFormat("wants 2 GPUs or more, found %d", gpus));
  }
  return RunNcclRanks(std::min(gpus, 8), [](NcclRank& rank) -> absl::Status {
    const testing::CommSpeedOptions options;
    TESSERA_ASSIGN_OR_RETURN(
        const auto speeds,
        testing::MeasureCommSpeed(rank.device, rank.comms.world(), options));
    if (rank.rank != 0) return absl::OkStatus();
    absl::PrintF("%d x %s, medians of %d\n%s", rank.num_ranks,
                 rank.device.properties().gpu, options.turns,
                 testing::ToTable(speeds));
    return absl::OkStatus();
  });
}

}  // namespace
}  // namespace tessera

int main() {
  const absl::Status status = tessera::Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "gpu_comm_bench: %s\n", status.ToString().c_str());
  return 1;
}

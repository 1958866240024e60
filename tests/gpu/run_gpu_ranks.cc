#include "tests/gpu/run_gpu_ranks.h"

#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/comm_set.h"
#include "tessera/comm/local/call_program.h"
#include "tessera/comm/nccl/nccl_world.h"
#include "tessera/device/cuda/cuda_device.h"

namespace tessera::testing {

GpusHere FindGpus() {
  const auto count = CudaDeviceCount();
  if (!count.ok()) return {0, count.status().ToString()};
  return {*count, ""};
}

absl::Status RunGpuRanks(
    int num_ranks, absl::FunctionRef<absl::Status(ScheduledRank&)> program) {
  TESSERA_ASSIGN_OR_RETURN(const NcclId id, NewNcclId());
  const auto run = [&](int rank) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(const auto device, CudaDevice::Create(rank));
    TESSERA_ASSIGN_OR_RETURN(const auto stream, device->NewStream("compute"));
    TESSERA_ASSIGN_OR_RETURN(NcclWorld world,
                             NcclWorld::Create(*device, id, rank, num_ranks));
    TESSERA_ASSIGN_OR_RETURN(const auto comm, world.Join(*stream));
    CommSet comms(*comm);
    ScheduledRank self = {rank, num_ranks, *device, *stream, comms};
    TESSERA_RETURN_IF_ERROR(
        tessera::internal::CallProgram([&] { return program(self); }));
    return stream->Synchronize();
  };
  std::vector<absl::Status> ends(num_ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < num_ranks; ++rank) {
    threads.emplace_back([&, rank] { ends[rank] = run(rank); });
  }
  for (std::thread& thread : threads) thread.join();
  for (int rank = 0; rank < num_ranks; ++rank) {
    if (ends[rank].ok()) continue;
    return absl::Status(ends[rank].code(), absl::StrCat("rank ", rank, ": ",
                                                        ends[rank].message()));
  }
  return absl::OkStatus();
}

}  // namespace tessera::testing

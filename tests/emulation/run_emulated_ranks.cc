#include "tests/emulation/run_emulated_ranks.h"

#include <memory>

#include "tessera/base/status_macros.h"
#include "tests/emulation/machine.h"
#include "tests/emulation/nccl_network.h"

namespace tessera::emulation {
namespace {

absl::Status RunRank(GpuRank& gpu,
                     absl::FunctionRef<absl::Status(EmulatedRank&)> program,
                     const NcclWorld::Options& options) {
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream,
                           gpu.device.NewStream("compute"));
  // Emulated NCCL takes any id.
  const NcclId id = {.bytes = {'w', 'o', 'r', 'l', 'd'}};
  TESSERA_ASSIGN_OR_RETURN(
      NcclWorld world,
      NcclWorld::Create(gpu.device, id, gpu.rank, gpu.num_ranks, options));
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> communicator,
                           world.Join(*stream));
  CommSet comms(*communicator);
  EmulatedRank rank = {gpu.rank, gpu.num_ranks, gpu.device,
                       *stream,  comms,         world};
  absl::Status status = program(rank);
  if (!status.ok()) communicator->Abort(status);
  return status;
}

}  // namespace

absl::Status RunEmulatedRanks(
    int num_ranks, absl::FunctionRef<absl::Status(EmulatedRank&)> program,
    const EmulatedRunOptions& options, GpuReport* report) {
  return RunEmulatedGpus(
      num_ranks,
      [&](GpuRank& gpu) {
        const absl::Status status = RunRank(gpu, program, options.nccl);
        Machine::current()->nccl().EndProgram(gpu.rank);
        return status;
      },
      options.gpus, report);
}

}  // namespace tessera::emulation

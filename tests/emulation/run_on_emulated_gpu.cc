#include "tessera/base/status_macros.h"
#include "tests/emulation/run_emulated_gpus.h"
#include "tests/gpu/run_on_gpu.h"

namespace tessera::testing {

absl::Status RunOnGpu(
    absl::FunctionRef<absl::Status(CudaDevice&, Stream&)> program) {
  return emulation::RunEmulatedGpus(
      1, [&](emulation::GpuRank& rank) -> absl::Status {
        TESSERA_ASSIGN_OR_RETURN(const auto stream,
                                 rank.device.NewStream("test"));
        TESSERA_RETURN_IF_ERROR(program(rank.device, *stream));
        return stream->Synchronize();
      });
}

}  // namespace tessera::testing

#include "tessera/base/status_macros.h"
#include "tests/gpu/run_on_gpu.h"

namespace tessera::testing {

absl::Status RunOnGpu(
    absl::FunctionRef<absl::Status(CudaDevice&, Stream&)> program) {
  TESSERA_ASSIGN_OR_RETURN(const auto device, CudaDevice::Create(0));
  TESSERA_ASSIGN_OR_RETURN(const auto stream, device->NewStream("test"));
  TESSERA_RETURN_IF_ERROR(program(*device, *stream));
  return stream->Synchronize();
}

}  // namespace tessera::testing

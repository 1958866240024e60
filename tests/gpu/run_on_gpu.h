#ifndef TESSERA_TESTS_GPU_RUN_ON_GPU_H_
#define TESSERA_TESTS_GPU_RUN_ON_GPU_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "tessera/device/cuda/cuda_device.h"

namespace tessera::testing {

// Runs `program` with a GPU and a stream of it, and waits for that. Tests are
// linked with one that is emulated, which also finds races and wild writes, or
// with the machine's. ERRORS: Unavailable where there is none.
absl::Status RunOnGpu(
    absl::FunctionRef<absl::Status(CudaDevice& device, Stream& stream)>
        program);

}  // namespace tessera::testing

#endif  // TESSERA_TESTS_GPU_RUN_ON_GPU_H_

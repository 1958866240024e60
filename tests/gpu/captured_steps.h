#ifndef TESSERA_TESTS_GPU_CAPTURED_STEPS_H_
#define TESSERA_TESTS_GPU_CAPTURED_STEPS_H_

#include "absl/status/status.h"
#include "tessera/comm/communicator.h"

namespace tessera::testing {

// Trains under FSDP for some steps, then the same with one step captured in a
// CUDA graph and replayed: fails where weights differ in any bit. `world` is on
// a stream of a CudaDevice. COLLECTIVE over it.
absl::Status CheckCapturedSteps(Communicator& world);

}  // namespace tessera::testing

#endif  // TESSERA_TESTS_GPU_CAPTURED_STEPS_H_

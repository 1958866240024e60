#include "absl/status/status.h"
#include "tessera/device/cuda/cuda_device.h"

namespace tessera {
namespace {

absl::Status NotBuiltIn() {
  return absl::UnavailableError(
      "cuda: want CUDA, found a build of Tessera without it (TESSERA_CUDA)");
}

}  // namespace

absl::StatusOr<int> CudaDeviceCount() { return NotBuiltIn(); }

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Create(int, Options) {
  return NotBuiltIn();
}

}  // namespace tessera

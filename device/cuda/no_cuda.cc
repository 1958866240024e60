#include "absl/status/status.h"
#include "tessera/device/cuda/cuda_device.h"

namespace tessera {
namespace {

absl::Status NotBuiltIn() {
  return absl::UnavailableError(
      "cuda: this build has no CUDA; configure it with TESSERA_CUDA=ON");
}

}  // namespace

absl::StatusOr<int> CudaDeviceCount() { return NotBuiltIn(); }

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Create(int, Options) {
  return NotBuiltIn();
}

}  // namespace tessera

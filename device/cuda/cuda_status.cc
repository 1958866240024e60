#include "tessera/device/cuda/cuda_status.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace tessera::internal {

absl::Status CudaStatus(cudaError_t error, absl::string_view wanted) {
  if (error == cudaSuccess) return absl::OkStatus();
  const std::string message =
      absl::StrCat("cuda: want ", wanted, ", found ", cudaGetErrorName(error),
                   ": ", cudaGetErrorString(error));
  switch (error) {
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
      return absl::UnavailableError(message);
    case cudaErrorMemoryAllocation:
      return absl::ResourceExhaustedError(message);
    default:
      return absl::InternalError(message);
  }
}

CurrentDevice::CurrentDevice(int ordinal) {
  int current = -1;
  error_ = cudaGetDevice(&current);
  if (error_ != cudaSuccess || current == ordinal) return;
  error_ = cudaSetDevice(ordinal);
  if (error_ == cudaSuccess) before_ = current;
}

CurrentDevice::~CurrentDevice() {
  if (before_ != -1) cudaSetDevice(before_);
}

}  // namespace tessera::internal

#ifndef TESSERA_DEVICE_CUDA_CUDA_STATUS_H_
#define TESSERA_DEVICE_CUDA_CUDA_STATUS_H_

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tessera::internal {

// OK for cudaSuccess; else an error with CUDA's own text:
// "cuda: want cudaStreamCreate, found cudaErrorInvalidValue: invalid argument".
// ERRORS: Unavailable where there is no GPU or no driver for it;
// ResourceExhausted where there is no memory; Internal for all else.
absl::Status CudaStatus(cudaError_t error, absl::string_view wanted);

// Makes `ordinal` the calling thread's device while it is in scope.
class CurrentDevice {
 public:
  explicit CurrentDevice(int ordinal);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

  // Whether that was possible.
  absl::Status status() const { return CudaStatus(error_, "cudaSetDevice"); }

 private:
  cudaError_t error_ = cudaSuccess;
  int before_ = -1;  // to be restored; -1: nothing is
};

}  // namespace tessera::internal

#endif  // TESSERA_DEVICE_CUDA_CUDA_STATUS_H_

#include <iostream>

#include "tessera/comm/nccl/nccl_world.h"
#include "tessera/device/cuda/cuda_device.h"

// Links the device and the backend, and is told whether there is a GPU.
int main() {
  const auto count = tessera::CudaDeviceCount();
  const auto id = tessera::NewNcclId();
  std::cout << count.status() << "\n" << id.status() << "\n";
  const bool is_plain =
      count.ok() || count.status().code() == absl::StatusCode::kUnavailable;
  return is_plain ? 0 : 1;
}

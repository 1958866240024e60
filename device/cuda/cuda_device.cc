#include "tessera/device/cuda/cuda_device.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tessera/base/status_macros.h"
#include "tessera/device/cuda/cuda_kernels.h"
#include "tessera/device/cuda/cuda_pool.h"
#include "tessera/device/cuda/cuda_status.h"
#include "tessera/device/cuda/cuda_stream.h"
#include "tessera/device/cuda/nvtx_domain.h"
#include "tessera/device/cuda/pinned_memory.h"

namespace tessera {
namespace {

using internal::CudaPool;
using internal::CudaStatus;
using internal::CudaStream;
using internal::CurrentDevice;
using internal::NvtxDomain;
using internal::PinnedMemory;

class RealCudaDevice final : public CudaDevice {
 public:
  RealCudaDevice(int ordinal, Options options)
      : CudaDevice(options.memory_limit_bytes),
        ordinal_(ordinal),
        options_(std::move(options)),
        kernels_(internal::NewCudaKernels()) {}

  // Called once, before anything else.
  absl::Status Init();

  std::string name() const override { return absl::StrCat("cuda:", ordinal_); }
  int ordinal() const override { return ordinal_; }
  CudaAllocator* allocator() const override { return options_.allocator; }
  const Properties& properties() const override { return properties_; }
  Kernels& kernels() override { return *kernels_; }
  int64_t NowNanos() const override;

  absl::StatusOr<std::unique_ptr<Stream>> NewStream(
      absl::string_view name) override;
  absl::StatusOr<std::unique_ptr<Stream>> WrapStream(
      void* cuda_stream, absl::string_view name) override;

 private:
  void* DoAllocate(int64_t bytes, absl::string_view tag,
                   Stream* first_use) override;
  void DoFree(void* data, int64_t bytes, absl::string_view tag,
              Stream* after) override;
  void* DoAllocateHost(int64_t bytes) override;
  void DoFreeHost(void* data, int64_t bytes) override;
  CudaAllocator& memory() {
    return options_.allocator != nullptr ? *options_.allocator : *pool_;
  }

  const int ordinal_;
  const Options options_;
  const NvtxDomain nvtx_;
  const std::unique_ptr<Kernels> kernels_;
  std::unique_ptr<CudaPool> pool_;
  Properties properties_;
  int lowest_priority_ = 0;
  int highest_priority_ = 0;
  PinnedMemory pinned_;
};

absl::Status RealCudaDevice::Init() {
  const CurrentDevice current(ordinal_);
  TESSERA_RETURN_IF_ERROR(current.status());
  cudaDeviceProp properties;
  TESSERA_RETURN_IF_ERROR(
      CudaStatus(cudaGetDeviceProperties(&properties, ordinal_),
                 "cudaGetDeviceProperties"));
  properties_ = {
      .gpu = properties.name,
      .memory_bytes = static_cast<int64_t>(properties.totalGlobalMem),
      .multiprocessors = properties.multiProcessorCount,
      .compute_capability = properties.major * 10 + properties.minor};
  TESSERA_RETURN_IF_ERROR(CudaStatus(
      cudaDeviceGetStreamPriorityRange(&lowest_priority_, &highest_priority_),
      "cudaDeviceGetStreamPriorityRange"));
  TESSERA_ASSIGN_OR_RETURN(pool_, CudaPool::Create(ordinal_));
  return absl::OkStatus();
}

int64_t RealCudaDevice::NowNanos() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

absl::StatusOr<std::unique_ptr<Stream>> RealCudaDevice::NewStream(
    absl::string_view name) {
  const int wanted =
      options_.stream_priority == nullptr ? 0 : options_.stream_priority(name);
  // The highest priority is the lowest number.
  return CudaStream::Create(
      *this, ordinal_, name,
      std::clamp(wanted, highest_priority_, lowest_priority_), nvtx_);
}

absl::StatusOr<std::unique_ptr<Stream>> RealCudaDevice::WrapStream(
    void* cuda_stream, absl::string_view name) {
  // By its other name: no handle stands for no stream elsewhere.
  const cudaStream_t stream = cuda_stream == nullptr
                                  ? cudaStreamLegacy
                                  : static_cast<cudaStream_t>(cuda_stream);
  return CudaStream::Wrap(*this, ordinal_, name, stream, nvtx_);
}

void* RealCudaDevice::DoAllocate(int64_t bytes, absl::string_view,
                                 Stream* first_use) {
  const CurrentDevice current(ordinal_);
  if (!current.status().ok()) return nullptr;
  return memory().Allocate(
      bytes, first_use == nullptr ? nullptr : first_use->native_handle());
}

void RealCudaDevice::DoFree(void* data, int64_t bytes, absl::string_view,
                            Stream* after) {
  const CurrentDevice current(ordinal_);
  memory().Free(data, bytes,
                after == nullptr ? nullptr : after->native_handle());
}

void* RealCudaDevice::DoAllocateHost(int64_t bytes) {
  const CurrentDevice current(ordinal_);
  return current.status().ok() ? pinned_.Allocate(bytes) : nullptr;
}

void RealCudaDevice::DoFreeHost(void* data, int64_t bytes) {
  pinned_.Free(data, bytes);
}

}  // namespace

absl::StatusOr<int> CudaDeviceCount() {
  int count = 0;
  const absl::Status status =
      CudaStatus(cudaGetDeviceCount(&count), "a GPU and its driver");
  if (!status.ok()) return absl::UnavailableError(status.message());
  if (count == 0) return absl::UnavailableError("cuda: want a GPU, found none");
  return count;
}

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Create(
    int ordinal, Options options) {
  TESSERA_ASSIGN_OR_RETURN(const int count, CudaDeviceCount());
  if (ordinal < 0 || ordinal >= count) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cuda: want a GPU in [0,", count, "), found number ", ordinal));
  }
  auto device = std::make_unique<RealCudaDevice>(ordinal, std::move(options));
  TESSERA_RETURN_IF_ERROR(device->Init());
  return device;
}

}  // namespace tessera

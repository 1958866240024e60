#ifndef TESSERA_DEVICE_CUDA_CUDA_STREAM_H_
#define TESSERA_DEVICE_CUDA_CUDA_STREAM_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tessera/base/mutex.h"
#include "tessera/device/cuda/nvtx_domain.h"
#include "tessera/device/stream.h"

namespace tessera::internal {

// Knows of failures on a stream that CUDA does not report: of peers that do not
// come, say. Thread-safe.
class StreamMonitor {
 public:
  virtual ~StreamMonitor() = default;
  // OK, or what the stream fails with. Once it has failed, what is enqueued
  // must come to its end. Does not block.
  virtual absl::Status Check() = 0;
};

// A cudaStream_t. Errors of calls are sticky at once; those of kernels and of
// monitors once the host waits for the stream, or enqueues a collective.
class CudaStream final : public Stream {
 public:
  // A stream of its own, with CUDA's priority. LIFETIME: borrows the domain.
  static absl::StatusOr<std::unique_ptr<CudaStream>> Create(
      Device& device, int ordinal, absl::string_view name, int priority,
      const NvtxDomain& nvtx);
  // The caller's.
  static absl::StatusOr<std::unique_ptr<CudaStream>> Wrap(
      Device& device, int ordinal, absl::string_view name, cudaStream_t stream,
      const NvtxDomain& nvtx);
  ~CudaStream() override;

  void* native_handle() const override { return stream_; }
  absl::Status Launch(const LaunchDescriptor& descriptor,
                      LaunchBody body) override;
  Event Record() override;
  // ERRORS: also InvalidArgument for an event of another kind of device.
  absl::Status Wait(const Event& event) override;
  absl::Status Synchronize() override;
  absl::Status status() const override;
  void BeginRange(absl::string_view action, absl::string_view subject) override;
  void EndRange() override;

  // The stream fails with this, unless it has failed before.
  void Fail(const absl::Status& error);
  // Asks `monitor` whenever the host waits, for as long as it exists.
  void AddMonitor(std::weak_ptr<StreamMonitor> monitor);

  // kSumBlocks doubles for sums on this stream.
  double* sum_scratch() const { return sum_scratch_; }

 private:
  class Progress;
  class Point;

  CudaStream(Device& device, int ordinal, absl::string_view name,
             cudaStream_t stream, bool is_owned, const NvtxDomain& nvtx);
  absl::Status Init();
  // OK where an event that was recorded on `stream` has passed.
  absl::Status CheckPassed(cudaEvent_t event, absl::string_view stream) const;

  const int ordinal_;
  const cudaStream_t stream_;
  const bool is_owned_;
  const NvtxDomain& nvtx_;
  const std::shared_ptr<Progress> progress_;
  double* sum_scratch_ = nullptr;
};

}  // namespace tessera::internal

#endif  // TESSERA_DEVICE_CUDA_CUDA_STREAM_H_

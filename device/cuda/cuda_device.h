#ifndef TESSERA_DEVICE_CUDA_CUDA_DEVICE_H_
#define TESSERA_DEVICE_CUDA_CUDA_DEVICE_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tessera/device/device.h"
#include "tessera/device/stream.h"

namespace tessera {

// Where a CudaDevice has its memory from, where it is not a pool of its own.
// Thread-safe.
class CudaAllocator {
 public:
  virtual ~CudaAllocator() = default;
  // At least one byte of the current device's memory, aligned to 128; null
  // where there is none. What `stream`, a cudaStream_t, is given from now on
  // may use it; where that is null, everybody at once.
  virtual void* Allocate(int64_t bytes, void* stream) = 0;
  // What Allocate gave for so many bytes. Nothing uses it any more; where
  // `stream` is not null, only once that has come here.
  virtual void Free(void* data, int64_t bytes, void* stream) = 0;
};

// GPUs that this process sees. ERRORS: Unavailable where CUDA is not built in,
// or there is no GPU, or no driver for it.
absl::StatusOr<int> CudaDeviceCount();

// One GPU, as one rank's device.
//
//   TESSERA_ASSIGN_OR_RETURN(auto device, CudaDevice::Create(local_rank));
//   TESSERA_ASSIGN_OR_RETURN(auto stream, device->NewStream("compute"));
//   TESSERA_ASSIGN_OR_RETURN(Buffer x, device->Allocate(n, "x", stream.get()));
//
// Streams are CUDA's, bodies of launches enqueue kernels on
// Stream::native_handle(), and nothing blocks the host but Synchronize.
// Kernels give the bits of those of a CPU, AddSquares aside, whose order of
// additions depends on the number of elements alone.
//
// Memory is from a pool of the device: what is freed stays there, and goes from
// stream to stream in the order of their work. Accounts are exact, and say
// nothing of what the pool rounds up.
//
// Streams may be captured in a graph: whatever they are given goes there,
// memory that names one of them as its first use included. What they wait for
// from outside has been done before the capture begins; an event that was
// captured counts as passed once the capture has ended.
//
// Streams are named in NVTX, where their ranges and launches are ranges in the
// domain "tessera".
//
// Thread-safe. No call changes the calling thread's current device for longer
// than it takes. LIFETIME: outlives its streams, events and buffers.
class CudaDevice : public Device {
 public:
  struct Options {
    int64_t memory_limit_bytes = INT64_MAX;
    // The caller's, which outlives the device; null: the pool.
    CudaAllocator* allocator = nullptr;
    // The priority of streams that NewStream makes by name, as CUDA counts:
    // lower numbers go first, 0 is the default. Others than the device has are
    // moved into its range. Null: 0. The runtime's own streams, "gather" and
    // "reduce" in a name, say, are told apart by it.
    std::function<int(absl::string_view name)> stream_priority = nullptr;
  };

  // The GPU with this number.
  // ERRORS: as CudaDeviceCount; InvalidArgument for another number; Internal,
  // with CUDA's own text.
  static absl::StatusOr<std::unique_ptr<CudaDevice>> Create(int ordinal) {
    return Create(ordinal, Options{});
  }
  static absl::StatusOr<std::unique_ptr<CudaDevice>> Create(int ordinal,
                                                            Options options);

  virtual int ordinal() const = 0;
  // The one in the options.
  virtual CudaAllocator* allocator() const = 0;

  // The caller's cudaStream_t as a stream, null the legacy default one: its
  // errors are known once operations have been given to it through this.
  // LIFETIME: borrowed.
  virtual absl::StatusOr<std::unique_ptr<Stream>> WrapStream(
      void* cuda_stream, absl::string_view name) = 0;

  // The name of the GPU, "NVIDIA H200", and what it has in all.
  struct Properties {
    std::string gpu;
    int64_t memory_bytes = 0;
    int multiprocessors = 0;
    int compute_capability = 0;  // 90 for 9.0
  };
  virtual const Properties& properties() const = 0;

 protected:
  using Device::Device;
};

}  // namespace tessera

#endif  // TESSERA_DEVICE_CUDA_CUDA_DEVICE_H_

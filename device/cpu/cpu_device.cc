#include "tessera/device/cpu/cpu_device.h"

#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "tessera/device/cpu/cpu_stream.h"
#include "tessera/device/cpu/elementwise.h"

namespace tessera {
namespace {

// What Device::Allocate promises.
constexpr std::align_val_t kAlignment{128};

struct Free {
  void operator()(std::byte* data) const {
    ::operator delete(data, kAlignment);
  }
};

void CopyBytes(void* dst, const void* src, int64_t bytes) {
  // Null pointers are legal only here.
  if (bytes > 0) std::memcpy(dst, src, bytes);
}

// Bodies capture views as `dst = dst`: a plain copy of what is const stays so,
// and could not be moved into the stream.
class CpuKernels final : public Kernels {
 private:
  absl::Status DoFill(Stream& stream, const TensorView& dst,
                      double value) override {
    const MemoryRange writes[] = {dst};
    return stream.Launch(
        {.name = "fill", .writes = writes, .bytes = dst.num_bytes()},
        [dst = dst, value] {
          FillElements(dst, value);
          return absl::OkStatus();
        });
  }

  absl::Status DoCopy(Stream& stream, const TensorView& dst,
                      const TensorView& src) override {
    const MemoryRange reads[] = {src};
    const MemoryRange writes[] = {dst};
    return stream.Launch({.name = "copy",
                          .reads = reads,
                          .writes = writes,
                          .bytes = src.num_bytes() + dst.num_bytes()},
                         [dst = dst, src = src] {
                           CopyElements(dst, src);
                           return absl::OkStatus();
                         });
  }

  absl::Status DoCast(Stream& stream, const TensorView& dst,
                      const TensorView& src) override {
    const MemoryRange reads[] = {src};
    const MemoryRange writes[] = {dst};
    return stream.Launch({.name = "cast",
                          .reads = reads,
                          .writes = writes,
                          .bytes = src.num_bytes() + dst.num_bytes()},
                         [dst = dst, src = src] {
                           CastElements(dst, src);
                           return absl::OkStatus();
                         });
  }

  absl::Status DoScale(Stream& stream, const TensorView& x,
                       double factor) override {
    const MemoryRange ranges[] = {x};
    return stream.Launch({.name = "scale",
                          .reads = ranges,
                          .writes = ranges,
                          .bytes = 2 * x.num_bytes(),
                          .flops = x.num_elements()},
                         [x = x, factor] {
                           ScaleElements(x, factor);
                           return absl::OkStatus();
                         });
  }

  absl::Status DoAdd(Stream& stream, const TensorView& dst,
                     const TensorView& src) override {
    const MemoryRange reads[] = {dst, src};
    const MemoryRange writes[] = {dst};
    return stream.Launch({.name = "add",
                          .reads = reads,
                          .writes = writes,
                          .bytes = src.num_bytes() + 2 * dst.num_bytes(),
                          .flops = dst.num_elements()},
                         [dst = dst, src = src] {
                           AddElements(dst, src);
                           return absl::OkStatus();
                         });
  }

  absl::Status DoAccumulateScaled(Stream& stream, const TensorView& dst,
                                  const TensorView& src,
                                  double scale) override {
    const MemoryRange reads[] = {dst, src};
    const MemoryRange writes[] = {dst};
    return stream.Launch({.name = "accumulate_scaled",
                          .reads = reads,
                          .writes = writes,
                          .bytes = src.num_bytes() + 2 * dst.num_bytes(),
                          .flops = 2 * dst.num_elements()},
                         [dst = dst, src = src, scale] {
                           AccumulateScaledElements(dst, src, scale);
                           return absl::OkStatus();
                         });
  }

  absl::Status DoCopyFromHost(Stream& stream, const TensorView& dst,
                              const void* host) override {
    const MemoryRange writes[] = {dst};
    return stream.Launch(
        {.name = "copy_from_host", .writes = writes, .bytes = dst.num_bytes()},
        [dst = dst, host] {
          CopyBytes(dst.data(), host, dst.num_bytes());
          return absl::OkStatus();
        });
  }

  absl::Status DoCopyToHost(Stream& stream, void* host,
                            const TensorView& src) override {
    const MemoryRange reads[] = {src};
    return stream.Launch(
        {.name = "copy_to_host", .reads = reads, .bytes = src.num_bytes()},
        [host, src = src] {
          CopyBytes(host, src.data(), src.num_bytes());
          return absl::OkStatus();
        });
  }
};

}  // namespace

CpuDevice::CpuDevice(Options options)
    : Device(options.memory_limit_bytes),
      options_(options),
      kernels_(std::make_unique<CpuKernels>()) {}

CpuDevice::~CpuDevice() = default;

absl::StatusOr<std::unique_ptr<Stream>> CpuDevice::NewStream(
    absl::string_view name) {
  return internal::NewCpuStream(options_.streams, *this, name);
}

int64_t CpuDevice::NowNanos() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void* CpuDevice::DoAllocate(int64_t bytes) {
  return ::operator new(bytes, kAlignment, std::nothrow);
}

void CpuDevice::DoFree(void* data, int64_t bytes, Stream* after) {
  std::unique_ptr<std::byte, Free> owner(static_cast<std::byte*>(data));
  if (after == nullptr) return;
  // The body's destructor frees, so a failed stream, which drops the body,
  // frees too; the error is the stream's to report.
  const MemoryRange writes[] = {{data, bytes}};
  after
      ->Launch({.name = "free", .writes = writes},
               [owner = std::move(owner)] { return absl::OkStatus(); })
      .IgnoreError();
}

}  // namespace tessera

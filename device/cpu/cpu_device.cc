#include "tessera/device/cpu/cpu_device.h"

#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include "tessera/device/cpu/cpu_stream.h"
#include "tessera/device/cpu/elementwise.h"
#include "tessera/device/cpu/memory_pool.h"
#include "tessera/device/cpu/norm_kernels.h"
#include "tessera/device/cpu/optimizer_kernels.h"

namespace tessera {
namespace {

// Gives memory back to where it is from.
struct Free {
  HostAllocator* allocator;
  int64_t bytes;
  void operator()(void* data) const { allocator->Free(data, bytes); }
};

void CopyBytes(void* dst, const void* src, int64_t bytes) {
  // Null pointers are legal only here.
  if (bytes > 0) std::memcpy(dst, src, bytes);
}

// Fewer bytes than the views are.
internal::UpdateRows RowsOf(const TensorView& weight,
                            const TensorView& gradient, const TensorView& first,
                            const TensorView& second = {}) {
  return {.n = weight.num_elements(),
          .dtype = weight.dtype(),
          .weight = weight.data(),
          .gradient_dtype = gradient.dtype(),
          .gradient = gradient.data(),
          .first = first.data(),
          .second = second.data()};
}

// Bodies capture views as `dst = dst`: a plain copy of what is const stays so,
// and could not be moved into the stream.
class CpuKernels final : public Kernels {
 private:
  LaunchBody FillBody(Stream&, const TensorView& dst, double value) override {
    return [dst = dst, value] {
      FillElements(dst, value);
      return absl::OkStatus();
    };
  }

  LaunchBody CopyBody(Stream&, const TensorView& dst,
                      const TensorView& src) override {
    return [dst = dst, src = src] {
      CopyElements(dst, src);
      return absl::OkStatus();
    };
  }

  LaunchBody CastBody(Stream&, const TensorView& dst,
                      const TensorView& src) override {
    return [dst = dst, src = src] {
      CastElements(dst, src);
      return absl::OkStatus();
    };
  }

  LaunchBody ScaleBody(Stream&, const TensorView& x, double factor) override {
    return [x = x, factor] {
      ScaleElements(x, factor);
      return absl::OkStatus();
    };
  }

  LaunchBody AddBody(Stream&, const TensorView& dst,
                     const TensorView& src) override {
    return [dst = dst, src = src] {
      AddElements(dst, src);
      return absl::OkStatus();
    };
  }

  LaunchBody AccumulateScaledBody(Stream&, const TensorView& dst,
                                  const TensorView& src,
                                  double scale) override {
    return [dst = dst, src = src, scale] {
      AccumulateScaledElements(dst, src, scale);
      return absl::OkStatus();
    };
  }

  LaunchBody SgdBody(Stream&, const TensorView& weight,
                     const TensorView& gradient, const TensorView& momentum,
                     const SgdUpdate& update) override {
    return [rows = RowsOf(weight, gradient, momentum), update] {
      internal::SgdRow(rows, update);
      return absl::OkStatus();
    };
  }

  LaunchBody AdamWBody(Stream&, const TensorView& weight,
                       const TensorView& gradient,
                       const TensorView& first_moment,
                       const TensorView& second_moment,
                       const AdamWUpdate& update) override {
    return
        [rows = RowsOf(weight, gradient, first_moment, second_moment), update] {
          internal::AdamWRow(rows, update);
          return absl::OkStatus();
        };
  }

  LaunchBody AddSquaresBody(Stream&, const TensorView& sum,
                            const TensorView& x) override {
    return [sum = sum.as<double>(), x = x] {
      *sum += internal::SumOfSquares(x.dtype(), x.data(), x.num_elements());
      return absl::OkStatus();
    };
  }

  LaunchBody CountNonFiniteBody(Stream&, const TensorView& count,
                                const TensorView& x) override {
    return [count = count.as<double>(), x = x] {
      *count += static_cast<double>(
          internal::CountNonFinite(x.dtype(), x.data(), x.num_elements()));
      return absl::OkStatus();
    };
  }

  LaunchBody CopyFromHostBody(Stream&, const TensorView& dst,
                              const void* host) override {
    return [dst = dst, host] {
      CopyBytes(dst.data(), host, dst.num_bytes());
      return absl::OkStatus();
    };
  }

  LaunchBody CopyToHostBody(Stream&, void* host,
                            const TensorView& src) override {
    return [host, src = src] {
      CopyBytes(host, src.data(), src.num_bytes());
      return absl::OkStatus();
    };
  }
};

}  // namespace

CpuDevice::CpuDevice(Options options)
    : Device(options.memory_limit_bytes),
      options_(options),
      kernels_(std::make_unique<CpuKernels>()),
      pool_(std::make_unique<internal::MemoryPool>()),
      allocator_(options.allocator != nullptr ? *options.allocator : *pool_) {}

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

int64_t CpuDevice::system_allocations() const {
  return pool_->system_allocations();
}

void* CpuDevice::DoAllocate(int64_t bytes, absl::string_view) {
  return allocator_.Allocate(bytes);
}

void CpuDevice::DoFree(void* data, int64_t bytes, absl::string_view,
                       Stream* after) {
  std::unique_ptr<void, Free> owner(data, Free{&allocator_, bytes});
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

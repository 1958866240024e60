#include "tessera/device/cpu/cpu_device.h"

#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include "tessera/device/cpu/cpu_stream.h"
#include "tessera/device/cpu/cpu_tracer.h"
#include "tessera/device/cpu/elementwise.h"
#include "tessera/device/cpu/freed_blocks.h"
#include "tessera/device/cpu/memory_pool.h"
#include "tessera/device/cpu/norm_kernels.h"
#include "tessera/device/cpu/optimizer_kernels.h"

namespace tessera {
namespace {

// Gives a block back when it is destroyed.
class GiveBack {
 public:
  GiveBack(internal::FreedBlocks& freed, int64_t ticket,
           HostAllocator& allocator)
      : freed_(&freed), ticket_(ticket), allocator_(&allocator) {}
  GiveBack(GiveBack&& other) noexcept
      : freed_(std::exchange(other.freed_, nullptr)),
        ticket_(other.ticket_),
        allocator_(other.allocator_) {}
  GiveBack& operator=(GiveBack&&) = delete;
  ~GiveBack() {
    if (freed_ != nullptr) freed_->GiveBack(ticket_, *allocator_);
  }

 private:
  internal::FreedBlocks* freed_;
  int64_t ticket_;
  HostAllocator* allocator_;
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

  LaunchBody ClipToNormBody(Stream&, const TensorView& x,
                            const TensorView& squares,
                            double max_norm) override {
    return [x = x, squares = squares.as<double>(), max_norm] {
      const double factor = internal::ClipFactor(*squares, max_norm);
      if (factor < 1) ScaleElements(x, factor);
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
      freed_(std::make_unique<internal::FreedBlocks>()),
      tracer_(options.trace ? std::make_unique<internal::CpuTracer>()
                            : nullptr),
      allocator_(options.allocator != nullptr ? *options.allocator : *pool_) {}

CpuDevice::~CpuDevice() = default;

absl::StatusOr<std::unique_ptr<Stream>> CpuDevice::NewStream(
    absl::string_view name) {
  return internal::NewCpuStream(options_.streams, *this, name, tracer_.get());
}

int64_t CpuDevice::NowNanos() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Trace CpuDevice::trace() const {
  return tracer_ == nullptr ? Trace() : tracer_->trace();
}

void CpuDevice::ClearTrace() {
  if (tracer_ != nullptr) tracer_->Clear();
}

int64_t CpuDevice::system_allocations() const {
  return pool_->system_allocations();
}

void* CpuDevice::DoAllocate(int64_t bytes, absl::string_view,
                            Stream* first_use) {
  if (first_use != nullptr) {
    if (const auto block = freed_->HandOn(bytes); block.has_value()) {
      // An error is the stream's to report.
      first_use->Wait(block->freed).IgnoreError();
      return block->data;
    }
  }
  return allocator_.Allocate(bytes);
}

void CpuDevice::DoFree(void* data, int64_t bytes, absl::string_view,
                       Stream* after) {
  if (after == nullptr) {
    allocator_.Free(data, bytes);
    return;
  }
  const int64_t ticket = freed_->Add({data, bytes, after->Record()});
  const MemoryRange writes[] = {{data, bytes}};
  after
      ->Launch({.name = "free", .writes = writes},
               [give_back = GiveBack(*freed_, ticket, allocator_)] {
                 return absl::OkStatus();
               })
      .IgnoreError();
}

}  // namespace tessera

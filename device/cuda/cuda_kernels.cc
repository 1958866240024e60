#include "tessera/device/cuda/cuda_kernels.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tessera/device/cuda/box.h"
#include "tessera/device/cuda/cuda_status.h"
#include "tessera/device/cuda/cuda_stream.h"
#include "tessera/device/cuda/kernels.h"
#include "tessera/device/cuda/numbers.h"
#include "tessera/device/loops.h"

namespace tessera::internal {
namespace {

// What an index of 32 bits can tell apart, with room for a last block.
constexpr int64_t kMaxBoxElements = int64_t{1} << 30;

cudaStream_t HandleOf(const Stream& stream) {
  return static_cast<cudaStream_t>(stream.native_handle());
}

double* ScratchOf(const Stream& stream) {
  return static_cast<const CudaStream&>(stream).sum_scratch();
}

int ElementBytesOf(const TensorView& view) {
  return static_cast<int>(SizeOf(view.dtype()));
}

// Element `offset` of the view's memory.
std::byte* AddressOf(const TensorView& view, int64_t offset) {
  return view.as<std::byte>() + offset * SizeOf(view.dtype());
}

Pattern PatternOf(DType dtype, double value) {
  return VisitDType(dtype, [value]<typename T>() {
    std::array<T, sizeof(Pattern) / sizeof(T)> elements;
    elements.fill(Convert<T>(value));
    Pattern pattern;
    std::memcpy(&pattern, elements.data(), sizeof(pattern));
    return pattern;
  });
}

UpdateArrays ArraysOf(const TensorView& weight, const TensorView& gradient,
                      const TensorView& first, const TensorView& second = {}) {
  return {.n = weight.num_elements(),
          .dtype = weight.dtype(),
          .weight = weight.data(),
          .gradient_dtype = gradient.dtype(),
          .gradient = gradient.data(),
          .first = first.data(),
          .second = second.data()};
}

// --- Strided views ----------------------------------------------------------

cudaError_t FillView(cudaStream_t stream, const TensorView& dst, double value) {
  if (dst.num_elements() == 0) return cudaSuccess;
  const Pattern pattern = PatternOf(dst.dtype(), value);
  const int element_bytes = ElementBytesOf(dst);
  const Loops loops = LoopsOver(dst, {});
  if (IsDense(loops)) {
    return FillDense(stream, element_bytes, dst.data(), dst.num_elements(),
                     pattern);
  }
  return ForEachBox(loops, kMaxBoxElements,
                    [&](const Box& box, const BoxOffsets& offsets) {
                      return FillBox(stream, element_bytes,
                                     AddressOf(dst, offsets[0]), box, pattern);
                    });
}

cudaError_t CopyBytes(cudaStream_t stream, void* dst, const void* src,
                      int64_t bytes, cudaMemcpyKind kind) {
  // Null pointers are legal only here.
  if (bytes == 0) return cudaSuccess;
  return cudaMemcpyAsync(dst, src, bytes, kind, stream);
}

cudaError_t CopyDense(cudaStream_t stream, const TensorView& dst,
                      const TensorView& src) {
  return CopyBytes(stream, dst.data(), src.data(), dst.num_bytes(),
                   cudaMemcpyDeviceToDevice);
}

cudaError_t CopyView(cudaStream_t stream, const TensorView& dst,
                     const TensorView& src) {
  // Views that overlap are the same.
  if (dst.num_elements() == 0 || dst.data() == src.data()) return cudaSuccess;
  const Loops loops = LoopsOver(dst, {&src, 1});
  if (IsDense(loops)) return CopyDense(stream, dst, src);
  return ForEachBox(
      loops, kMaxBoxElements, [&](const Box& box, const BoxOffsets& offsets) {
        return CopyBox(stream, ElementBytesOf(dst), AddressOf(dst, offsets[0]),
                       AddressOf(src, offsets[1]), box);
      });
}

cudaError_t ScaleView(cudaStream_t stream, const TensorView& x, double factor) {
  if (x.num_elements() == 0) return cudaSuccess;
  const Loops loops = LoopsOver(x, {});
  if (IsDense(loops)) {
    return ScaleDense(stream, x.dtype(), x.data(), x.num_elements(), factor);
  }
  return ForEachBox(loops, kMaxBoxElements,
                    [&](const Box& box, const BoxOffsets& offsets) {
                      return ScaleBox(stream, x.dtype(),
                                      AddressOf(x, offsets[0]), box, factor);
                    });
}

// --- Kernels ----------------------------------------------------------------

class CudaKernels final : public Kernels {
 private:
  LaunchBody FillBody(Stream& stream, const TensorView& dst,
                      double value) override {
    return [&stream, &dst, value] {
      return CudaStatus(FillView(HandleOf(stream), dst, value), "fill");
    };
  }
  LaunchBody CopyBody(Stream& stream, const TensorView& dst,
                      const TensorView& src) override {
    return [&stream, &dst, &src] {
      return CudaStatus(CopyView(HandleOf(stream), dst, src), "copy");
    };
  }
  LaunchBody CastBody(Stream& stream, const TensorView& dst,
                      const TensorView& src) override {
    return [&stream, &dst, &src] {
      const cudaStream_t handle = HandleOf(stream);
      return CudaStatus(
          dst.dtype() == src.dtype()
              ? CopyDense(handle, dst, src)
              : CastDense(handle, dst.dtype(), dst.data(), src.dtype(),
                          src.data(), src.num_elements()),
          "cast");
    };
  }
  LaunchBody ScaleBody(Stream& stream, const TensorView& x,
                       double factor) override {
    return [&stream, &x, factor] {
      return CudaStatus(ScaleView(HandleOf(stream), x, factor), "scale");
    };
  }
  LaunchBody AddBody(Stream& stream, const TensorView& dst,
                     const TensorView& src) override {
    return [&stream, &dst, &src] {
      return CudaStatus(AddDense(HandleOf(stream), dst.dtype(), dst.data(),
                                 src.data(), src.num_elements()),
                        "add");
    };
  }
  LaunchBody AccumulateScaledBody(Stream& stream, const TensorView& dst,
                                  const TensorView& src,
                                  double scale) override {
    return [&stream, &dst, &src, scale] {
      return CudaStatus(AccumulateScaledDense(
                            HandleOf(stream), dst.dtype(), dst.data(),
                            src.dtype(), src.data(), src.num_elements(), scale),
                        "accumulate_scaled");
    };
  }
  LaunchBody SgdBody(Stream& stream, const TensorView& weight,
                     const TensorView& gradient, const TensorView& momentum,
                     const SgdUpdate& update) override {
    return [&stream, arrays = ArraysOf(weight, gradient, momentum), &update] {
      return CudaStatus(StepSgd(HandleOf(stream), arrays, update), "sgd");
    };
  }
  LaunchBody AdamWBody(Stream& stream, const TensorView& weight,
                       const TensorView& gradient,
                       const TensorView& first_moment,
                       const TensorView& second_moment,
                       const AdamWUpdate& update) override {
    return [&stream, &update,
            arrays = ArraysOf(weight, gradient, first_moment, second_moment)] {
      return CudaStatus(
          StepAdamW(HandleOf(stream), arrays, update, FactorsOf(update)),
          "adamw");
    };
  }
  LaunchBody AddSquaresBody(Stream& stream, const TensorView& sum,
                            const TensorView& x) override {
    return [&stream, &sum, &x] {
      return CudaStatus(AddSquaresDense(HandleOf(stream), x.dtype(), x.data(),
                                        x.num_elements(), ScratchOf(stream),
                                        sum.as<double>()),
                        "add_squares");
    };
  }
  LaunchBody CountNonFiniteBody(Stream& stream, const TensorView& count,
                                const TensorView& x) override {
    return [&stream, &count, &x] {
      return CudaStatus(
          CountNonFiniteDense(HandleOf(stream), x.dtype(), x.data(),
                              x.num_elements(), ScratchOf(stream),
                              count.as<double>()),
          "count_non_finite");
    };
  }
  LaunchBody ClipToNormBody(Stream& stream, const TensorView& x,
                            const TensorView& squares,
                            double max_norm) override {
    return [&stream, &x, &squares, max_norm] {
      return CudaStatus(
          ClipDense(HandleOf(stream), x.dtype(), x.data(), x.num_elements(),
                    squares.as<double>(), max_norm, ScratchOf(stream)),
          "clip_to_norm");
    };
  }
  LaunchBody CopyFromHostBody(Stream& stream, const TensorView& dst,
                              const void* host) override {
    return [&stream, &dst, host] {
      return CudaStatus(CopyBytes(HandleOf(stream), dst.data(), host,
                                  dst.num_bytes(), cudaMemcpyHostToDevice),
                        "cudaMemcpyAsync from the host");
    };
  }
  LaunchBody CopyToHostBody(Stream& stream, void* host,
                            const TensorView& src) override {
    return [&stream, host, &src] {
      return CudaStatus(CopyBytes(HandleOf(stream), host, src.data(),
                                  src.num_bytes(), cudaMemcpyDeviceToHost),
                        "cudaMemcpyAsync to the host");
    };
  }
};

}  // namespace

std::unique_ptr<Kernels> NewCudaKernels() {
  return std::make_unique<CudaKernels>();
}

}  // namespace tessera::internal

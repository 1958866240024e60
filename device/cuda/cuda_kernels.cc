#include "tessera/device/cuda/cuda_kernels.h"

#include "tessera/device/cuda/cuda_status.h"
#include "tessera/device/cuda/kernels.h"

namespace tessera::internal {
namespace {

cudaStream_t HandleOf(const Stream& stream) {
  return static_cast<cudaStream_t>(stream.native_handle());
}

class CudaKernels final : public Kernels {
 private:
  LaunchBody FillBody(Stream& stream, const TensorView& dst,
                      double value) override {
    return [&stream, dst = dst, value] {
      return CudaStatus(
          FillFloats(HandleOf(stream), dst.as<float>(), dst.num_elements(),
                     static_cast<float>(value)),
          "fill");
    };
  }
  LaunchBody CopyBody(Stream&, const TensorView&, const TensorView&) override {
    return Missing();
  }
  LaunchBody CastBody(Stream&, const TensorView&, const TensorView&) override {
    return Missing();
  }
  LaunchBody ScaleBody(Stream&, const TensorView&, double) override {
    return Missing();
  }
  LaunchBody AddBody(Stream&, const TensorView&, const TensorView&) override {
    return Missing();
  }
  LaunchBody AccumulateScaledBody(Stream&, const TensorView&, const TensorView&,
                                  double) override {
    return Missing();
  }
  LaunchBody SgdBody(Stream&, const TensorView&, const TensorView&,
                     const TensorView&, const SgdUpdate&) override {
    return Missing();
  }
  LaunchBody AdamWBody(Stream&, const TensorView&, const TensorView&,
                       const TensorView&, const TensorView&,
                       const AdamWUpdate&) override {
    return Missing();
  }
  LaunchBody AddSquaresBody(Stream&, const TensorView&,
                            const TensorView&) override {
    return Missing();
  }
  LaunchBody CountNonFiniteBody(Stream&, const TensorView&,
                                const TensorView&) override {
    return Missing();
  }
  LaunchBody ClipToNormBody(Stream&, const TensorView&, const TensorView&,
                            double) override {
    return Missing();
  }
  LaunchBody CopyFromHostBody(Stream& stream, const TensorView& dst,
                              const void* host) override {
    return [&stream, dst = dst, host] {
      return CudaStatus(
          cudaMemcpyAsync(dst.data(), host, dst.num_bytes(),
                          cudaMemcpyHostToDevice, HandleOf(stream)),
          "cudaMemcpyAsync from the host");
    };
  }
  LaunchBody CopyToHostBody(Stream& stream, void* host,
                            const TensorView& src) override {
    return [&stream, host, src = src] {
      return CudaStatus(
          cudaMemcpyAsync(host, src.data(), src.num_bytes(),
                          cudaMemcpyDeviceToHost, HandleOf(stream)),
          "cudaMemcpyAsync to the host");
    };
  }

  LaunchBody Missing() {
    return [] { return absl::UnimplementedError("cuda: kernel"); };
  }
};

}  // namespace

std::unique_ptr<Kernels> NewCudaKernels() {
  return std::make_unique<CudaKernels>();
}

}  // namespace tessera::internal

#include "tessera/device/cuda/kernels.h"
#include "tessera/device/cuda/launch.h"

namespace tessera::internal {
namespace {

struct FillBody {
  float* dst;
  float value;
  TESSERA_HOST_DEVICE void operator()(int64_t i) const { dst[i] = value; }
};

}  // namespace

cudaError_t FillFloats(cudaStream_t stream, float* dst, int64_t n,
                       float value) {
  const Touched touched[] = {{dst, n * sizeof(float), true}};
  return ForEach({stream, "fill", touched, 1}, n, FillBody{dst, value});
}

}  // namespace tessera::internal

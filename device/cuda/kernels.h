#ifndef TESSERA_DEVICE_CUDA_KERNELS_H_
#define TESSERA_DEVICE_CUDA_KERNELS_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "tessera/device/optimizer_update.h"
#include "tessera/tensor/element_type.h"

// What cuda_kernels.cc calls of what nvcc compiles. Each function enqueues on
// the stream what Kernels says of it, on n elements that lie dense at
// addresses that fit their type, or on those of a box; of no elements it
// enqueues nothing. Arguments are not checked.

namespace tessera::internal {

// Elements in up to two arrays: nested loops over indices, the innermost
// first. REQUIRES: fewer than 2^31 elements; at least one.
inline constexpr int kBoxLoops = 5;
inline constexpr int kBoxArrays = 2;
struct Box {
  int num_loops = 0;
  int64_t extents[kBoxLoops] = {};
  int64_t strides[kBoxLoops][kBoxArrays] = {};  // in elements
};

// One element over and over: bytes that fill every access of up to 16 bytes.
struct Pattern {
  alignas(16) unsigned char bytes[16];
};

cudaError_t FillDense(cudaStream_t stream, int element_bytes, void* dst,
                      int64_t n, const Pattern& pattern);
cudaError_t FillBox(cudaStream_t stream, int element_bytes, void* dst,
                    const Box& box, const Pattern& pattern);

// dst is array 0 of the box, src is array 1.
cudaError_t CopyBox(cudaStream_t stream, int element_bytes, void* dst,
                    const void* src, const Box& box);

// REQUIRES: two dtypes.
cudaError_t CastDense(cudaStream_t stream, DType to, void* dst, DType from,
                      const void* src, int64_t n);

cudaError_t ScaleDense(cudaStream_t stream, DType dtype, void* x, int64_t n,
                       double factor);
cudaError_t ScaleBox(cudaStream_t stream, DType dtype, void* x, const Box& box,
                     double factor);

cudaError_t AddDense(cudaStream_t stream, DType dtype, void* dst,
                     const void* src, int64_t n);

cudaError_t AccumulateScaledDense(cudaStream_t stream, DType to, void* dst,
                                  DType from, const void* src, int64_t n,
                                  double scale);

// What an optimizer steps. `first` and `second` are what it keeps.
struct UpdateArrays {
  int64_t n = 0;
  DType dtype = DType::kF32;
  void* weight = nullptr;
  DType gradient_dtype = DType::kF32;
  const void* gradient = nullptr;
  void* first = nullptr;   // SGD: momentum
  void* second = nullptr;  // AdamW only
};
cudaError_t StepSgd(cudaStream_t stream, const UpdateArrays& arrays,
                    const SgdUpdate& update);
cudaError_t StepAdamW(cudaStream_t stream, const UpdateArrays& arrays,
                      const AdamWUpdate& update, const AdamWFactors& factors);

// `scratch`, of kSumBlocks doubles, is the stream's alone; f32 or f64.
cudaError_t AddSquaresDense(cudaStream_t stream, DType dtype, const void* x,
                            int64_t n, double* scratch, double* sum);
cudaError_t CountNonFiniteDense(cudaStream_t stream, DType dtype, const void* x,
                                int64_t n, double* scratch, double* count);
cudaError_t ClipDense(cudaStream_t stream, DType dtype, void* x, int64_t n,
                      const double* squares, double max_norm, double* scratch);

}  // namespace tessera::internal

#endif  // TESSERA_DEVICE_CUDA_KERNELS_H_

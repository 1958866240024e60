#ifndef TESSERA_DEVICE_CPU_ROW_KERNELS_H_
#define TESSERA_DEVICE_CPU_ROW_KERNELS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "tessera/tensor/dtype.h"
#include "tessera/tensor/reduce_op.h"

namespace tessera::internal {

// Arithmetic on n elements that lie one behind the other, with the widest
// vectors that this processor has. An element's bits depend on nothing but its
// operands: not on alignment, length or processor. Rows are the same or do not
// overlap. Thread-safe.

// Copies bytes. With `past_caches`, as CopyElements says.
void CopyRow(void* dst, const void* src, int64_t bytes, bool past_caches);

// As ReduceElements. REQUIRES: at least one source.
void ReduceRow(ReduceOp op, DType dtype, void* dst,
               absl::Span<const void* const> sources, int64_t n);

// True where CastRow knows how: between f32, bf16 and f16.
bool HasCastRow(DType to, DType from);
// As CastElements. REQUIRES: HasCastRow(to, from).
void CastRow(DType to, void* dst, DType from, const void* src, int64_t n);

// As ScaleElements. REQUIRES: `dtype` is a float.
void ScaleRow(DType dtype, void* x, double factor, int64_t n);

// dst[i] += float(src[i]) * scale. REQUIRES: `from` is f32, bf16 or f16.
void AccumulateScaledRow(float* dst, DType from, const void* src, float scale,
                         int64_t n);

}  // namespace tessera::internal

#endif  // TESSERA_DEVICE_CPU_ROW_KERNELS_H_

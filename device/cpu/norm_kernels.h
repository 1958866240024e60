#ifndef TESSERA_DEVICE_CPU_NORM_KERNELS_H_
#define TESSERA_DEVICE_CPU_NORM_KERNELS_H_

#include <cstdint>

#include "tessera/tensor/dtype.h"

namespace tessera::internal {

// Numbers about n elements that lie one behind the other, f32 or f64, with the
// widest vectors that this processor has. They do not depend on alignment or
// processor. Thread-safe.

// As Kernels::AddSquares: what is added. Element i is squared and added to
// partial sum i % 16, in ascending order; then partial sums k and k + 8 are
// added, k and k + 4, k and k + 2, the last two.
double SumOfSquares(DType dtype, const void* x, int64_t n);
// As Kernels::ClipToNorm; 1 where nothing is scaled.
double ClipFactor(double squares, double max_norm);
// How many are infinite or NaN.
int64_t CountNonFinite(DType dtype, const void* x, int64_t n);

}  // namespace tessera::internal

#endif  // TESSERA_DEVICE_CPU_NORM_KERNELS_H_

#ifndef TESSERA_DEVICE_CPU_ELEMENTWISE_H_
#define TESSERA_DEVICE_CPU_ELEMENTWISE_H_

#include <cstdint>

#include "absl/types/span.h"
#include "tessera/tensor/dtype.h"
#include "tessera/tensor/reduce_op.h"
#include "tessera/tensor/tensor_view.h"

namespace tessera {

// The arithmetic of CPU kernels, run at once on the calling thread. Contracts
// are those of Kernels; arguments are not checked. Thread-safe.

void FillElements(const TensorView& dst, double value);
void CopyElements(const TensorView& dst, const TensorView& src);

// Whether `bytes` written by one operation are more than caches keep until
// somebody reads them.
bool OutgrowsCaches(int64_t bytes);
// CopyElements chooses `past_caches` by the size of the copy; a copy in parts
// chooses for all of them: OutgrowsCaches(what all write). Then long rows are
// written to memory without reading into the caches what they replace.
void CopyElements(const TensorView& dst, const TensorView& src,
                  bool past_caches);

void CastElements(const TensorView& dst, const TensorView& src);
void ScaleElements(const TensorView& x, double factor);
void AddElements(const TensorView& dst, const TensorView& src);
void AccumulateScaledElements(const TensorView& dst, const TensorView& src,
                              double scale);

// dst[i] = op over sources[0][i], sources[1][i], ... in this order; bf16 and
// f16 are combined in f32 and rounded once, f32, f64 and integers in their own
// type (integers wrap). kAvg divides the sum by the number of sources before
// it rounds. kMin and kMax give NaN where any source has one.
//
// All views have one dtype and shape; any strides. `dst` may be the same view
// as one source and overlaps no other.
// REQUIRES: at least one source; no kAvg for integers.
void ReduceElements(ReduceOp op, const TensorView& dst,
                    absl::Span<const TensorView> sources);

}  // namespace tessera

#endif  // TESSERA_DEVICE_CPU_ELEMENTWISE_H_

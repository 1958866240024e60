#ifndef TESSERA_DEVICE_KERNELS_H_
#define TESSERA_DEVICE_KERNELS_H_

#include "absl/status/status.h"
#include "tessera/device/optimizer_update.h"
#include "tessera/device/stream.h"
#include "tessera/tensor/tensor_view.h"

namespace tessera {

// The element-wise work that the runtime needs of a device. Every function
// checks its arguments, enqueues on `stream` and returns. Views may have any
// strides where "strided" is said and are contiguous elsewhere; source and
// target must not overlap unless they are the same view.
//
// A CPU allocates nothing for views of up to four dims.
//
// Public functions check and launch; backends implement the private ones, which
// get arguments that hold what is promised here.
//
// ERRORS: InvalidArgument for shapes or dtypes that do not fit, naming both;
// the stream's sticky error.
class Kernels {
 public:
  virtual ~Kernels() = default;

  // dst[i] = value, converted to the dtype: rounded once to nearest even, cut
  // to a whole number for integers, which must hold it. Strided.
  absl::Status Fill(Stream& stream, const TensorView& dst, double value);
  // dst[i] = src[i]. Same dtype and shape. Strided. Bits are kept.
  absl::Status Copy(Stream& stream, const TensorView& dst,
                    const TensorView& src);
  // dst[i] = src[i], rounded to nearest even; floats to integers are rejected,
  // as are narrowing integers. Same number of elements.
  absl::Status Cast(Stream& stream, const TensorView& dst,
                    const TensorView& src);
  // x[i] = x[i] * factor: computed in f64, rounded once to f32 (f64: not) and
  // from there to narrower dtypes. Floats only. Strided.
  absl::Status Scale(Stream& stream, const TensorView& x, double factor);
  // dst[i] += src[i]. Same dtype and number of elements; bf16 and f16 add in
  // f32 and round once.
  absl::Status Add(Stream& stream, const TensorView& dst,
                   const TensorView& src);
  // dst[i] += T(src[i]) * T(scale) in T, the dtype of dst, f32 or f64; src is
  // any float. Product and sum round separately (no fused multiply-add), so
  // that the bits do not depend on alignment, length or processor.
  absl::Status AccumulateScaled(Stream& stream, const TensorView& dst,
                                const TensorView& src, double scale);

  // One step of SGD or AdamW: `weight` and what the optimizer keeps of it in
  // one pass, as optimizer_update.h says, so that the bits do not depend on
  // alignment, length or processor. Weight and gradient are f32 or f64, what is
  // kept has the weight's dtype; one number of elements. `momentum` is not
  // looked at where update.momentum is 0, and not read where update.first.
  // ERRORS: InvalidArgument also for update.step below 1.
  absl::Status Sgd(Stream& stream, const TensorView& weight,
                   const TensorView& gradient, const TensorView& momentum,
                   const SgdUpdate& update);
  absl::Status AdamW(Stream& stream, const TensorView& weight,
                     const TensorView& gradient, const TensorView& first_moment,
                     const TensorView& second_moment,
                     const AdamWUpdate& update);

  // Both read f32 or f64 and add to `sum` (`count`), one f64.
  //
  // sum += x[0]^2 + x[1]^2 + ..., in f64, products and sums rounded separately.
  // Each kind of device adds in an order of its own that depends on the number
  // of elements alone: bits do not depend on alignment, vectors or threads.
  absl::Status AddSquares(Stream& stream, const TensorView& sum,
                          const TensorView& x);
  // count += how many of x are infinite or NaN.
  absl::Status CountNonFinite(Stream& stream, const TensorView& count,
                              const TensorView& x);

  // Scales x, f32 or f64, to an L2 norm of at most `max_norm`, where `squares`
  // is one f64 that holds the square of its norm, or that of more than x:
  //
  //   factor = max_norm / (sqrt(squares) + 1e-6), in f64
  //   x[i] = x[i] * factor where factor < 1, as Scale
  //
  // Where factor is not, or squares are infinite or NaN, x is not touched: what
  // is wrong with it can still be found. ERRORS: InvalidArgument also for a
  // max_norm that is not finite or below 0.
  absl::Status ClipToNorm(Stream& stream, const TensorView& x,
                          const TensorView& squares, double max_norm);

  // Between device memory and the host's. `host` holds dst.num_bytes() (src's)
  // and must stay until the stream has come past.
  absl::Status CopyFromHost(Stream& stream, const TensorView& dst,
                            const void* host);
  absl::Status CopyToHost(Stream& stream, void* host, const TensorView& src);

 private:
  // What does the work on `stream`.
  virtual LaunchBody FillBody(Stream& stream, const TensorView& dst,
                              double value) = 0;
  virtual LaunchBody CopyBody(Stream& stream, const TensorView& dst,
                              const TensorView& src) = 0;
  virtual LaunchBody CastBody(Stream& stream, const TensorView& dst,
                              const TensorView& src) = 0;
  virtual LaunchBody ScaleBody(Stream& stream, const TensorView& x,
                               double factor) = 0;
  virtual LaunchBody AddBody(Stream& stream, const TensorView& dst,
                             const TensorView& src) = 0;
  virtual LaunchBody AccumulateScaledBody(Stream& stream, const TensorView& dst,
                                          const TensorView& src,
                                          double scale) = 0;
  virtual LaunchBody SgdBody(Stream& stream, const TensorView& weight,
                             const TensorView& gradient,
                             const TensorView& momentum,
                             const SgdUpdate& update) = 0;
  virtual LaunchBody AdamWBody(Stream& stream, const TensorView& weight,
                               const TensorView& gradient,
                               const TensorView& first_moment,
                               const TensorView& second_moment,
                               const AdamWUpdate& update) = 0;
  virtual LaunchBody AddSquaresBody(Stream& stream, const TensorView& sum,
                                    const TensorView& x) = 0;
  virtual LaunchBody CountNonFiniteBody(Stream& stream, const TensorView& count,
                                        const TensorView& x) = 0;
  virtual LaunchBody ClipToNormBody(Stream& stream, const TensorView& x,
                                    const TensorView& squares,
                                    double max_norm) = 0;
  virtual LaunchBody CopyFromHostBody(Stream& stream, const TensorView& dst,
                                      const void* host) = 0;
  virtual LaunchBody CopyToHostBody(Stream& stream, void* host,
                                    const TensorView& src) = 0;
};

}  // namespace tessera

#endif  // TESSERA_DEVICE_KERNELS_H_

#ifndef TESSERA_DEVICE_HOST_SCALAR_H_
#define TESSERA_DEVICE_HOST_SCALAR_H_

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tessera/device/device.h"
#include "tessera/device/stream.h"
#include "tessera/tensor/tensor_view.h"

namespace tessera {

// A number that a device computes, and the host learns when it asks: nothing
// waits before that.
//
//   TESSERA_ASSIGN_OR_RETURN(auto sum, HostScalar::Create(stream, "norm"));
//   for (const TensorView& x : gradients) {
//     TESSERA_RETURN_IF_ERROR(kernels.AddSquares(stream, sum.view(), x));
//   }
//   TESSERA_RETURN_IF_ERROR(
//       comm.AllReduce(ReduceOp::kSum, sum.view(), sum.view()));
//   TESSERA_RETURN_IF_ERROR(sum.Request());
//   ...  // enqueue more
//   TESSERA_ASSIGN_OR_RETURN(const double squares, sum.Value());
//
// Move-only; one call at a time. Destruction waits for what was requested.
// LIFETIME: the stream outlives it.
class HostScalar {
 public:
  // f64 memory of the stream's device, zero. ERRORS: ResourceExhausted; the
  // stream's.
  static absl::StatusOr<HostScalar> Create(Stream& stream,
                                           absl::string_view tag);
  HostScalar(HostScalar&&) = default;
  HostScalar& operator=(HostScalar&&) = delete;
  ~HostScalar();

  // The number on the device, f64[1].
  TensorView view() const {
    return TensorView::Flat(memory_.data(), DType::kF64, 1);
  }

  // Enqueues on the stream: makes the number zero.
  absl::Status Zero();

  // Enqueues its way to the host: as it is at this point of the stream.
  absl::Status Request();
  // What was requested last, once it is there: blocks until then. What was
  // never written, as on a simulated device, is zero. ERRORS:
  // FailedPrecondition where nothing was requested; the stream's.
  absl::StatusOr<double> Value() const;

 private:
  HostScalar(Stream& stream, Buffer memory, HostMemory host)
      : stream_(&stream), memory_(std::move(memory)), host_(std::move(host)) {}

  double* host() const { return static_cast<double*>(host_.data()); }

  Stream* stream_;
  Buffer memory_;
  HostMemory host_;                 // where the copy goes; empty if moved from
  std::optional<Event> requested_;  // the copy is there
};

}  // namespace tessera

#endif  // TESSERA_DEVICE_HOST_SCALAR_H_

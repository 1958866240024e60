#include "tessera/device/host_scalar.h"

#include <utility>

#include "tessera/base/status_macros.h"

namespace tessera {

absl::StatusOr<HostScalar> HostScalar::Create(Stream& stream,
                                              absl::string_view tag) {
  TESSERA_ASSIGN_OR_RETURN(HostMemory host,
                           stream.device().AllocateHost(sizeof(double)));
  TESSERA_ASSIGN_OR_RETURN(
      Buffer memory, stream.device().Allocate(sizeof(double), tag, &stream));
  HostScalar scalar(stream, std::move(memory), std::move(host));
  *scalar.host() = 0.0;
  TESSERA_RETURN_IF_ERROR(scalar.Zero());
  return scalar;
}

HostScalar::~HostScalar() {
  if (memory_.empty()) return;
  if (requested_.has_value()) requested_->Synchronize().IgnoreError();
  memory_.ResetAfter(*stream_);
}

absl::Status HostScalar::Zero() {
  return stream_->device().kernels().Fill(*stream_, view(), 0.0);
}

absl::Status HostScalar::Request() {
  TESSERA_RETURN_IF_ERROR(
      stream_->device().kernels().CopyToHost(*stream_, host(), view()));
  requested_ = stream_->Record();
  return absl::OkStatus();
}

absl::StatusOr<double> HostScalar::Value() const {
  if (!requested_.has_value()) {
    return absl::FailedPreconditionError(
        "host_scalar: the value was not requested");
  }
  TESSERA_RETURN_IF_ERROR(requested_->Synchronize());
  return *host();
}

}  // namespace tessera

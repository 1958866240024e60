#include "tessera/fsdp/loss_scaler.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "tessera/base/status_macros.h"
#include "tessera/fsdp/power_of_two.h"
#include "tessera/fsdp/runtime.h"

namespace tessera {
namespace {

absl::Status CheckOptions(const LossScalerOptions& options) {
  TESSERA_RETURN_IF_ERROR(internal::CheckPowerOfTwo(
      "growth_factor", options.growth_factor, internal::kLossScaleExponent));
  TESSERA_RETURN_IF_ERROR(internal::CheckPowerOfTwo(
      "backoff_factor", options.backoff_factor, internal::kLossScaleExponent));
  if (options.growth_factor <= 1 || options.backoff_factor >= 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "growth_factor is ", options.growth_factor, " and backoff_factor ",
        options.backoff_factor, ", want above 1 and below 1"));
  }
  if (options.growth_interval < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "growth_interval is ", options.growth_interval, ", want at least 1"));
  }
  if (options.finite_steps < 0 ||
      options.finite_steps >= options.growth_interval) {
    return absl::InvalidArgumentError(absl::StrCat(
        "finite_steps is ", options.finite_steps, ", want at least 0 and less ",
        "than the growth_interval of ", options.growth_interval));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LossScaler> LossScaler::Create(
    Context& context, const LossScalerOptions& options) {
  TESSERA_RETURN_IF_ERROR(
      internal::Prefixed("fsdp: loss scaler: ", CheckOptions(options)));
  TESSERA_RETURN_IF_ERROR(context.set_loss_scale(options.initial_scale));
  return LossScaler(context, options);
}

absl::StatusOr<bool> LossScaler::Update(const GradientNorm& norm) {
  TESSERA_ASSIGN_OR_RETURN(const double value, norm.Value());
  const bool is_finite = std::isfinite(value);
  ++finite_steps_;
  if (is_finite && finite_steps_ < options_.growth_interval) return true;
  finite_steps_ = 0;
  // Out of range it is an error, which is fine: nothing changes.
  context_
      ->set_loss_scale(scale() * (is_finite ? options_.growth_factor
                                            : options_.backoff_factor))
      .IgnoreError();
  return is_finite;
}

}  // namespace tessera

#ifndef TESSERA_FSDP_LOSS_SCALER_H_
#define TESSERA_FSDP_LOSS_SCALER_H_

#include "absl/status/statusor.h"
#include "tessera/fsdp/context.h"
#include "tessera/fsdp/gradient_norm.h"

namespace tessera {

struct LossScalerOptions {
  // Powers of two: the first as Context::set_loss_scale, the others above 1 and
  // below 1.
  double initial_scale = 65536.0;
  double growth_factor = 2.0;
  double backoff_factor = 0.5;
  // So many finite steps in a row make the scale grow. At least 1.
  int growth_interval = 2000;
  // Of these, those that came before: of a run that goes on where it was
  // stopped, what finite_steps() was, as initial_scale what scale() was.
  int finite_steps = 0;
};

// Looks for the largest loss scale with which gradients do not overflow: as
// PyTorch's GradScaler. A step whose gradients are not finite is skipped, on
// all ranks alike.
//
//   TESSERA_ASSIGN_OR_RETURN(auto scaler, LossScaler::Create(*context));
//   ...  // backwards of scaler.scale() times the loss
//   TESSERA_RETURN_IF_ERROR(norm.Clip(1.0));  // or norm.Compute()
//   TESSERA_ASSIGN_OR_RETURN(const bool is_finite, scaler.Update(norm));
//   if (is_finite) TESSERA_RETURN_IF_ERROR(optimizer.Step());
//   TESSERA_RETURN_IF_ERROR(context->ZeroGradients(ZeroGrad::kFill));
//
// One for a context. One call at a time. LIFETIME: borrows the context.
class LossScaler {
 public:
  // Sets the context's loss scale. ERRORS: InvalidArgument for options out of
  // range.
  static absl::StatusOr<LossScaler> Create(
      Context& context, const LossScalerOptions& options = {});

  // What the loss is multiplied by: the context's loss scale.
  double scale() const { return context_->loss_scale(); }
  // Since the scale changed last.
  int finite_steps() const { return finite_steps_; }

  // Ends a step with gradients of this norm, which is the same on every rank:
  // false where it is not finite, so that the step is to be skipped. Then the
  // scale becomes smaller, by backoff_factor; after growth_interval finite
  // steps in a row it grows. It stays what it is rather than leave the range of
  // Context::set_loss_scale. Blocks until the norm is there. ERRORS: those of
  // GradientNorm::Value.
  absl::StatusOr<bool> Update(const GradientNorm& norm);

 private:
  LossScaler(Context& context, const LossScalerOptions& options)
      : context_(&context),
        options_(options),
        finite_steps_(options.finite_steps) {}

  Context* context_;
  LossScalerOptions options_;
  int finite_steps_;
};

}  // namespace tessera

#endif  // TESSERA_FSDP_LOSS_SCALER_H_

#ifndef CHAR_LM_UNIT_VALUES_H_
#define CHAR_LM_UNIT_VALUES_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "char_lm/options.h"
#include "char_lm/parameter.h"
#include "tessera/device/memory.h"
#include "tessera/device/stream.h"
#include "tessera/fsdp/unit.h"
#include "tessera/tensor/tensor_view.h"

namespace char_lm {

// The weights and gradients of the unit that computes, as the model takes them:
// f32 in memory of the host. Where Tessera keeps them so, they are the unit's
// own. Those of another dtype are converted around the unit's computation, and
// those on a GPU, whose memory the host cannot touch, copied: then the host
// waits for the weights.
class UnitValues {
 public:
  // For units with these parameters, kept on the device of `compute`. The model
  // computes on `host`, a stream of a CPU: `compute` itself unless that is a
  // GPU's. LIFETIME: borrows both streams.
  static absl::StatusOr<UnitValues> Create(
      const Options& options, const std::vector<ParameterSpec>& specs,
      tessera::Stream& compute, tessera::Stream& host);

  // Where the model reads weights and writes gradients, of a unit that is open.
  // Those of the last call are gone.
  absl::StatusOr<std::vector<const float*>> Weights(const tessera::Unit& unit);
  absl::StatusOr<std::vector<float*>> Gradients(tessera::Unit& unit,
                                                tessera::GradientWrite write);
  // Once the gradients are written.
  absl::Status FinishGradients(tessera::Unit& unit);

 private:
  // One of a parameter's two tensors, as far as the unit's own will not do.
  struct Tensor {
    std::vector<float> converted;  // empty: needs no conversion
    tessera::HostMemory copy;      // empty: on a CPU
  };

  UnitValues(tessera::DType dtype, tessera::Stream& compute,
             tessera::Stream& host)
      : dtype_(dtype), compute_(compute), host_(host) {}

  bool converts() const { return dtype_ != tessera::DType::kF32; }
  bool copies() const { return &compute_ != &host_; }
  absl::StatusOr<Tensor> MakeTensor(const ParameterSpec& spec);

  // The unit's weights where the host can touch them, in the unit's dtype.
  absl::StatusOr<std::vector<tessera::TensorView>> WeightsOnHost(
      const tessera::Unit& unit);
  // Of a gradient that is not the unit's own.
  tessera::TensorView InModelDType(Tensor& gradient);

  tessera::DType dtype_;
  tessera::Stream& compute_;
  tessera::Stream& host_;
  std::vector<Tensor> weights_;    // by parameter
  std::vector<Tensor> gradients_;  // the same
};

}  // namespace char_lm

#endif  // CHAR_LM_UNIT_VALUES_H_

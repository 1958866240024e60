#include "char_lm/unit_values.h"

#include <cstdint>
#include <utility>

#include "tessera/base/status_macros.h"
#include "tessera/device/device.h"
#include "tessera/device/kernels.h"
#include "tessera/tensor/dtype.h"

namespace char_lm {
namespace {

using tessera::DType;
using tessera::GradientWrite;
using tessera::HostMemory;
using tessera::Kernels;
using tessera::ParameterId;
using tessera::TensorView;
using tessera::Unit;

TensorView Flat(std::vector<float>& values) {
  return TensorView::Flat(values.data(), DType::kF32,
                          static_cast<int64_t>(values.size()));
}

TensorView Flat(const HostMemory& copy, DType dtype) {
  return TensorView::Flat(copy.data(), dtype,
                          copy.bytes() / tessera::SizeOf(dtype));
}

}  // namespace

absl::StatusOr<UnitValues> UnitValues::Create(
    const Options& options, const std::vector<ParameterSpec>& specs,
    tessera::Stream& compute, tessera::Stream& host) {
  UnitValues values(options.dtype, compute, host);
  for (const ParameterSpec& spec : specs) {
    TESSERA_ASSIGN_OR_RETURN(Tensor weight, values.MakeTensor(spec));
    TESSERA_ASSIGN_OR_RETURN(Tensor gradient, values.MakeTensor(spec));
    values.weights_.push_back(std::move(weight));
    values.gradients_.push_back(std::move(gradient));
  }
  return values;
}

absl::StatusOr<UnitValues::Tensor> UnitValues::MakeTensor(
    const ParameterSpec& spec) {
  Tensor tensor;
  if (converts()) tensor.converted.resize(spec.num_elements());
  if (copies()) {
    TESSERA_ASSIGN_OR_RETURN(
        tensor.copy,
        compute_.device().AllocateHost(spec.num_elements() * SizeOf(dtype_)));
  }
  return tensor;
}

absl::StatusOr<std::vector<TensorView>> UnitValues::WeightsOnHost(
    const Unit& unit) {
  std::vector<TensorView> weights;
  for (ParameterId p = 0; p < unit.num_parameters(); ++p) {
    TESSERA_ASSIGN_OR_RETURN(TensorView weight, unit.weight(p));
    weights.push_back(std::move(weight));
  }
  if (!copies()) return weights;
  for (ParameterId p = 0; p < unit.num_parameters(); ++p) {
    const HostMemory& copy = weights_[p].copy;
    TESSERA_RETURN_IF_ERROR(compute_.device().kernels().CopyToHost(
        compute_, copy.data(), weights[p]));
    weights[p] = Flat(copy, dtype_);
  }
  TESSERA_RETURN_IF_ERROR(compute_.Synchronize());
  return weights;
}

absl::StatusOr<std::vector<const float*>> UnitValues::Weights(
    const Unit& unit) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<TensorView> on_host,
                           WeightsOnHost(unit));
  std::vector<const float*> weights;
  for (ParameterId p = 0; p < unit.num_parameters(); ++p) {
    if (!converts()) {
      weights.push_back(on_host[p].as<float>());
      continue;
    }
    std::vector<float>& converted = weights_[p].converted;
    TESSERA_RETURN_IF_ERROR(
        host_.device().kernels().Cast(host_, Flat(converted), on_host[p]));
    weights.push_back(converted.data());
  }
  return weights;
}

TensorView UnitValues::InModelDType(Tensor& gradient) {
  return converts() ? Flat(gradient.converted)
                    : Flat(gradient.copy, DType::kF32);
}

absl::StatusOr<std::vector<float*>> UnitValues::Gradients(Unit& unit,
                                                          GradientWrite write) {
  std::vector<float*> gradients;
  for (ParameterId p = 0; p < unit.num_parameters(); ++p) {
    if (!converts() && !copies()) {
      TESSERA_ASSIGN_OR_RETURN(const TensorView gradient, unit.grad(p, write));
      gradients.push_back(gradient.as<float>());
      continue;
    }
    const TensorView gradient = InModelDType(gradients_[p]);
    if (write == GradientWrite::kAccumulate) {
      TESSERA_RETURN_IF_ERROR(
          host_.device().kernels().Fill(host_, gradient, 0.0));
    }
    gradients.push_back(gradient.as<float>());
  }
  return gradients;
}

absl::Status UnitValues::FinishGradients(Unit& unit) {
  if (!converts() && !copies()) return absl::OkStatus();
  for (ParameterId p = 0; p < unit.num_parameters(); ++p) {
    TESSERA_ASSIGN_OR_RETURN(const TensorView gradient,
                             unit.grad(p, GradientWrite::kOverwrite));
    const HostMemory& copy = gradients_[p].copy;
    if (converts()) {
      TESSERA_RETURN_IF_ERROR(host_.device().kernels().Cast(
          host_, copies() ? Flat(copy, dtype_) : gradient,
          Flat(gradients_[p].converted)));
    }
    if (copies()) {
      TESSERA_RETURN_IF_ERROR(compute_.device().kernels().CopyFromHost(
          compute_, gradient, copy.data()));
    }
  }
  return absl::OkStatus();
}

}  // namespace char_lm

#include "char_lm/optimizer.h"

#include <utility>

#include "tessera/base/status_macros.h"
#include "tessera/device/device.h"
#include "tessera/device/kernels.h"

namespace char_lm {
namespace {

using tessera::Context;
using tessera::ParameterId;
using tessera::Unit;

// The learning rate of what Muon leaves to AdamW.
constexpr double kOthersRate = 0.003;

bool IsMuonsParameter(const Unit& unit, ParameterId p) {
  return IsMuons(unit.name(), unit.parameter_layout(p).shape().num_dims());
}

// AdamW for all that Muon does not take.
absl::StatusOr<tessera::AdamWOptimizer> MakeAdamWForOthers(
    const Options& options, Context& context) {
  const auto choose = [&context](absl::string_view unit_name,
                                 absl::string_view name) {
    for (const auto& unit : context.units()) {
      if (unit->name() != unit_name) continue;
      for (ParameterId p = 0; p < unit->num_parameters(); ++p) {
        if (unit->parameter_name(p) == name && IsMuonsParameter(*unit, p)) {
          return tessera::kNoGroup;
        }
      }
    }
    return 0;
  };
  return tessera::AdamWOptimizer::Create(context, {AdamWOf(options)}, choose);
}

absl::StatusOr<tessera::WholeParameters> TakeMatrices(Context& context) {
  return tessera::WholeParameters::Create(
      context, {.chooses = IsMuonsParameter,
                .state_elements = [](const tessera::Shape& shape) {
                  return shape.num_elements();
                }});
}

// Whole matrices, row-major.
void Apply(const MuonUpdate& update, const tessera::Shape& shape,
           const void* gradient, void* weight, void* momentum) {
  UpdateByMuon(update, shape.extent(0), shape.extent(1),
               static_cast<const float*>(gradient), static_cast<float*>(weight),
               static_cast<float*>(momentum));
}

absl::Status LaunchMuon(const MuonUpdate& update,
                        const tessera::WholeParameter& one,
                        tessera::Stream& stream) {
  const tessera::MemoryRange reads[] = {one.gradient};
  const tessera::MemoryRange writes[] = {one.weight, one.state};
  return stream.Launch({.name = "muon", .reads = reads, .writes = writes},
                       [update, weight = one.weight, gradient = one.gradient,
                        momentum = one.state] {
                         Apply(update, weight.shape(), gradient.data(),
                               weight.data(), momentum.data());
                         return absl::OkStatus();
                       });
}

// The same on a GPU, by way of memory of the host.
absl::Status UpdateOnHost(const MuonUpdate& update,
                          const tessera::WholeParameter& one,
                          tessera::Stream& stream) {
  tessera::Device& device = stream.device();
  tessera::Kernels& kernels = device.kernels();
  const int64_t bytes = one.weight.num_bytes();
  TESSERA_ASSIGN_OR_RETURN(const auto gradient, device.AllocateHost(bytes));
  TESSERA_ASSIGN_OR_RETURN(const auto weight, device.AllocateHost(bytes));
  TESSERA_ASSIGN_OR_RETURN(const auto momentum, device.AllocateHost(bytes));
  const auto run = [&]() -> absl::Status {
    TESSERA_RETURN_IF_ERROR(
        kernels.CopyToHost(stream, gradient.data(), one.gradient));
    TESSERA_RETURN_IF_ERROR(
        kernels.CopyToHost(stream, weight.data(), one.weight));
    TESSERA_RETURN_IF_ERROR(
        kernels.CopyToHost(stream, momentum.data(), one.state));
    TESSERA_RETURN_IF_ERROR(stream.Synchronize());
    Apply(update, one.weight.shape(), gradient.data(), weight.data(),
          momentum.data());
    TESSERA_RETURN_IF_ERROR(
        kernels.CopyFromHost(stream, one.weight, weight.data()));
    return kernels.CopyFromHost(stream, one.state, momentum.data());
  };
  absl::Status status = run();
  // Whatever has happened, the stream is done with the host's memory.
  status.Update(stream.Synchronize());
  return status;
}

}  // namespace

tessera::SgdHyperparameters SgdOf(const Options& options) {
  return {.learning_rate = options.learning_rate};
}

tessera::AdamWHyperparameters AdamWOf(const Options& options) {
  return {.learning_rate = options.optimizer == Optimizer::kMuon
                               ? kOthersRate
                               : options.learning_rate};
}

MuonUpdate MuonOf(const Options& options) {
  return {.learning_rate = options.learning_rate};
}

bool IsMuons(absl::string_view unit, int num_dims) {
  return unit != "root" && num_dims == 2;
}

absl::StatusOr<ModelOptimizer> ModelOptimizer::Create(const Options& options,
                                                      Context& context) {
  ModelOptimizer optimizer(options, context);
  switch (options.optimizer) {
    case Optimizer::kSgd: {
      TESSERA_ASSIGN_OR_RETURN(
          auto sgd, tessera::SgdOptimizer::Create(context, SgdOf(options)));
      optimizer.sgd_.emplace(std::move(sgd));
      return optimizer;
    }
    case Optimizer::kAdamW: {
      TESSERA_ASSIGN_OR_RETURN(auto adamw, tessera::AdamWOptimizer::Create(
                                               context, AdamWOf(options)));
      optimizer.adamw_.emplace(std::move(adamw));
      return optimizer;
    }
    case Optimizer::kMuon: {
      TESSERA_ASSIGN_OR_RETURN(auto adamw,
                               MakeAdamWForOthers(options, context));
      optimizer.adamw_.emplace(std::move(adamw));
      TESSERA_ASSIGN_OR_RETURN(auto matrices, TakeMatrices(context));
      optimizer.matrices_.emplace(std::move(matrices));
      return optimizer;
    }
  }
  return absl::InvalidArgumentError("char_lm: an optimizer without a name");
}

absl::Status ModelOptimizer::Step() {
  if (sgd_.has_value()) return sgd_->Step();
  if (!matrices_.has_value()) return adamw_->Step();
  return context_->StepTogether(
      [this](absl::Span<const tessera::OptimizerShard> shards,
             tessera::Stream& stream) {
        for (const tessera::OptimizerShard& shard : shards) {
          TESSERA_RETURN_IF_ERROR(adamw_->UpdateShard(shard, stream));
        }
        return matrices_->Update(
            shards, stream,
            [this](const tessera::WholeParameter& one, tessera::Stream& s) {
              return on_gpus_ ? UpdateOnHost(muon_, one, s)
                              : LaunchMuon(muon_, one, s);
            });
      });
}

absl::StatusOr<std::map<std::string, int64_t>> ModelOptimizer::PlanMemory() {
  std::map<std::string, int64_t> bytes;
  if (adamw_.has_value()) {
    TESSERA_ASSIGN_OR_RETURN(bytes[tessera::kOptimizerStateTag],
                             adamw_->StateBytes());
  }
  if (matrices_.has_value()) {
    bytes[tessera::kOptimizerStateTag] += matrices_->state_bytes();
    bytes[tessera::kWholeParametersTag] = matrices_->whole_bytes();
  }
  return bytes;
}

}  // namespace char_lm

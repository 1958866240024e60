#include "tools/simulate/model_trainer.h"

#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tessera/base/checked_math.h"
#include "tessera/base/log.h"
#include "tessera/base/status_macros.h"
#include "tessera/fsdp/optimizer.h"
#include "tessera/tensor/tensor_meta.h"

namespace tessera::tools {
namespace {

absl::Status CheckForwards(const Model& model, int microbatches) {
  int64_t units = 0;
  for (const Model::Unit& unit : model.units) {
    units = SaturatingAdd(units, unit.repeat);
  }
  if (SaturatingMul(units, microbatches) <= ModelTrainer::kMostForwards) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "simulate: model '", model.name, "' has ", units,
      " units, which makes more than ", ModelTrainer::kMostForwards,
      " forwards with ", microbatches, " microbatches"));
}

// The name of one of the repeats.
std::string NameOf(const Model::Unit& unit, int64_t repeat) {
  return unit.repeat == 1 ? unit.name : absl::StrCat(unit.name, ".", repeat);
}

// A multiplication and an addition for each active parameter and token.
int64_t FlopsOfProduct(const Model::Unit& unit,
                       const TrainingOptions& options) {
  const double active =
      static_cast<double>(unit.num_elements()) * options.active_percent / 100;
  return SaturatingMul(2 * std::llround(active), options.tokens);
}

template <typename Optimizer>
std::function<absl::Status()> StepOf(Optimizer optimizer) {
  const auto shared = std::make_shared<Optimizer>(std::move(optimizer));
  return [shared] { return shared->Step(); };
}

absl::StatusOr<std::function<absl::Status()>> OptimizerStep(
    TrainerOptimizer kind, Context& context) {
  switch (kind) {
    case TrainerOptimizer::kSgd:
      return StepOf(SgdOptimizer(context, /*learning_rate=*/0.1));
    case TrainerOptimizer::kMomentum: {
      TESSERA_ASSIGN_OR_RETURN(
          SgdOptimizer sgd, SgdOptimizer::Create(context, {.learning_rate = 0.1,
                                                           .momentum = 0.9}));
      return StepOf(std::move(sgd));
    }
    case TrainerOptimizer::kAdamW: {
      TESSERA_ASSIGN_OR_RETURN(AdamWOptimizer adamw,
                               AdamWOptimizer::Create(context));
      return StepOf(std::move(adamw));
    }
  }
  return absl::InvalidArgumentError("simulate: no such optimizer");
}

}  // namespace

absl::string_view TrainerOptimizerName(TrainerOptimizer optimizer) {
  switch (optimizer) {
    case TrainerOptimizer::kSgd:
      return "sgd";
    case TrainerOptimizer::kMomentum:
      return "momentum";
    case TrainerOptimizer::kAdamW:
      return "adamw";
  }
  return "";
}

absl::StatusOr<std::unique_ptr<ModelTrainer>> ModelTrainer::Create(
    const Model& model, const TrainingOptions& options, Communicator& world,
    Stream& compute) {
  TESSERA_RETURN_IF_ERROR(CheckForwards(model, options.microbatches));
  FsdpOptions fsdp;
  fsdp.mesh = options.mesh;
  fsdp.placements = options.placements;
  fsdp.overlap = options.overlap;
  fsdp.logger = Logger(nullptr, absl::LogSeverity::kInfo);
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<Context> context,
                           Context::Create(fsdp, world, compute));
  auto trainer = std::unique_ptr<ModelTrainer>(
      new ModelTrainer(options, std::move(context), compute));
  for (const Model::Unit& unit : model.units) {
    for (int64_t i = 0; i < unit.repeat; ++i) {
      TESSERA_RETURN_IF_ERROR(trainer->AddUnit(model, unit, NameOf(unit, i)));
    }
  }
  TESSERA_RETURN_IF_ERROR(trainer->context_->Prepare());
  TESSERA_ASSIGN_OR_RETURN(
      trainer->optimizer_step_,
      OptimizerStep(options.optimizer, *trainer->context_));
  return trainer;
}

absl::Status ModelTrainer::AddUnit(const Model& model, const Model::Unit& unit,
                                   absl::string_view name) {
  UnitBuilder builder = context_->NewUnit(name);
  for (const Model::Param& param : unit.params) {
    TESSERA_ASSIGN_OR_RETURN(const TensorMeta meta,
                             TensorMeta::Create(model.dtype, param.shape));
    builder.Add(param.name, meta);
  }
  TrainedUnit trained;
  TESSERA_ASSIGN_OR_RETURN(trained.unit, builder.Build());
  trained.weight_bytes = unit.num_elements() * SizeOf(model.dtype);
  trained.flops = FlopsOfProduct(unit, options_);
  units_.push_back(trained);
  return absl::OkStatus();
}

absl::Status ModelTrainer::Step() {
  for (int m = 0; m < options_.microbatches; ++m) {
    Microbatch microbatch =
        context_->OpenMicrobatch({.is_last = m + 1 == options_.microbatches});
    for (const TrainedUnit& trained : units_) {
      TESSERA_RETURN_IF_ERROR(Forward(trained));
    }
    for (auto it = units_.rbegin(); it != units_.rend(); ++it) {
      TESSERA_RETURN_IF_ERROR(Backward(*it));
    }
    TESSERA_RETURN_IF_ERROR(microbatch.Finish());
  }
  TESSERA_RETURN_IF_ERROR(optimizer_step_());
  TESSERA_RETURN_IF_ERROR(context_->ZeroGradients(ZeroGrad::kRelease));
  return context_->Synchronize();
}

absl::Status ModelTrainer::Forward(const TrainedUnit& trained) {
  trained.unit->BeforeForward();
  TESSERA_RETURN_IF_ERROR(Compute(trained, "forward", /*products=*/1));
  trained.unit->AfterForward();
  return absl::OkStatus();
}

absl::Status ModelTrainer::Backward(const TrainedUnit& trained) {
  Unit& unit = *trained.unit;
  unit.BeforeBackward();
  // As if the backward wrote every gradient: what is not asked for, the runtime
  // fills with zeros, which takes time.
  for (ParameterId p = 0; p < unit.num_parameters(); ++p) {
    TESSERA_RETURN_IF_ERROR(unit.grad(p, GradientWrite::kOverwrite).status());
  }
  TESSERA_RETURN_IF_ERROR(Compute(trained, "backward", /*products=*/2));
  unit.AfterBackward();
  return absl::OkStatus();
}

absl::Status ModelTrainer::Compute(const TrainedUnit& trained,
                                   absl::string_view phase, int64_t products) {
  return compute_.Launch(
      {.name = absl::StrCat(trained.unit->name(), " ", phase),
       .bytes = trained.weight_bytes,
       .flops = SaturatingMul(trained.flops, products)},
      [] { return absl::OkStatus(); });
}

}  // namespace tessera::tools

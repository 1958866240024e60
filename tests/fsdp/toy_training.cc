#include "tests/fsdp/toy_training.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tessera/base/status_macros.h"
#include "tessera/fsdp/optimizer.h"
#include "tessera/fsdp/whole_parameters.h"
#include "tests/fsdp/toy_parts.h"

namespace tessera::testing {

using toy::AdamWGroups;
using toy::DtypesOf;
using toy::ForEachParameter;
using toy::GroupOf;
using toy::IndicesOf;
using toy::LayoutOf;
using toy::ParallelOf;
using toy::ReadWide;
using toy::SameBits;
using toy::SgdGroups;
using toy::UpdateWhole;
using toy::Values;
using toy::WriteElement;

absl::StatusOr<std::unique_ptr<ToyRank>> ToyRank::Create(const ToyRun& run,
                                                         CommSet& comms,
                                                         Stream& stream) {
  FsdpOptions options;
  TESSERA_ASSIGN_OR_RETURN(options.mesh, DeviceMesh::Parse(run.mesh));
  auto toy = std::unique_ptr<ToyRank>(
      new ToyRank(run, options.mesh, comms.rank(), stream));
  options.data_parallel_axes = run.axes;
  options.cut_order = run.cut_order;
  options.placements = run.Placements();
  options.precision = run.precision;
  options.reduction = run.reduction;
  options.grad_divisor = run.grad_divisor;
  options.overlap = run.overlap;
  options.logger = Logger(nullptr, absl::LogSeverity::kInfo);
  TESSERA_ASSIGN_OR_RETURN(toy->context_,
                           Context::Create(options, comms.world(), stream));
  for (const ToyUnit& unit : run.units) {
    UnitOptions unit_options;
    unit_options.release = run.release;
    unit_options.gradient_hooks = run.gradient_hooks;
    unit_options.data_parallel_axes = unit.axes;
    unit_options.placements = unit.placements;
    unit_options.grad_divisor = unit.grad_divisor;
    if (unit.parent >= 0) unit_options.parent = toy->units_[unit.parent];
    UnitBuilder builder = toy->context_->NewUnit(unit.name, unit_options);
    for (const ToyParameter& parameter : unit.parameters) {
      builder.Add(parameter.name, LayoutOf(toy->mesh_, run.dtype, parameter));
    }
    TESSERA_ASSIGN_OR_RETURN(Unit * built, builder.Build());
    toy->units_.push_back(built);
  }
  TESSERA_RETURN_IF_ERROR(toy->context_->Prepare());
  TESSERA_RETURN_IF_ERROR(toy->context_->set_loss_scale(run.loss_scale));

  absl::Status status;
  ForEachParameter(run, [&](int u, int p, int64_t) {
    const Layout& layout = toy->units_[u]->parameter_layout(p);
    const std::vector<int64_t> indices = IndicesOf(layout, toy->rank_);
    const auto n = static_cast<int64_t>(indices.size());
    Values values(DtypesOf(run).main_weight, n);
    for (int64_t i = 0; i < n; ++i) {
      WriteElement(values.view(), i, InitialWeight(u, p, indices[i]));
    }
    status.Update(toy->units_[u]->LoadWeight(
        p,
        TensorView(values.view().data(),
                   *TensorMeta::Create(values.view().dtype(),
                                       layout.LocalMeta(toy->rank_).shape()))));
  });
  TESSERA_RETURN_IF_ERROR(status);
  return toy;
}

absl::Status ToyRank::OpenForward(int u, const ToyValues& expected) {
  units_[u]->BeforeForward();
  for (ParameterId p = 0; p < units_[u]->num_parameters(); ++p) {
    TESSERA_ASSIGN_OR_RETURN(const TensorView weight, units_[u]->weight(p));
    const Layout& layout = units_[u]->parameter_layout(p);
    if (weight.meta() != layout.LocalMeta(rank_)) {
      return absl::InternalError(
          absl::StrCat("weight is ", weight.meta().ToString()));
    }
    const MemoryRange reads[] = {weight};
    TESSERA_RETURN_IF_ERROR(Launch(
        {.name = "check weights", .reads = reads},
        [u, p, weight, indices = IndicesOf(layout, rank_),
         &expected]() -> absl::Status {
          const std::vector<double>& wide = expected[u][p];
          for (int64_t i = 0; i < weight.num_elements(); ++i) {
            const double want = wide[indices[i]];
            Values rounded(weight.dtype(), 1);
            WriteElement(rounded.view(), 0, want);
            if (SameBits(ReadWide(weight, i), ReadWide(rounded.view(), 0))) {
              continue;
            }
            return absl::InternalError(
                absl::StrCat("gathered weight ", u, ".", p, "[", i, "] is ",
                             ReadWide(weight, i), ", want ", want));
          }
          return absl::OkStatus();
        }));
  }
  return absl::OkStatus();
}

absl::Status ToyRank::Launch(const LaunchDescriptor& descriptor,
                             LaunchBody body) {
  return run_.launch == nullptr
             ? stream_.Launch(descriptor, std::move(body))
             : run_.launch(stream_, descriptor, std::move(body));
}

absl::Status ToyRank::UseWeights(int u) {
  for (ParameterId p = 0; p < units_[u]->num_parameters(); ++p) {
    TESSERA_ASSIGN_OR_RETURN(const TensorView weight, units_[u]->weight(p));
    const MemoryRange reads[] = {weight};
    TESSERA_RETURN_IF_ERROR(Launch({.name = "use weights", .reads = reads},
                                   [] { return absl::OkStatus(); }));
  }
  return absl::OkStatus();
}

std::vector<int> ToyRank::ChildrenOf(int u) const {
  std::vector<int> children;
  for (int c = 0; c < static_cast<int>(units_.size()); ++c) {
    if (run_.units[c].parent == u) children.push_back(c);
  }
  return children;
}

absl::Status ToyRank::ForwardUnit(int u, const ToyValues& expected) {
  TESSERA_RETURN_IF_ERROR(OpenForward(u, expected));
  for (int child : ChildrenOf(u)) {
    TESSERA_RETURN_IF_ERROR(ForwardUnit(child, expected));
  }
  TESSERA_RETURN_IF_ERROR(UseWeights(u));
  units_[u]->AfterForward();
  return absl::OkStatus();
}

absl::Status ToyRank::Forward(const ToyValues& expected) {
  for (int root : ChildrenOf(-1)) {
    TESSERA_RETURN_IF_ERROR(ForwardUnit(root, expected));
  }
  return context_->status();
}

absl::Status ToyRank::WriteGradients(int u, int step, int microbatch) {
  const int place = ParallelOf(run_, run_.units[u]).PlaceOf(rank_);
  for (ParameterId p = 0; p < units_[u]->num_parameters(); ++p) {
    TESSERA_ASSIGN_OR_RETURN(const TensorView weight, units_[u]->weight(p));
    TESSERA_ASSIGN_OR_RETURN(const TensorView gradient,
                             units_[u]->grad(p, GradientWrite::kOverwrite));
    const MemoryRange reads[] = {weight};
    const MemoryRange writes[] = {gradient};
    TESSERA_RETURN_IF_ERROR(Launch(
        {.name = "toy backward", .reads = reads, .writes = writes},
        [this, place, u, p, step, microbatch, weight, gradient,
         scale = context_->loss_scale(),
         indices = IndicesOf(units_[u]->parameter_layout(p), rank_)] {
          for (int64_t i = 0; i < gradient.num_elements(); ++i) {
            WriteElement(
                gradient, i,
                scale * ToyGradient(run_,
                                    {place, step, microbatch, u, p, indices[i]},
                                    ReadWide(weight, i)));
          }
          return absl::OkStatus();
        }));
  }
  return absl::OkStatus();
}

absl::Status ToyRank::BackwardUnit(int u, int step, int microbatch,
                                   std::optional<bool> is_last) {
  units_[u]->BeforeBackward();
  TESSERA_RETURN_IF_ERROR(UseWeights(u));
  const std::vector<int> children = ChildrenOf(u);
  for (auto it = children.rbegin(); it != children.rend(); ++it) {
    TESSERA_RETURN_IF_ERROR(BackwardUnit(*it, step, microbatch, is_last));
  }
  TESSERA_RETURN_IF_ERROR(WriteGradients(u, step, microbatch));
  units_[u]->AfterBackward(is_last);
  return absl::OkStatus();
}

absl::Status ToyRank::Backward(int step, int microbatch,
                               std::optional<bool> is_last) {
  const std::vector<int> roots = ChildrenOf(-1);
  for (auto it = roots.rbegin(); it != roots.rend(); ++it) {
    TESSERA_RETURN_IF_ERROR(BackwardUnit(*it, step, microbatch, is_last));
  }
  return context_->status();
}

absl::Status ToyRank::CheckPiece(const ShardedTensor& tensor,
                                 const std::vector<double>& expected,
                                 absl::string_view what) {
  const std::vector<int64_t> indices = IndicesOf(tensor.layout(), rank_);
  const TensorView local = tensor.local();
  Values values(local.dtype(), local.num_elements());
  const TensorView piece = values.view();
  TESSERA_RETURN_IF_ERROR(
      stream_.device().kernels().CopyToHost(stream_, piece.data(), local));
  TESSERA_RETURN_IF_ERROR(context_->Synchronize());
  for (int64_t i = 0; i < piece.num_elements(); ++i) {
    const double want = expected[indices[i]];
    if (SameBits(ReadWide(piece, i), want)) continue;
    return absl::InternalError(absl::StrCat(
        what, "[", indices[i], "] is ", ReadWide(piece, i), ", want ", want));
  }
  return absl::OkStatus();
}

absl::Status ToyRank::TrainStep(int step, const ToyValues& expected_weights) {
  for (int m = 0; m < run_.microbatches; ++m) {
    TESSERA_RETURN_IF_ERROR(Forward(expected_weights));
    TESSERA_RETURN_IF_ERROR(Backward(step, m, m + 1 == run_.microbatches));
  }
  if (optimizer_step_ == nullptr) {
    TESSERA_ASSIGN_OR_RETURN(optimizer_step_, MakeToyStep(run_, *context_));
  }
  TESSERA_RETURN_IF_ERROR(optimizer_step_());
  return run_.ZeroesAfter(step) ? context_->ZeroGradients(run_.zero_grad)
                                : absl::OkStatus();
}

absl::Status ToyRank::CheckGradients(const ToyValues& expected) {
  for (size_t u = 0; u < units_.size(); ++u) {
    for (ParameterId p = 0; p < units_[u]->num_parameters(); ++p) {
      TESSERA_ASSIGN_OR_RETURN(ShardedTensor tensor, units_[u]->main_grad(p));
      TESSERA_RETURN_IF_ERROR(CheckPiece(tensor, expected[u][p],
                                         absl::StrCat("gradient ", u, ".", p)));
    }
  }
  return absl::OkStatus();
}

absl::Status ToyRank::CheckWeights(const ToyValues& expected) {
  for (size_t u = 0; u < units_.size(); ++u) {
    for (ParameterId p = 0; p < units_[u]->num_parameters(); ++p) {
      TESSERA_ASSIGN_OR_RETURN(ShardedTensor tensor, units_[u]->main_weight(p));
      TESSERA_RETURN_IF_ERROR(CheckPiece(
          tensor, expected[u][p], absl::StrCat("main weight ", u, ".", p)));
    }
  }
  return absl::OkStatus();
}

namespace {

absl::Status LaunchUpdateWhole(double learning_rate,
                               const WholeParameter& whole, Stream& stream) {
  const MemoryRange reads[] = {whole.gradient};
  const MemoryRange writes[] = {whole.weight, whole.state};
  return stream.Launch(
      {.name = "whole", .reads = reads, .writes = writes},
      [learning_rate, step = whole.step, gradient = whole.gradient,
       weight = whole.weight, state = whole.state] {
        if (weight.dtype() == DType::kF32) {
          UpdateWhole(learning_rate, step, gradient, weight.as<float>(),
                      state.as<float>());
        } else {
          UpdateWhole(learning_rate, step, gradient, weight.as<double>(),
                      state.as<double>());
        }
        return absl::OkStatus();
      });
}

// Whole parameters of several dims, and SGD for the others.
absl::StatusOr<ToyStep> MakeWholeStep(const ToyRun& run, Context& context,
                                      const ChooseGroup& choose) {
  TESSERA_ASSIGN_OR_RETURN(
      WholeParameters whole,
      WholeParameters::Create(
          context,
          {.chooses =
               [choose](const Unit& unit, ParameterId p) {
                 return choose(unit.name(), unit.parameter_name(p)) == 0;
               },
           .state_elements =
               [](const Shape& shape) { return shape.num_elements(); }}));
  TESSERA_ASSIGN_OR_RETURN(
      SgdOptimizer sgd,
      SgdOptimizer::Create(
          context, SgdGroups(run),
          [choose](absl::string_view unit, absl::string_view parameter) {
            const int group = choose(unit, parameter);
            return group == 0 ? kNoGroup : group;
          }));
  struct Optimizers {
    WholeParameters whole;
    SgdOptimizer sgd;
  };
  const auto both = std::make_shared<Optimizers>(
      Optimizers{std::move(whole), std::move(sgd)});
  return [both, &context, rate = run.learning_rate] {
    return context.StepTogether(
        [&](absl::Span<const OptimizerShard> shards, Stream& stream) {
          for (const OptimizerShard& shard : shards) {
            TESSERA_RETURN_IF_ERROR(both->sgd.UpdateShard(shard, stream));
          }
          return both->whole.Update(
              shards, stream, [rate](const WholeParameter& one, Stream& s) {
                return LaunchUpdateWhole(rate, one, s);
              });
        });
  };
}

}  // namespace

absl::StatusOr<ToyStep> MakeToyStep(const ToyRun& run, Context& context) {
  const auto choose = [&run](absl::string_view unit_name,
                             absl::string_view name) {
    for (const ToyUnit& unit : run.units) {
      if (unit.name != unit_name) continue;
      for (const ToyParameter& parameter : unit.parameters) {
        if (parameter.name == name) return GroupOf(parameter);
      }
    }
    return -1;
  };
  const auto step_of = [](auto optimizer) -> ToyStep {
    const auto shared =
        std::make_shared<decltype(optimizer)>(std::move(optimizer));
    return [shared] { return shared->Step(); };
  };
  if (run.optimizer == ToyOptimizer::kWhole) {
    return MakeWholeStep(run, context, choose);
  }
  if (run.optimizer == ToyOptimizer::kAdamW) {
    TESSERA_ASSIGN_OR_RETURN(
        AdamWOptimizer optimizer,
        AdamWOptimizer::Create(context, AdamWGroups(run), choose));
    return step_of(std::move(optimizer));
  }
  TESSERA_ASSIGN_OR_RETURN(
      SgdOptimizer optimizer,
      SgdOptimizer::Create(context, SgdGroups(run), choose));
  return step_of(std::move(optimizer));
}

absl::Status TrainAndCompare(const ToyRun& run, const ToyHistory& expected) {
  return RunLocalRanks(
      DeviceMesh::Parse(run.mesh)->size(),
      [&](LocalRank& rank) -> absl::Status {
        TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<ToyRank> toy,
                                 ToyRank::Create(run, rank.comms, rank.stream));
        TESSERA_ASSIGN_OR_RETURN(const ToyStep optimizer_step,
                                 MakeToyStep(run, toy->context()));
        for (int step = 0; step < run.steps; ++step) {
          for (int m = 0; m < run.microbatches; ++m) {
            Microbatch scope = toy->context().OpenMicrobatch(
                {.is_last = m + 1 == run.microbatches});
            TESSERA_RETURN_IF_ERROR(toy->Forward(expected.weights[step]));
            TESSERA_RETURN_IF_ERROR(toy->Backward(step, m));
            TESSERA_RETURN_IF_ERROR(scope.Finish());
          }
          TESSERA_RETURN_IF_ERROR(
              toy->CheckGradients(expected.gradients[step]));
          TESSERA_RETURN_IF_ERROR(optimizer_step());
          TESSERA_RETURN_IF_ERROR(
              toy->CheckWeights(expected.weights[step + 1]));
          if (!run.ZeroesAfter(step)) continue;
          TESSERA_RETURN_IF_ERROR(toy->context().ZeroGradients(run.zero_grad));
        }
        return toy->context().Synchronize();
      },
      {.device = {.streams = run.streams}});
}

}  // namespace tessera::testing

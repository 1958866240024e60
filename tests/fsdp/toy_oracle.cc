// The bits that toys must have, computed in one process.

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "tessera/dbuffer/buffer_group.h"
#include "tessera/device/cpu/elementwise.h"
#include "tessera/testing/gradient_oracle.h"
#include "tests/fsdp/toy_parts.h"
#include "tests/fsdp/toy_run.h"
#include "tests/optimizer_reference.h"

namespace tessera::testing {

using toy::AdamWGroups;
using toy::Dtypes;
using toy::DtypesOf;
using toy::Elements;
using toy::EmptyValues;
using toy::ForEachParameter;
using toy::GroupOf;
using toy::IndicesOf;
using toy::LayoutOf;
using toy::Parallel;
using toy::ParallelOf;
using toy::ReadWide;
using toy::SgdGroups;
using toy::UpdateWhole;
using toy::Values;
using toy::WriteElement;

namespace {

// What trains the elements of one parameter.
template <typename T>
class ReferenceOptimizer {
 public:
  ReferenceOptimizer(const ToyRun& run, const ToyParameter& parameter)
      : is_adamw_(run.optimizer == ToyOptimizer::kAdamW),
        is_whole_(run.optimizer == ToyOptimizer::kWhole &&
                  GroupOf(parameter) == 0),
        sgd_(SgdGroups(run)[GroupOf(parameter)]),
        adamw_(AdamWGroups(run)[GroupOf(parameter)]),
        first_(Elements(parameter)),
        second_(Elements(parameter)) {}

  void Step(T* weight, const TensorView& gradient) {
    ++steps_;
    if (is_whole_) {
      UpdateWhole(sgd_.learning_rate, steps_, gradient, weight, first_.data());
      return;
    }
    for (int64_t i = 0; i < gradient.num_elements(); ++i) {
      const T g = static_cast<T>(ReadWide(gradient, i));
      if (is_adamw_) {
        AdamWReference<T>(weight[i], g, first_[i], second_[i],
                          {.learning_rate = adamw_.learning_rate,
                           .beta1 = adamw_.beta1,
                           .beta2 = adamw_.beta2,
                           .epsilon = adamw_.epsilon,
                           .weight_decay = adamw_.weight_decay,
                           .step = steps_});
      } else {
        SgdReference<T>(weight[i], g, first_[i],
                        {.learning_rate = sgd_.learning_rate,
                         .momentum = sgd_.momentum,
                         .dampening = sgd_.dampening,
                         .weight_decay = sgd_.weight_decay,
                         .nesterov = sgd_.nesterov,
                         .first = steps_ == 1});
      }
    }
  }

 private:
  const bool is_adamw_;
  const bool is_whole_;
  const SgdHyperparameters sgd_;
  const AdamWHyperparameters adamw_;
  std::vector<T> first_;
  std::vector<T> second_;
  int64_t steps_ = 0;
};

// Room for the values of every step.
ToyHistory EmptyHistory(const ToyRun& run) {
  ToyHistory history;
  history.weights.assign(run.steps + 1, EmptyValues(run));
  history.gradients.assign(run.steps, EmptyValues(run));
  ForEachParameter(run, [&](int u, int p, int64_t n) {
    for (ToyValues& values : history.weights) values[u][p].resize(n);
    for (ToyValues& values : history.gradients) values[u][p].resize(n);
  });
  return history;
}

// Writes values[i] to whole[indices[i]].
void Spread(const std::vector<double>& values,
            const std::vector<int64_t>& indices, std::vector<double>& whole) {
  for (size_t i = 0; i < indices.size(); ++i) whole[indices[i]] = values[i];
}

// By element of the whole parameter: a rank of its data-parallel group that
// holds it in the optimizer placements, by its place there.
std::vector<int> OwnersOf(const ToyRun& run, const Parallel& parallel, int u,
                          int p) {
  const ToyUnit& unit = run.units[u];
  const auto num_flat = [](const BufferPlacements& placements) {
    return static_cast<int>(absl::c_count_if(
        placements, [](BufferPlacement one) { return one.is_flat(); }));
  };
  const UnitPlacements& placements = parallel.placements;
  const Dtypes dtypes = DtypesOf(run);
  BufferGroup::Options options = {
      .axes = parallel.axes.axes(),
      .cut_order = parallel.axes.cut_axes(),
      .num_flat_axes = std::max({num_flat(placements.parameter),
                                 num_flat(placements.gradient),
                                 num_flat(placements.optimizer)}),
      .narrowest = std::min(
          {run.dtype, dtypes.wire, dtypes.accumulation, dtypes.main_weight},
          [](DType a, DType b) { return SizeOf(a) < SizeOf(b); })};
  std::vector<BufferGroup::Tensor> tensors;
  for (const ToyParameter& parameter : unit.parameters) {
    tensors.push_back(
        {parameter.name, LayoutOf(parallel.mesh, run.dtype, parameter)});
  }
  const auto group = *BufferGroup::Create(parallel.mesh, std::move(tensors),
                                          std::move(options));
  const Layout layout =
      *group->TensorLayout(p, run.dtype, placements.optimizer);
  std::vector<int> owners(Elements(unit.parameters[p]));
  for (int rank = 0; rank < parallel.mesh.size(); ++rank) {
    for (int64_t index : IndicesOf(layout, rank)) {
      owners[index] = parallel.PlaceOf(rank);
    }
  }
  return owners;
}

// What becomes of the elements `indices` of one parameter, which the ranks of
// one data-parallel group hold.
void TrainElements(const ToyRun& run, const Parallel& parallel, int u, int p,
                   const std::vector<int64_t>& indices, ToyHistory& history) {
  const Dtypes dtypes = DtypesOf(run);
  const auto n = static_cast<int64_t>(indices.size());
  GradientOracle::Options options = parallel.OracleOptions(run);
  const std::vector<int> owners = OwnersOf(run, parallel, u, p);
  for (int64_t index : indices) options.owners.push_back(owners[index]);
  GradientOracle oracle(std::move(options), n);
  Values main(dtypes.main_weight, n);
  for (int64_t i = 0; i < n; ++i) {
    WriteElement(main.view(), i, InitialWeight(u, p, indices[i]));
  }
  Spread(main.ToDoubles(), indices, history.weights[0][u][p]);
  ReferenceOptimizer<float> f32(run, run.units[u].parameters[p]);
  ReferenceOptimizer<double> f64(run, run.units[u].parameters[p]);
  for (int step = 0; step < run.steps; ++step) {
    Values model(run.dtype, n);
    CastElements(model.view(), main.view());
    for (int m = 0; m < run.microbatches; ++m) {
      std::vector<Values> contributions;
      std::vector<TensorView> views;
      for (int rank = 0; rank < oracle.num_ranks(); ++rank) {
        contributions.emplace_back(dtypes.wire, n);
        for (int64_t i = 0; i < n; ++i) {
          WriteElement(contributions.back().view(), i,
                       ToyGradient(run, {rank, step, m, u, p, indices[i]},
                                   ReadWide(model.view(), i)));
        }
      }
      for (Values& values : contributions) views.push_back(values.view());
      oracle.Add(views);
    }
    oracle.Finalize();
    if (dtypes.main_weight == DType::kF32) {
      f32.Step(main.view().as<float>(), oracle.gradient());
    } else {
      f64.Step(main.view().as<double>(), oracle.gradient());
    }
    std::vector<double> gradient;
    for (int64_t i = 0; i < n; ++i) {
      gradient.push_back(ReadWide(oracle.gradient(), i));
    }
    Spread(gradient, indices, history.gradients[step][u][p]);
    Spread(main.ToDoubles(), indices, history.weights[step + 1][u][p]);
    if (run.ZeroesAfter(step)) oracle.Zero();
  }
}

}  // namespace

ToyHistory OracleHistory(const ToyRun& run) {
  ToyHistory history = EmptyHistory(run);
  ForEachParameter(run, [&](int u, int p, int64_t) {
    const ToyUnit& unit = run.units[u];
    const Parallel parallel = ParallelOf(run, unit);
    const Layout layout =
        LayoutOf(parallel.mesh, run.dtype, unit.parameters[p]);
    // One group for each place along the other axes.
    for (int rank = 0; rank < parallel.mesh.size(); ++rank) {
      if (parallel.PlaceOf(rank) != 0) continue;
      TrainElements(run, parallel, u, p, IndicesOf(layout, rank), history);
    }
  });
  return history;
}

ToyHistory BigBatchHistory(const ToyRun& run) {
  ToyHistory history = EmptyHistory(run);
  ForEachParameter(run, [&](int u, int p, int64_t n) {
    const Parallel parallel = ParallelOf(run, run.units[u]);
    const int ranks = static_cast<int>(parallel.axes.num_ranks());
    const double scale =
        (run.reduction == GradientReduction::kMean ? 1.0 / ranks : 1.0) /
        parallel.grad_divisor;
    std::vector<double> weight(n);
    for (int64_t i = 0; i < n; ++i) weight[i] = InitialWeight(u, p, i);
    history.weights[0][u][p] = weight;
    for (int step = 0; step < run.steps; ++step) {
      std::vector<double> gradient(n, 0.0);
      for (int64_t i = 0; i < n; ++i) {
        for (int m = 0; m < run.microbatches; ++m) {
          for (int rank = 0; rank < ranks; ++rank) {
            gradient[i] +=
                ToyGradient(run, {rank, step, m, u, p, i}, weight[i]);
          }
        }
        gradient[i] *= scale;
        if (step > 0 && !run.ZeroesAfter(step - 1)) {
          gradient[i] += history.gradients[step - 1][u][p][i];
        }
      }
      for (int64_t i = 0; i < n; ++i) {
        weight[i] -= run.learning_rate * gradient[i];
      }
      history.gradients[step][u][p] = gradient;
      history.weights[step + 1][u][p] = weight;
    }
  });
  return history;
}

}  // namespace tessera::testing

#ifndef TESSERA_TESTS_FSDP_SCHEDULED_TRAINING_H_
#define TESSERA_TESTS_FSDP_SCHEDULED_TRAINING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/fsdp/optimizer.h"
#include "tessera/testing/run_scheduled_ranks.h"
#include "tests/fsdp/toy_training.h"
#include "tests/scheduled_runner.h"
#include "tests/status_matchers.h"

namespace tessera::testing {

// What is special about a training.
struct TrainingOptions {
  // Every microbatch is a last one, and the next one adds to its final
  // gradients. Gradients are small integers, so that this makes no difference
  // to the bits.
  bool finalizes_often = false;
  // Between steps, forwards for inference leave out the second unit, whose
  // weights are gathered ahead in vain.
  bool skips_units = false;
};

// A toy training, and the bits that it must give.
class ScheduledTraining {
 public:
  explicit ScheduledTraining(ToyRun run, TrainingOptions options = {})
      : run_(std::move(run)), options_(options) {
    run_.integer_gradients = options_.finalizes_often;
    expected_ = OracleHistory(run_);
  }

  std::string ToString() const {
    return run_.ToString() +
           (options_.finalizes_often ? ", finalizes often" : "") +
           (options_.skips_units ? ", skips units" : "");
  }

  // Trains under a scheduler. The host waits for streams at the end only, so
  // that it puts nothing in order.
  absl::Status Run(const ScheduledRunOptions& options,
                   ScheduledReport* report = nullptr,
                   const ScheduledRunner& run = RunScheduledRanks) const {
    return run(
        DeviceMesh::Parse(run_.mesh)->size(),
        [this](ScheduledRank& rank) { return Train(rank); }, options, report);
  }

 private:
  absl::Status Train(ScheduledRank& rank) const {
    TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<ToyRank> toy,
                             ToyRank::Create(run_, rank.comms, rank.stream));
    for (int step = 0; step < run_.steps; ++step) {
      TESSERA_RETURN_IF_ERROR(options_.finalizes_often
                                  ? FinalizeOften(*toy, step)
                                  : toy->TrainStep(step, weights(step)));
      if (options_.skips_units) TESSERA_RETURN_IF_ERROR(SkipAUnit(*toy));
    }
    return toy->CheckWeights(weights(run_.steps));
  }

  absl::Status FinalizeOften(ToyRank& toy, int step) const {
    for (int m = 0; m < run_.microbatches; ++m) {
      TESSERA_RETURN_IF_ERROR(toy.Forward(weights(step)));
      TESSERA_RETURN_IF_ERROR(toy.Backward(step, m, /*is_last=*/true));
    }
    SgdOptimizer optimizer(toy.context(), run_.learning_rate);
    TESSERA_RETURN_IF_ERROR(optimizer.Step());
    return toy.context().ZeroGradients(run_.zero_grad);
  }

  static absl::Status SkipAUnit(ToyRank& toy) {
    toy.unit(0).BeforeForward(ForwardKind::kInference);
    TESSERA_RETURN_IF_ERROR(toy.UseWeights(0));
    toy.unit(2).BeforeForward(ForwardKind::kInference);
    TESSERA_RETURN_IF_ERROR(toy.UseWeights(2));
    toy.unit(2).AfterForward();
    toy.unit(0).AfterForward();
    return toy.context().status();
  }

  const ToyValues& weights(int step) const { return expected_.weights[step]; }

  ToyRun run_;
  const TrainingOptions options_;
  ToyHistory expected_;
};

// Every named strategy under either zeroing.
inline std::vector<ToyRun> RunsOfAllStrategies() {
  std::vector<ToyRun> runs;
  for (const auto& [strategy, mesh] :
       {std::pair("ddp", "dp=4"), std::pair("zero1", "dp=4"),
        std::pair("zero2", "dp=4"), std::pair("zero3", "dp=4"),
        std::pair("hsdp", "dp_outer=2,dp_inner=2"),
        std::pair("hfsdp", "dp_outer=2,dp_inner=2")}) {
    for (ZeroGrad zero_grad : {ZeroGrad::kRelease, ZeroGrad::kFill}) {
      ToyRun run;
      run.strategy = strategy;
      run.mesh = mesh;
      run.zero_grad = zero_grad;
      run.steps = 2;
      run.units = DefaultToyUnits();
      runs.push_back(run);
    }
  }
  return runs;
}

// These, and others that differ in what TrainingOptions and ReleaseWeights say.
inline std::vector<ScheduledTraining> AllTrainings() {
  std::vector<ScheduledTraining> trainings;
  for (const ToyRun& run : RunsOfAllStrategies()) {
    trainings.emplace_back(run);
    trainings.emplace_back(run, TrainingOptions{.finalizes_often = true});
    trainings.emplace_back(run, TrainingOptions{.skips_units = true});
    for (ReleaseWeights release :
         {ReleaseWeights::kAfterBackward, ReleaseWeights::kNever}) {
      ToyRun keeping = run;
      keeping.release = release;
      trainings.emplace_back(keeping);
    }
  }
  return trainings;
}

// Optimizers that take parameters whole, under every named strategy.
inline std::vector<ScheduledTraining> TrainingsWithWholeParameters() {
  std::vector<ScheduledTraining> trainings;
  for (ToyRun run : RunsOfAllStrategies()) {
    run.optimizer = ToyOptimizer::kWhole;
    trainings.emplace_back(run);
    run.release = ReleaseWeights::kNever;
    trainings.emplace_back(run);
  }
  return trainings;
}

// A strategy with every overlap of use to it, on units that nest.
inline std::vector<ScheduledTraining> TrainingsWithOverlap(
    absl::string_view strategy) {
  std::vector<ScheduledTraining> trainings;
  for (ToyRun run : RunsOfAllStrategies()) {
    if (run.strategy != strategy) continue;
    if (run.zero_grad == ZeroGrad::kFill) continue;
    run.units = DeepToyUnits();
    run.microbatches = 2;
    const bool gathers = run.Placements().parameter.back().is_flat();
    for (const OverlapOptions& overlap : ManyOverlaps()) {
      if (!gathers && overlap.prefetch > 0) continue;
      run.overlap = overlap;
      trainings.emplace_back(run);
    }
  }
  return trainings;
}

// The unchanged runtime on streams that run in any order: no order gives other
// bits than the oracle's, and no two accesses lack an order.
inline void ExpectNoRaces(const std::vector<ScheduledTraining>& trainings,
                          uint64_t num_seeds) {
  for (const ScheduledTraining& training : trainings) {
    for (uint64_t seed = 0; seed < num_seeds; ++seed) {
      ASSERT_OK(training.Run({.seed = seed})) << training.ToString();
    }
  }
}

}  // namespace tessera::testing

#endif  // TESSERA_TESTS_FSDP_SCHEDULED_TRAINING_H_

#include "tools/tessera/simulate_command.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tessera/base/file.h"
#include "tessera/base/status_macros.h"
#include "tools/tessera/number_flags.h"
#include "tools/tessera/simulate_report.h"
#include "tools/tessera/values.h"

namespace tessera::tools {
namespace {

constexpr int64_t kMostTokens = 1'000'000'000;
// It takes seconds for so many.
constexpr int kMostRanks = 1'000'000;
// Of --tflops and --memory-bandwidth.
constexpr double kLeastRate = 0.001;
constexpr double kGreatestRate = 1'000'000;
// Of --prefetch and --in-flight.
constexpr int kMostAhead = 1000;

std::map<std::string, TrainerOptimizer> OptimizersByName() {
  std::map<std::string, TrainerOptimizer> optimizers;
  for (TrainerOptimizer optimizer :
       {TrainerOptimizer::kSgd, TrainerOptimizer::kMomentum,
        TrainerOptimizer::kAdamW}) {
    optimizers.emplace(TrainerOptimizerName(optimizer), optimizer);
  }
  return optimizers;
}

int64_t Scaled(double rate, double unit) { return std::llround(rate * unit); }

}  // namespace

void SimulateCommand::AddFlags(CLI::App& app) {
  app.add_option("--model", model_, ModelChoices())->required();
  app.add_option("--mesh", mesh_,
                 "Data-parallel axes, outer before inner: "
                 "dp_outer=16,dp_inner=64")
      ->required();
  CLI::Option* const strategy = app.add_option(
      "--strategy", strategy_,
      "Short for placements: " + absl::StrJoin(StrategyNames(), ", "));
  app.add_option("--placements", placements_,
                 "\"param=[R,Flat] grad=[P,Flat] optim=[Flat,Flat]\"")
      ->excludes(strategy);
  app.add_option("--topology", topology_, "Prices: " + TopologyChoices())
      ->capture_default_str();
  app.add_option("--tokens", tokens_, "Of a rank, in one microbatch")
      ->required()
      ->transform(WholeNumber(1, kMostTokens));
  app.add_option("--microbatches", microbatches_, "In one step")
      ->transform(WholeNumber(1, ModelTrainer::kMostForwards))
      ->capture_default_str();
  app.add_option("--optimizer", optimizer_, "Whose state is counted, too")
      ->check(CLI::IsMember(OptimizersByName()))
      ->capture_default_str();
  app.add_option("--prefetch", overlap_.prefetch,
                 "Units whose weights are gathered ahead")
      ->transform(WholeNumber(0, kMostAhead))
      ->capture_default_str();
  app.add_option("--in-flight", overlap_.gradients_in_flight,
                 "Unreduced gradients there may be")
      ->transform(WholeNumber(1, kMostAhead))
      ->capture_default_str();
  app.add_option("--active", active_percent_,
                 "Percent of a unit's parameters that a token passes")
      ->check(Within(0, 100))
      ->capture_default_str();
  app.add_option("--tflops", tflops_, "Rate of computation, in 10^12 flops/s")
      ->check(Within(kLeastRate, kGreatestRate))
      ->capture_default_str();
  app.add_option("--memory-bandwidth", memory_bandwidth_,
                 "Of a rank's memory, in GB/s, if not the topology's")
      ->check(Within(kLeastRate, kGreatestRate));
  app.add_option("--trace", trace_path_,
                 "File for the step as a trace for Perfetto");
  app.add_flag("--json", json_, "Print JSON");
}

absl::StatusOr<UnitPlacements> SimulateCommand::Placements(
    const DeviceMesh& mesh) const {
  if (!placements_.empty()) return ParsePlacements(placements_);
  if (!strategy_.empty()) return ParseStrategy(strategy_, mesh.num_axes());
  return absl::InvalidArgumentError(
      "want --strategy or --placements, found neither");
}

DeviceRates SimulateCommand::Rates(const Topology& topology) const {
  return {.flops_per_second = Scaled(tflops_, 1e12),
          .memory_bytes_per_second = memory_bandwidth_ > 0
                                         ? Scaled(memory_bandwidth_, 1e9)
                                         : topology.memory_bytes_per_second()};
}

absl::StatusOr<Outcome> SimulateCommand::Run() const {
  SimulateReport report = {.strategy = strategy_};
  TESSERA_ASSIGN_OR_RETURN(report.model, LoadModel(model_));
  TrainingOptions& training = report.training;
  TESSERA_ASSIGN_OR_RETURN(training.mesh, ParseMesh("--mesh", mesh_));
  if (training.mesh.size() > kMostRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("--mesh ", mesh_, " has ", training.mesh.size(),
                     " ranks, want at most ", kMostRanks));
  }
  TESSERA_ASSIGN_OR_RETURN(training.placements, Placements(training.mesh));
  training.tokens = tokens_;
  training.microbatches = microbatches_;
  training.optimizer = OptimizersByName().at(optimizer_);
  training.overlap = overlap_;
  training.active_percent = active_percent_;
  TESSERA_ASSIGN_OR_RETURN(const Topology topology, ParseTopology(topology_));
  report.topology = topology.name();
  report.rates = Rates(topology);
  TESSERA_ASSIGN_OR_RETURN(report.step, SimulateStep(report.model, training,
                                                     topology, report.rates));
  if (!trace_path_.empty()) {
    TESSERA_RETURN_IF_ERROR(internal::WriteFile(
        trace_path_, ToChromeTrace({{.rank = 0, .trace = report.step.trace}})));
  }
  return Outcome{json_ ? report.ToJson() : report.ToTable()};
}

}  // namespace tessera::tools

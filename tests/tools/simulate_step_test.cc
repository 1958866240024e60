// A step of a model's training on a simulated rank, against figures computed by
// hand, the memory formula and real ranks.

#include "tools/simulate/simulate_step.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/run_ranks.h"
#include "tessera/fsdp/memory_plan.h"
#include "tests/status_matchers.h"
#include "tools/models/built_in.h"
#include "tools/models/model_layout.h"

namespace tessera::tools {
namespace {

using ::tessera::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::FieldsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

TrainingOptions Training(const std::string& mesh, absl::string_view strategy) {
  TrainingOptions options;
  options.mesh = *DeviceMesh::Parse(mesh);
  options.placements = *PlacementsFor(strategy, options.mesh.num_axes());
  return options;
}

// Peak bytes, by tag.
std::map<std::string, int64_t> PeaksOf(const MemoryReport& memory) {
  std::map<std::string, int64_t> peaks;
  for (const auto& [tag, usage] : memory.by_tag) peaks[tag] = usage.peak_bytes;
  return peaks;
}

// Two units of 4096 elements, two microbatches of 1000 tokens. A flop takes one
// picosecond, local memory none.
class TinyStepTest : public ::testing::Test {
 protected:
  static constexpr int64_t kMicrosecond = 1'000'000;
  static constexpr int64_t kForward = 2 * 4096 * 1000;
  static constexpr int64_t kBackward = 2 * kForward;
  // A multiplication and an addition for each element of half a unit: a reduced
  // gradient is added to the main gradient, and that to the main weight.
  static constexpr int64_t kAdd = 2 * 2048;

  absl::StatusOr<StepReport> Simulate(absl::string_view strategy,
                                      double active_percent = 100) {
    TrainingOptions options = Training("dp_outer=2,dp_inner=2", strategy);
    options.tokens = 1000;
    options.microbatches = 2;
    options.active_percent = active_percent;
    return SimulateStep(*ParseModel(R"({"model": "tiny", "dtype": "bf16",
        "units": [{"name": "layer", "repeat": 2,
                   "params": [{"name": "w", "shape": [64, 64]}]}]})"),
                        options,
                        *Topology::Create("hand",
                                          {.latency_ps = 1 * kMicrosecond,
                                           .bytes_per_second = 1'000'000'000},
                                          /*launch_ps=*/10 * kMicrosecond,
                                          /*memory_bytes_per_second=*/1),
                        {.flops_per_second = 1'000'000'000'000});
  }

  // Of two ranks: a launch, hops, 1000 ps a byte.
  static constexpr int64_t TimeOf(int hops, int64_t bytes) {
    return (10 + hops) * kMicrosecond + bytes * 1000;
  }
};

// A unit is gathered (G) while the one before computes, forward (F) or backward
// (B), where it has a slot that is free. Its gradient is reduced (R) meanwhile,
// and at last over dp_outer (A), half a unit in f32. A step is
//
//   gather     G G G G   G G G G
//   compute      F F B B B F F B B B
//   reduce             R   R     R   R
//   finalize                      A A A A
//
// where F < G < B < A: gathers are waited for but beside a B, and the last A is
// waited for behind the other one.
TEST_F(TinyStepTest, TakesTheTimeOfTheClosedForm) {
  const StepReport report = Simulate("hsdp").value();
  const int64_t gather = TimeOf(1, 4096);
  const int64_t reduce = gather;
  const int64_t all_reduce = TimeOf(2, 8192);
  EXPECT_EQ(report.compute_ps, 4 * kForward + 4 * kBackward + 2 * kAdd);
  EXPECT_EQ(report.step_ps,
            5 * gather + 3 * kBackward + reduce + 2 * all_reduce + 3 * kAdd);
  EXPECT_EQ(report.exposed_ps, report.step_ps - report.compute_ps);
  // The first all-reduce begins in the last backward, and is longer.
  EXPECT_THAT(
      report.axes,
      ElementsAre(FieldsAre("dp_outer", 2, 2 * 8192, 2 * all_reduce,
                            2 * all_reduce - (kBackward - gather - kAdd)),
                  FieldsAre("dp_inner", 12, 12 * 4096, 10 * gather,
                            2 * gather + 4 * (gather - kForward))));
  EXPECT_THAT(report.collectives,
              UnorderedElementsAre(
                  Pair(Pair("dp_inner", CollectiveKind::kAllGather),
                       CommCounter{8, 8 * 4096}),
                  Pair(Pair("dp_inner", CollectiveKind::kReduceScatter),
                       CommCounter{4, 4 * 4096}),
                  Pair(Pair("dp_outer", CollectiveKind::kAllReduce),
                       CommCounter{2, 2 * 8192})));
}

// Final gradients are cut in four, and the weights that come of them gathered
// along dp_outer, on the compute stream.
TEST_F(TinyStepTest, GathersUpdatedWeightsWhereTheOptimizerIsFiner) {
  const StepReport report = Simulate("hfsdp").value();
  const int64_t gather = TimeOf(1, 4096);
  const int64_t reduce_outer = TimeOf(1, 4096);
  const int64_t refresh = TimeOf(1, 2048);
  EXPECT_EQ(report.compute_ps, 4 * kForward + 4 * kBackward + 2 * kAdd / 2);
  EXPECT_EQ(report.step_ps, 4 * kBackward + 6 * gather + kAdd + reduce_outer +
                                2 * kAdd / 2 + 2 * refresh);
  EXPECT_EQ(report.axes[0].calls, 4);
  EXPECT_EQ(report.axes[0].bytes_received, 2 * 4096 + 2 * 2048);
  // The first of the reductions begins in the last backward.
  EXPECT_EQ(report.axes[0].busy_ps, 2 * reduce_outer + 2 * refresh);
  EXPECT_EQ(report.axes[0].exposed_ps,
            report.axes[0].busy_ps - (kBackward - gather - kAdd));
}

TEST_F(TinyStepTest, HasThePeaksOfTheFormula) {
  // Parts of 2048 elements.
  EXPECT_THAT(PeaksOf(Simulate("hsdp")->memory),
              UnorderedElementsAre(Pair(kMainWeightTag, 2 * 2048 * 4),
                                   Pair(kModelWeightTag, 2 * 2048 * 2),
                                   Pair(kMainGradTag, 2 * 2048 * 4),
                                   Pair(kUnshardedWeightTag, 2 * 4096 * 2),
                                   Pair(kUnreducedGradTag, 2 * 4096 * 2)));
  EXPECT_EQ(Simulate("hsdp")->memory.total.peak_bytes, 72 << 10);
  // Parts of 1024 of the main weights.
  EXPECT_EQ(PeaksOf(Simulate("hfsdp")->memory)[kMainWeightTag], 2 * 1024 * 4);
  EXPECT_EQ(Simulate("hfsdp")->memory.total.peak_bytes, 64 << 10);
}

TEST_F(TinyStepTest, ComputesWithActiveParametersOnly) {
  EXPECT_EQ(Simulate("hsdp", /*active_percent=*/25)->compute_ps,
            kForward + kBackward + 2 * kAdd);
  EXPECT_EQ(Simulate("hsdp", /*active_percent=*/0)->compute_ps, 2 * kAdd);
}

// The optimizer adds the gradients and casts the weights; all gradients are
// taken as written.
TEST_F(TinyStepTest, TracesTheStepAlone) {
  const StepReport report = Simulate("hsdp").value();
  const Trace& trace = report.trace;
  EXPECT_THAT(trace.streams,
              ElementsAre("compute", "gather", "reduce", "finalize"));
  EXPECT_EQ(trace.operations.front().name, "all_gather");
  std::map<std::string, int> computed;
  for (const TracedOperation& operation : trace.operations) {
    EXPECT_GE(operation.begin_ps, trace.begin_ps);
    if (operation.stream == 0) ++computed[operation.name];
  }
  EXPECT_THAT(computed,
              UnorderedElementsAre(
                  Pair("layer.0 forward", 2), Pair("layer.1 forward", 2),
                  Pair("layer.0 backward", 2), Pair("layer.1 backward", 2),
                  Pair("accumulate_scaled", 2), Pair("cast", 2)));
  std::map<std::string, int64_t> most;
  for (const MemorySample& sample : trace.memory) {
    most[sample.tag] = std::max(most[sample.tag], sample.bytes);
  }
  EXPECT_EQ(most, PeaksOf(report.memory));
}

// Nothing is allocated for a tag without bytes.
std::map<std::string, int64_t> WithoutZeros(
    std::map<std::string, int64_t> bytes) {
  std::erase_if(bytes, [](const auto& entry) { return entry.second == 0; });
  return bytes;
}

// The program on real ranks.
absl::Status TrainLocally(const Model& model, const TrainingOptions& options,
                          const StepReport& simulated) {
  return RunLocalRanks(
      options.mesh.size(), [&](LocalRank& rank) -> absl::Status {
        TESSERA_ASSIGN_OR_RETURN(
            const std::unique_ptr<ModelTrainer> trainer,
            ModelTrainer::Create(model, options, rank.comms.world(),
                                 rank.stream));
        TESSERA_RETURN_IF_ERROR(trainer->Step());
        rank.comms.log().Clear();
        TESSERA_RETURN_IF_ERROR(trainer->Step());
        if (rank.rank != 0) return absl::OkStatus();
        EXPECT_EQ(rank.comms.log().counters(), simulated.collectives);
        const MemoryReport memory = rank.device.memory();
        EXPECT_EQ(memory.total, simulated.memory.total);
        EXPECT_EQ(memory.by_tag, simulated.memory.by_tag);
        EXPECT_EQ(PeaksOf(memory),
                  WithoutZeros(PlanMemory(trainer->context().unit_memory())));
        return absl::OkStatus();
      });
}

TEST(SimulateStepTest, CountsWhatLocalRanksCount) {
  const Model model = *ParseModel(R"({"model": "uneven", "dtype": "bf16",
      "units": [
        {"name": "embed", "params": [{"name": "wte", "shape": [37, 5]}]},
        {"name": "layer", "repeat": 3, "params": [
          {"name": "w", "shape": [61, 11]}, {"name": "b", "shape": [61]}]}]})");
  for (absl::string_view strategy : StrategyNames()) {
    for (const char* mesh : {"dp_outer=2,dp_inner=2", "a=3,b=1"}) {
      TrainingOptions options = Training(mesh, strategy);
      options.microbatches = 3;
      SCOPED_TRACE(absl::StrCat(strategy, " on ", mesh));
      const absl::StatusOr<StepReport> simulated =
          SimulateStep(model, options, Topology::LocalCpu(), {});
      ASSERT_OK(simulated.status());
      EXPECT_FALSE(simulated->collectives.empty());
      EXPECT_OK(TrainLocally(model, options, *simulated));
    }
  }
}

TEST(SimulateStepTest, HasZerosForAnAxisWithoutCommunication) {
  const StepReport report =
      *SimulateStep(*BuiltInModel("gpt2-124m"), Training("a=1,b=4", "fsdp"),
                    *Topology::Preset("h100-ib"), {});
  EXPECT_THAT(report.axes[0], FieldsAre("a", 0, 0, 0, 0));
  EXPECT_GT(report.axes[1].bytes_received, 0);
}

TEST(SimulateStepTest, RefusesMoreForwardsThanItCanList) {
  const Model model = *ParseModel(R"({"model": "deep", "dtype": "bf16",
      "units": [{"name": "layer", "repeat": 25001,
                 "params": [{"name": "w", "shape": [8]}]}]})");
  TrainingOptions options = Training("dp=2", "fsdp");
  options.microbatches = 2;
  EXPECT_THAT(
      SimulateStep(model, options, Topology::LocalCpu(), {}),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("simulate: model 'deep' has 25001 units, which makes "
                         "more than 50000 forwards with 2 microbatches")));
}

TEST(SimulateStepTest, RefusesPlacementsThatNoUnitCanHave) {
  TrainingOptions options = Training("dp=2", "fsdp");
  options.placements.optimizer = {BufferPlacement::Replicate()};
  EXPECT_THAT(SimulateStep(*BuiltInModel("gpt2-124m"), options,
                           Topology::LocalCpu(), {}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("fsdp: unit 'embed': ")));
}

// The formula of fsdp/memory_plan.h for a model whose buffers are cut into so
// many parts.
std::map<std::string, int64_t> PlannedPeaks(const Model& model, int64_t inner,
                                            int64_t optimizer_parts) {
  const std::vector<FlatLayout> layouts =
      LayoutsOf(model, optimizer_parts, Granularity::Element(), model.dtype)
          .value();
  std::vector<UnitMemory> units;
  for (size_t i = 0; i < layouts.size(); ++i) {
    const UnitMemory unit = {.groups = {{.elements = layouts[i].num_elements(),
                                         .parameter_parts = inner,
                                         .gradient_parts = inner,
                                         .optimizer_parts = optimizer_parts,
                                         .parameter = DType::kBF16,
                                         .wire = DType::kBF16}}};
    units.insert(units.end(), model.units[i].repeat, unit);
  }
  return PlanMemory(units);
}

class LargeStepTest : public ::testing::Test {
 protected:
  StepReport Simulate(const std::string& mesh, absl::string_view strategy) {
    TrainingOptions options = Training(mesh, strategy);
    options.tokens = kTokens;
    options.microbatches = kMicrobatches;
    return SimulateStep(model_, options, *Topology::Preset("h100-ib"),
                        {.flops_per_second = kFlopsPerSecond})
        .value();
  }

  static constexpr int64_t kTokens = 8192;
  static constexpr int kMicrobatches = 4;
  static constexpr int64_t kFlopsPerSecond = 400'000'000'000'000;
  static constexpr int64_t kUnits = 82;
  const Model model_ = *BuiltInModel("llama-3.1-70b");
};

TEST_F(LargeStepTest, PeaksDifferBetweenStrategiesAsTheFormulaSays) {
  const std::string mesh = "dp_outer=16,dp_inner=64";
  const StepReport hsdp = Simulate(mesh, "hsdp");
  const StepReport hfsdp = Simulate(mesh, "hfsdp");
  EXPECT_EQ(PeaksOf(hsdp.memory), PlannedPeaks(model_, 64, 64));
  EXPECT_EQ(PeaksOf(hfsdp.memory), PlannedPeaks(model_, 64, 16 * 64));
  // Main weights lie on 64 ranks, or on sixteen times as many.
  const double bytes = 4.0 * static_cast<double>(model_.num_elements());
  EXPECT_NEAR(static_cast<double>(hsdp.memory.total.peak_bytes -
                                  hfsdp.memory.total.peak_bytes),
              bytes / 64 - bytes / 1024, bytes / 64 / 1000);
}

TEST_F(LargeStepTest, CountsAStepOf131072Ranks) {
  const StepReport report = Simulate("dp_outer=512,dp_inner=256", "hsdp");
  const std::map<std::string, int64_t> planned =
      PlannedPeaks(model_, /*inner=*/256, /*optimizer_parts=*/256);
  EXPECT_EQ(PeaksOf(report.memory), planned);
  // Without padding the flat layouts would have the model's elements.
  const int64_t piece = planned.at(kModelWeightTag) / 2;
  EXPECT_NEAR(static_cast<double>(piece * 256),
              static_cast<double>(model_.num_elements()), 1e6);
  // In bf16: gathered for forward and for backward, and reduced.
  EXPECT_EQ(report.collectives.at({"dp_inner", CollectiveKind::kAllGather}),
            (CommCounter{2 * kMicrobatches * kUnits,
                         2 * kMicrobatches * 255 * piece * 2}));
  EXPECT_EQ(
      report.collectives.at({"dp_inner", CollectiveKind::kReduceScatter}),
      (CommCounter{kMicrobatches * kUnits, kMicrobatches * 255 * piece * 2}));
  // Six flops for each parameter and token; updating shards takes little.
  const double compute_seconds = 6.0 *
                                 static_cast<double>(model_.num_elements()) *
                                 kTokens * kMicrobatches / kFlopsPerSecond;
  EXPECT_NEAR(static_cast<double>(report.compute_ps) / 1e12, compute_seconds,
              1e-5);
  EXPECT_GE(report.step_ps, report.compute_ps + report.exposed_ps);
}

}  // namespace
}  // namespace tessera::tools

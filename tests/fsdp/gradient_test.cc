// What becomes of gradients: exact sums, which collectives run when, the
// resting handle, and faults known from other systems.

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/fsdp/optimizer.h"
#include "tests/fsdp/toy_training.h"
#include "tests/status_matchers.h"

namespace tessera::testing {
namespace {

using ::testing::Each;

ToyRun IntegerRun(const char* strategy, const char* mesh) {
  ToyRun run;
  run.strategy = strategy;
  run.mesh = mesh;
  run.integer_gradients = true;
  run.reduction = GradientReduction::kSum;
  run.learning_rate = 1.0;  // weights stay multiples of 1/1000, not exact
  run.units = DefaultToyUnits();
  return run;
}

TEST(GradientTest, SumsIntegersExactlyOnAnyNumberOfRanks) {
  for (const char* strategy : {"ddp", "zero1", "zero2", "fsdp", "hsdp"}) {
    for (const char* mesh : {"dp=1", "dp=2", "dp=3", "dp=5", "dp=8"}) {
      const ToyRun run = IntegerRun(strategy, mesh);
      SCOPED_TRACE(run.ToString());
      // Plain sums in another order: equal only because they are exact.
      const ToyHistory exact = BigBatchHistory(run);
      EXPECT_OK(RunLocalRanks(
          DeviceMesh::Parse(mesh)->size(),
          [&](LocalRank& rank) -> absl::Status {
            TESSERA_ASSIGN_OR_RETURN(auto toy, ToyRank::Create(run, rank));
            for (int m = 0; m < run.microbatches; ++m) {
              TESSERA_RETURN_IF_ERROR(
                  toy->Forward(OracleHistory(run).weights[0]));
              TESSERA_RETURN_IF_ERROR(
                  toy->Backward(0, m, m + 1 == run.microbatches));
            }
            return toy->CheckGradients(exact.gradients[0]);
          }));
    }
  }
}

// Per group over K microbatches: K reduce-scatters over dp_inner, one
// all-reduce over dp_outer, none of it before the last backward.
TEST(GradientTest, ReducesInnerAlwaysAndOuterOnce) {
  ToyRun run;
  run.microbatches = 4;
  run.units = DefaultToyUnits();
  const int64_t groups = static_cast<int64_t>(run.units.size());
  const ToyHistory expected = OracleHistory(run);
  EXPECT_OK(RunLocalRanks(4, [&](LocalRank& rank) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(auto toy, ToyRank::Create(run, rank));
    CommLog& log = rank.comms.log();
    const auto calls = [&](const char* axis, CollectiveKind kind) {
      const auto counters = log.counters();
      const auto it = counters.find({axis, kind});
      return it == counters.end() ? int64_t{0} : it->second.calls;
    };
    log.Clear();
    for (int m = 0; m < run.microbatches; ++m) {
      EXPECT_EQ(calls("dp_outer", CollectiveKind::kAllReduce), 0);
      const bool is_last = m + 1 == run.microbatches;
      TESSERA_RETURN_IF_ERROR(toy->Forward(expected.weights[0]));
      TESSERA_RETURN_IF_ERROR(toy->Backward(0, m, is_last));
      EXPECT_EQ(calls("dp_inner", CollectiveKind::kReduceScatter),
                groups * (m + 1));
    }
    EXPECT_EQ(calls("dp_outer", CollectiveKind::kAllReduce), groups);
    EXPECT_EQ(calls("dp_outer", CollectiveKind::kReduceScatter), 0);
    EXPECT_EQ(calls("dp_outer", CollectiveKind::kAllGather), 0);
    EXPECT_EQ(calls("dp_inner", CollectiveKind::kAllReduce), 0);
    // Gathered before forward and again before backward.
    EXPECT_EQ(calls("dp_inner", CollectiveKind::kAllGather),
              2 * groups * run.microbatches);
    return toy->CheckGradients(expected.gradients[0]);
  }));
}

// Between microbatches the handle is valid, says Partial along dp_outer, and
// reducing it by hand gives what finalization gives.
TEST(GradientTest, RestsPartialBetweenMicrobatches) {
  const ToyRun run = IntegerRun("hsdp", "dp_outer=2,dp_inner=2");
  const ToyHistory expected = OracleHistory(run);
  EXPECT_OK(RunLocalRanks(4, [&](LocalRank& rank) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(auto toy, ToyRank::Create(run, rank));
    for (int m = 0; m < run.microbatches; ++m) {
      TESSERA_RETURN_IF_ERROR(toy->Forward(expected.weights[0]));
      TESSERA_RETURN_IF_ERROR(toy->Backward(0, m, false));
    }
    for (size_t u = 0; u < run.units.size(); ++u) {
      Unit& unit = toy->unit(static_cast<int>(u));
      for (ParameterId p = 0; p < unit.num_parameters(); ++p) {
        TESSERA_ASSIGN_OR_RETURN(ShardedTensor partial, unit.main_grad(p));
        EXPECT_TRUE(partial.layout().placement(0).is_partial())
            << partial.layout();
        EXPECT_TRUE(partial.layout().placement(1).is_ragged())
            << partial.layout();
        TESSERA_ASSIGN_OR_RETURN(
            Layout reduced,
            partial.layout().With(
                {Placement::Replicate(), partial.layout().placement(1)}));
        TESSERA_ASSIGN_OR_RETURN(
            ShardedTensor by_hand,
            Redistribute(partial, reduced, Topology::LocalCpu(), rank.comms,
                         rank.stream));
        TESSERA_RETURN_IF_ERROR(rank.stream.Synchronize());
        const Region region = reduced.RegionOf(rank.rank);
        for (int64_t i = 0; i < region.num_elements(); ++i) {
          EXPECT_EQ(by_hand.local().as<float>()[i],
                    expected.gradients[0][u][p][region.flat->begin + i]);
        }
      }
    }
    return absl::OkStatus();
  }));
}

// The bytes of all main weights of a rank, in order.
std::string WeightBytes(ToyRank& toy, int num_units) {
  std::string bytes;
  EXPECT_OK(toy.context().Synchronize());
  for (int u = 0; u < num_units; ++u) {
    for (ParameterId p = 0; p < toy.unit(u).num_parameters(); ++p) {
      const ShardedTensor weight = *toy.unit(u).main_weight(p);
      bytes.append(weight.local().as<char>(), weight.local().num_bytes());
    }
  }
  return bytes;
}

// The weight bytes of every rank after training.
std::vector<std::string> TrainedBytes(const ToyRun& run) {
  const ToyHistory expected = OracleHistory(run);
  std::vector<std::string> bytes(DeviceMesh::Parse(run.mesh)->size());
  EXPECT_OK(RunLocalRanks(
      static_cast<int>(bytes.size()),
      [&](LocalRank& rank) -> absl::Status {
        TESSERA_ASSIGN_OR_RETURN(auto toy, ToyRank::Create(run, rank));
        SgdOptimizer optimizer(toy->context(), run.learning_rate);
        for (int step = 0; step < run.steps; ++step) {
          for (int m = 0; m < run.microbatches; ++m) {
            TESSERA_RETURN_IF_ERROR(toy->Forward(expected.weights[step]));
            TESSERA_RETURN_IF_ERROR(
                toy->Backward(step, m, m + 1 == run.microbatches));
          }
          TESSERA_RETURN_IF_ERROR(optimizer.Step());
          TESSERA_RETURN_IF_ERROR(toy->context().ZeroGradients(run.zero_grad));
        }
        bytes[rank.rank] =
            WeightBytes(*toy, static_cast<int>(run.units.size()));
        return absl::OkStatus();
      },
      {.device = {.streams = run.streams}}));
  return bytes;
}

TEST(GradientTest, ReplicasStayBitwiseEqualAndRunsRepeat) {
  ToyRun run;
  run.units = DefaultToyUnits();
  const std::vector<std::string> bytes = TrainedBytes(run);
  // Ranks 0 and 2, and 1 and 3, differ in dp_outer only.
  EXPECT_FALSE(bytes[0].empty());
  EXPECT_EQ(bytes[0], bytes[2]);
  EXPECT_EQ(bytes[1], bytes[3]);
  EXPECT_NE(bytes[0], bytes[1]);
  EXPECT_EQ(bytes, TrainedBytes(run));
  run.streams = CpuStreams::kWorker;
  run.zero_grad = ZeroGrad::kFill;
  EXPECT_EQ(bytes, TrainedBytes(run));
}

// One unit with one parameter on the ranks of a mesh; the trainer of the tests
// below writes gradients by hand.
struct HandMade {
  std::unique_ptr<Context> context;
  Unit* unit;

  static absl::StatusOr<HandMade> Create(LocalRank& rank, const char* mesh,
                                         const char* strategy,
                                         std::vector<int64_t> extents,
                                         GradientReduction reduction) {
    FsdpOptions options;
    TESSERA_ASSIGN_OR_RETURN(options.mesh, DeviceMesh::Parse(mesh));
    TESSERA_ASSIGN_OR_RETURN(options.placements,
                             PlacementsFor(strategy, options.mesh.num_axes()));
    options.reduction = reduction;
    HandMade result;
    TESSERA_ASSIGN_OR_RETURN(
        result.context,
        Context::Create(options, rank.comms.world(), rank.stream));
    UnitBuilder builder = result.context->NewUnit("unit");
    TESSERA_ASSIGN_OR_RETURN(TensorMeta meta,
                             TensorMeta::Create(DType::kF32, extents));
    builder.Add("weight", meta);
    TESSERA_ASSIGN_OR_RETURN(result.unit, builder.Build());
    TESSERA_RETURN_IF_ERROR(result.context->Prepare());
    return result;
  }

  // One forward and backward in which `write` fills the gradient, if asked.
  absl::Status Run(bool is_last, absl::FunctionRef<absl::Status(Unit&)> write) {
    unit->BeforeForward();
    unit->AfterForward();
    unit->BeforeBackward();
    TESSERA_RETURN_IF_ERROR(write(*unit));
    unit->AfterBackward(is_last);
    return context->Synchronize();
  }

  // Overwrites the gradient with one value.
  absl::Status RunWith(bool is_last, float value) {
    return Run(is_last, [value](Unit& u) -> absl::Status {
      TESSERA_ASSIGN_OR_RETURN(TensorView gradient,
                               u.grad(0, GradientWrite::kOverwrite));
      std::fill_n(gradient.as<float>(), gradient.num_elements(), value);
      return absl::OkStatus();
    });
  }

  std::vector<float> MainGradient() {
    const ShardedTensor gradient = *unit->main_grad(0);
    const float* data = gradient.local().as<float>();
    return {data, data + gradient.local().num_elements()};
  }
};

TEST(GradientTest, SumsContributionsOfOneRankWithoutDoubling) {
  for (const char* strategy : {"ddp", "fsdp", "hsdp", "zero1", "hfsdp"}) {
    for (const char* mesh : {"dp=1", "dp_outer=1,dp_inner=1"}) {
      SCOPED_TRACE(std::string(strategy) + " on " + mesh);
      EXPECT_OK(RunLocalRanks(1, [&](LocalRank& rank) -> absl::Status {
        TESSERA_ASSIGN_OR_RETURN(HandMade made,
                                 HandMade::Create(rank, mesh, strategy, {6},
                                                  GradientReduction::kMean));
        for (int k = 1; k <= 5; ++k) {
          TESSERA_RETURN_IF_ERROR(made.RunWith(k == 5, 1.0f));
        }
        EXPECT_THAT(made.MainGradient(), Each(5.0f));
        return absl::OkStatus();
      }));
    }
  }
}

TEST(GradientTest, CountsZerosWhereOnlyOneRankHasAGradient) {
  for (const char* strategy : {"ddp", "fsdp", "hsdp"}) {
    SCOPED_TRACE(strategy);
    EXPECT_OK(RunLocalRanks(4, [&](LocalRank& rank) -> absl::Status {
      TESSERA_ASSIGN_OR_RETURN(
          HandMade made,
          HandMade::Create(rank, "dp_outer=2,dp_inner=2", strategy, {5, 3},
                           GradientReduction::kSum));
      const auto write = [&](Unit& unit) -> absl::Status {
        if (rank.rank != 0) return absl::OkStatus();
        TESSERA_ASSIGN_OR_RETURN(TensorView gradient,
                                 unit.grad(0, GradientWrite::kOverwrite));
        std::fill_n(gradient.as<float>(), gradient.num_elements(), 3.0f);
        return absl::OkStatus();
      };
      // A slot full of other values first, so that zeros must be written.
      TESSERA_RETURN_IF_ERROR(made.RunWith(false, 100.0f));
      TESSERA_RETURN_IF_ERROR(made.context->ZeroGradients(ZeroGrad::kRelease));
      TESSERA_RETURN_IF_ERROR(made.Run(true, write));
      EXPECT_THAT(made.MainGradient(), Each(3.0f));
      return absl::OkStatus();
    }));
  }
}

// A weight used twice, 5 rows on 2 ranks: both uses add to one gradient and
// every row is updated once.
TEST(GradientTest, AddsBothUsesOfATiedWeight) {
  EXPECT_OK(RunLocalRanks(2, [&](LocalRank& rank) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(HandMade made,
                             HandMade::Create(rank, "dp=2", "fsdp", {5, 4},
                                              GradientReduction::kSum));
    const std::vector<float> zeros(20, 0.0f);
    TESSERA_RETURN_IF_ERROR(made.unit->LoadWeight(
        0, TensorView(const_cast<float*>(zeros.data()),
                      made.unit->parameter_layout(0).meta())));
    const auto write = [&](Unit& unit) -> absl::Status {
      for (int use = 0; use < 2; ++use) {
        TESSERA_ASSIGN_OR_RETURN(TensorView gradient,
                                 unit.grad(0, GradientWrite::kAccumulate));
        for (int64_t i = 0; i < 20; ++i) {
          gradient.as<float>()[i] += static_cast<float>(i + 100 * rank.rank);
        }
      }
      return absl::OkStatus();
    };
    TESSERA_RETURN_IF_ERROR(made.Run(true, write));
    SgdOptimizer optimizer(*made.context, 1.0);
    TESSERA_RETURN_IF_ERROR(optimizer.Step());
    made.unit->BeforeForward();
    TESSERA_ASSIGN_OR_RETURN(TensorView weight, made.unit->weight(0));
    TESSERA_RETURN_IF_ERROR(rank.stream.Synchronize());
    for (int64_t i = 0; i < 20; ++i) {
      EXPECT_EQ(weight.as<float>()[i], -2.0f * static_cast<float>(i + i + 100));
    }
    made.unit->AfterForward();
    return absl::OkStatus();
  }));
}

// A backward after the last one, without zeroing, adds to the final value.
TEST(GradientTest, AddsToAFinalGradientThatWasNotZeroed) {
  for (const char* strategy : {"ddp", "fsdp", "hsdp", "zero1", "hfsdp"}) {
    for (GradientReduction reduction :
         {GradientReduction::kSum, GradientReduction::kMean}) {
      SCOPED_TRACE(strategy);
      EXPECT_OK(RunLocalRanks(4, [&](LocalRank& rank) -> absl::Status {
        TESSERA_ASSIGN_OR_RETURN(HandMade made,
                                 HandMade::Create(rank, "dp_outer=2,dp_inner=2",
                                                  strategy, {5, 3}, reduction));
        const auto value = static_cast<float>(rank.rank);
        TESSERA_RETURN_IF_ERROR(made.RunWith(true, 1.0f + value));
        const float first = reduction == GradientReduction::kSum ? 10 : 2.5f;
        EXPECT_THAT(made.MainGradient(), Each(first));
        // Two more backwards, the second of them the last.
        TESSERA_RETURN_IF_ERROR(made.RunWith(false, 10.0f * value));
        TESSERA_RETURN_IF_ERROR(made.RunWith(true, 4.0f));
        const float more = reduction == GradientReduction::kSum ? 76 : 19;
        EXPECT_THAT(made.MainGradient(), Each(first + more));
        return absl::OkStatus();
      }));
    }
  }
}

// Delaying the outer reduction must not let a later layer's values into an
// earlier layer's gradient: slots are handed on only when they are done with.
TEST(GradientTest, KeepsLayersApartWhereSlotsAreShared) {
  ToyRun run;
  run.streams = CpuStreams::kWorker;
  run.microbatches = 2;
  run.steps = 2;
  run.units.push_back({"root", -1, {{"w", {3}}}});
  for (int b = 0; b < 6; ++b) {
    run.units.push_back({"block" + std::to_string(b), 0, {{"w", {67, 31}}}});
  }
  EXPECT_OK(TrainAndCompare(run, OracleHistory(run)));
}

// A norm over the whole buffer equals the norm over the parameters: padding is
// zero after any number of steps. And every shard is a multiple of 128 bytes.
TEST(GradientTest, KeepsPaddingZero) {
  for (const char* strategy : {"ddp", "fsdp", "hsdp", "zero1", "hfsdp"}) {
    ToyRun run;
    run.strategy = strategy;
    run.steps = 2;
    run.units = DefaultToyUnits();
    SCOPED_TRACE(run.ToString());
    const ToyHistory expected = OracleHistory(run);
    EXPECT_OK(RunLocalRanks(4, [&](LocalRank& rank) -> absl::Status {
      TESSERA_ASSIGN_OR_RETURN(auto toy, ToyRank::Create(run, rank));
      const auto sum = [](const TensorView& view) {
        return std::accumulate(
            view.as<float>(), view.as<float>() + view.num_elements(), 0.0,
            [](double total, float x) { return total + std::abs(double{x}); });
      };
      for (int step = 0; step < run.steps; ++step) {
        TESSERA_RETURN_IF_ERROR(toy->Forward(expected.weights[0]));
        TESSERA_RETURN_IF_ERROR(toy->Backward(step, 0, true));
        double flat = 0;
        const auto add_up = [&](const OptimizerShard& shard,
                                Stream&) -> absl::Status {
          EXPECT_EQ(shard.weight.num_bytes() % 128, 0);
          EXPECT_EQ(shard.gradient.num_bytes() % 128, 0);
          flat += sum(shard.gradient) + sum(shard.weight);
          return toy->context().Synchronize();
        };
        TESSERA_RETURN_IF_ERROR(toy->context().Step(add_up));
        double pieces = 0;
        for (size_t u = 0; u < run.units.size(); ++u) {
          Unit& unit = toy->unit(static_cast<int>(u));
          for (ParameterId p = 0; p < unit.num_parameters(); ++p) {
            pieces += sum(unit.main_grad(p)->local());
            pieces += sum(unit.main_weight(p)->local());
          }
        }
        EXPECT_NEAR(flat, pieces, 1e-9 * flat);
        TESSERA_RETURN_IF_ERROR(toy->context().ZeroGradients(ZeroGrad::kFill));
      }
      return absl::OkStatus();
    }));
  }
}

}  // namespace
}  // namespace tessera::testing

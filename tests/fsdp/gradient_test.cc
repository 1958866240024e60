// What becomes of gradients: exact sums, which collectives run when, the
// resting handle, and faults known from other systems.

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/device/cpu/elementwise.h"
#include "tessera/fsdp/optimizer.h"
#include "tests/fsdp/any_ranks.h"
#include "tests/fsdp/scheduled_training.h"
#include "tests/fsdp/toy_training.h"
#include "tests/status_matchers.h"

namespace tessera::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Gradients are small integers, whose sums are exact in any order.
ToyRun IntegerRun(const char* strategy, const char* mesh) {
  ToyRun run;
  run.strategy = strategy;
  run.mesh = mesh;
  run.steps = 1;
  run.integer_gradients = true;
  run.reduction = GradientReduction::kSum;
  run.units = DefaultToyUnits();
  return run;
}

// The gradients of one step against those of one big batch, bit for bit.
void ExpectBigBatchGradients(const ToyRun& run) {
  SCOPED_TRACE(run.ToString());
  const ToyHistory exact = BigBatchHistory(run);
  const ToyValues initial_weights = OracleHistory(run).weights[0];
  EXPECT_OK(RunLocalRanks(
      DeviceMesh::Parse(run.mesh)->size(),
      [&](LocalRank& rank) -> absl::Status {
        TESSERA_ASSIGN_OR_RETURN(auto toy,
                                 ToyRank::Create(run, rank.comms, rank.stream));
        for (int m = 0; m < run.microbatches; ++m) {
          TESSERA_RETURN_IF_ERROR(toy->Forward(initial_weights));
          TESSERA_RETURN_IF_ERROR(
              toy->Backward(0, m, m + 1 == run.microbatches));
        }
        return toy->CheckGradients(exact.gradients[0]);
      }));
}

TEST(GradientTest, SumCountsEveryMicrobatchOfEveryRankOnce) {
  for (const char* strategy :
       {"ddp", "zero1", "zero2", "fsdp", "hsdp", "hfsdp"}) {
    for (const char* mesh : {"dp=1", "dp=2", "dp=3", "dp=4", "dp=5", "dp=8",
                             "dp_outer=2,dp_inner=2", "dp_outer=2,dp_inner=3",
                             "dp_outer=4,dp_inner=2"}) {
      for (int microbatches : {3, 4}) {
        ToyRun run = IntegerRun(strategy, mesh);
        run.microbatches = microbatches;
        ExpectBigBatchGradients(run);
      }
    }
  }
}

// Scaling what has been accumulated, too, would scale the first microbatches
// more than once. Means over powers of two are exact.
TEST(GradientTest, MeanScalesOnlyTheNewContribution) {
  for (const char* strategy :
       {"ddp", "zero1", "zero2", "fsdp", "hsdp", "hfsdp"}) {
    for (const char* mesh :
         {"dp=1", "dp=2", "dp=4", "dp=8", "dp_outer=2,dp_inner=2",
          "dp_outer=4,dp_inner=2"}) {
      for (int microbatches : {3, 4}) {
        ToyRun run = IntegerRun(strategy, mesh);
        run.reduction = GradientReduction::kMean;
        run.microbatches = microbatches;
        ExpectBigBatchGradients(run);
      }
    }
  }
}

// What has been enqueued since the last call, in order.
std::vector<std::string> TakeCollectives(CommLog& log) {
  std::vector<std::string> collectives;
  for (const CollectiveRecord& record : log.recent()) {
    collectives.push_back(absl::StrCat(record.communicator, " ",
                                       CollectiveKindName(record.kind)));
  }
  log.Clear();
  return collectives;
}

// Each hook of each unit, in each microbatch: a unit reduces over dp_inner when
// its backward ends, and over dp_outer when its last one has ended.
TEST(GradientTest, UnitsReduceInnerInEveryBackwardAndOuterAfterTheLast) {
  ToyRun run;
  run.microbatches = 4;
  run.units = DefaultToyUnits();
  const ToyHistory expected = OracleHistory(run);
  EXPECT_OK(RunLocalRanks(4, [&](LocalRank& rank) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(auto toy,
                             ToyRank::Create(run, rank.comms, rank.stream));
    CommLog& log = rank.comms.log();
    // In the first microbatch a unit gathers for itself, later the one before
    // it does, and the root for itself, too.
    const auto begin = [&](int u, int m) {
      toy->unit(u).BeforeBackward();
      const int gathers = m == 0 ? 1 : u == 0 ? 2 : u == 2 ? 1 : 0;
      EXPECT_THAT(TakeCollectives(log),
                  ::testing::ElementsAreArray(std::vector<std::string>(
                      gathers, "dp_inner all_gather")));
    };
    const auto end = [&](int u, int m) -> absl::Status {
      for (ParameterId p = 0; p < toy->unit(u).num_parameters(); ++p) {
        TESSERA_ASSIGN_OR_RETURN(
            TensorView gradient,
            toy->unit(u).grad(p, GradientWrite::kOverwrite));
        TESSERA_RETURN_IF_ERROR(rank.stream.Synchronize());
        for (int64_t i = 0; i < gradient.num_elements(); ++i) {
          gradient.as<float>()[i] = static_cast<float>(ToyGradient(
              run, {rank.rank, 0, m, u, p, i}, expected.weights[0][u][p][i]));
        }
      }
      EXPECT_THAT(TakeCollectives(log), IsEmpty());
      const bool is_last = m + 1 == run.microbatches;
      toy->unit(u).AfterBackward(is_last);
      const std::vector<std::string> reductions = TakeCollectives(log);
      if (is_last) {
        EXPECT_THAT(reductions, ElementsAre("dp_inner reduce_scatter",
                                            "dp_outer all_reduce"));
      } else {
        EXPECT_THAT(reductions, ElementsAre("dp_inner reduce_scatter"));
      }
      return absl::OkStatus();
    };
    TakeCollectives(log);
    for (int m = 0; m < run.microbatches; ++m) {
      TESSERA_RETURN_IF_ERROR(toy->Forward(expected.weights[0]));
      EXPECT_THAT(TakeCollectives(log),
                  ElementsAre("dp_inner all_gather", "dp_inner all_gather",
                              "dp_inner all_gather"));
      begin(0, m);
      for (int u : {2, 1}) {
        begin(u, m);
        TESSERA_RETURN_IF_ERROR(end(u, m));
      }
      TESSERA_RETURN_IF_ERROR(end(0, m));
    }
    return toy->CheckGradients(expected.gradients[0]);
  }));
}

// Fails unless the gradients are Partial along dp_outer and, reduced by hand,
// what is expected.
absl::Status CheckPartialGradients(ToyRank& toy, int num_units, LocalRank& rank,
                                   const ToyValues& expected) {
  for (int u = 0; u < num_units; ++u) {
    for (ParameterId p = 0; p < toy.unit(u).num_parameters(); ++p) {
      TESSERA_ASSIGN_OR_RETURN(ShardedTensor partial, toy.unit(u).main_grad(p));
      const Layout& layout = partial.layout();
      EXPECT_TRUE(layout.placement(0).is_partial()) << layout;
      EXPECT_TRUE(layout.placement(1).is_ragged()) << layout;
      TESSERA_ASSIGN_OR_RETURN(
          Layout reduced,
          layout.With({Placement::Replicate(), layout.placement(1)}));
      TESSERA_ASSIGN_OR_RETURN(
          ShardedTensor by_hand,
          Redistribute(partial, reduced, Topology::LocalCpu(), rank.comms,
                       rank.stream));
      TESSERA_RETURN_IF_ERROR(rank.stream.Synchronize());
      const Region region = reduced.RegionOf(rank.rank);
      for (int64_t i = 0; i < region.num_elements(); ++i) {
        EXPECT_EQ(by_hand.local().as<float>()[i],
                  expected[u][p][region.flat->begin + i]);
      }
    }
  }
  return absl::OkStatus();
}

// After every microbatch but the last the handle is valid, says Partial along
// dp_outer, and holds what has been added so far; looking changes nothing.
TEST(GradientTest, RestsPartialBetweenMicrobatches) {
  ToyRun run = IntegerRun("hsdp", "dp_outer=2,dp_inner=2");
  run.microbatches = 4;
  std::vector<ToyHistory> after;  // [m]: as if microbatch m were the last
  for (int m = 0; m < run.microbatches; ++m) {
    ToyRun shorter = run;
    shorter.microbatches = m + 1;
    after.push_back(OracleHistory(shorter));
  }
  EXPECT_OK(RunLocalRanks(4, [&](LocalRank& rank) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(auto toy,
                             ToyRank::Create(run, rank.comms, rank.stream));
    for (int m = 0; m < run.microbatches; ++m) {
      const bool is_last = m + 1 == run.microbatches;
      TESSERA_RETURN_IF_ERROR(toy->Forward(after[m].weights[0]));
      TESSERA_RETURN_IF_ERROR(toy->Backward(0, m, is_last));
      if (is_last) break;
      TESSERA_RETURN_IF_ERROR(
          CheckPartialGradients(*toy, static_cast<int>(run.units.size()), rank,
                                after[m].gradients[0]));
    }
    return toy->CheckGradients(after.back().gradients[0]);
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
        TESSERA_ASSIGN_OR_RETURN(auto toy,
                                 ToyRank::Create(run, rank.comms, rank.stream));
        for (int step = 0; step < run.steps; ++step) {
          TESSERA_RETURN_IF_ERROR(toy->TrainStep(step, expected.weights[step]));
        }
        bytes[rank.rank] =
            WeightBytes(*toy, static_cast<int>(run.units.size()));
        return absl::OkStatus();
      },
      {.device = {.streams = run.streams}}));
  return bytes;
}

// The bytes that a rank holds of whole weights are those that every other rank
// holds of them: replicas are equal on every strategy.
TEST(GradientTest, ReplicasAreBitwiseEqualAfterAStepOnEveryTriple) {
  for (const UnitPlacements& triple : LegalTriples(2)) {
    ToyRun run;
    run.mesh = "outer=2,inner=2";
    run.placements = triple;
    run.units = DefaultToyUnits();
    SCOPED_TRACE(run.ToString());
    const std::vector<std::string> bytes = TrainedBytes(run);
    const bool outer_flat = triple.optimizer[0].is_flat();
    const bool inner_flat = triple.optimizer[1].is_flat();
    EXPECT_FALSE(bytes[0].empty());
    for (int rank : {0, 1})
      EXPECT_EQ(bytes[rank] == bytes[rank + 2], !outer_flat);
    for (int rank : {0, 2})
      EXPECT_EQ(bytes[rank] == bytes[rank + 1], !inner_flat);
  }
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

  Stream* compute;

  template <typename Rank>
  static absl::StatusOr<HandMade> Create(Rank& rank, const char* mesh,
                                         const UnitPlacements& placements,
                                         std::vector<int64_t> extents,
                                         GradientReduction reduction,
                                         DType dtype = DType::kF32) {
    FsdpOptions options;
    TESSERA_ASSIGN_OR_RETURN(options.mesh, DeviceMesh::Parse(mesh));
    options.placements = placements;
    options.reduction = reduction;
    HandMade result;
    result.compute = &rank.stream;
    TESSERA_ASSIGN_OR_RETURN(
        result.context,
        Context::Create(options, rank.comms.world(), rank.stream));
    UnitBuilder builder = result.context->NewUnit("unit");
    TESSERA_ASSIGN_OR_RETURN(TensorMeta meta,
                             TensorMeta::Create(dtype, extents));
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
    return Run(is_last, [this, value](Unit& u) -> absl::Status {
      TESSERA_ASSIGN_OR_RETURN(TensorView gradient,
                               u.grad(0, GradientWrite::kOverwrite));
      return compute->device().kernels().Fill(*compute, gradient, value);
    });
  }

  std::vector<float> MainGradient() {
    const ShardedTensor gradient = *unit->main_grad(0);
    const float* data = gradient.local().as<float>();
    return {data, data + gradient.local().num_elements()};
  }
};

TEST(GradientTest, SumsContributionsOfOneRankWithoutDoubling) {
  for (const char* strategy :
       {"ddp", "zero1", "zero2", "fsdp", "hsdp", "hfsdp"}) {
    for (const char* mesh : {"dp=1", "dp_outer=1,dp_inner=1"}) {
      SCOPED_TRACE(std::string(strategy) + " on " + mesh);
      EXPECT_OK(OnAnyRanks(1, [&](auto& rank) -> absl::Status {
        TESSERA_ASSIGN_OR_RETURN(
            HandMade made,
            HandMade::Create(
                rank, mesh,
                *PlacementsFor(strategy, DeviceMesh::Parse(mesh)->num_axes()),
                {6}, GradientReduction::kMean));
        for (int k = 1; k <= 5; ++k) {
          TESSERA_RETURN_IF_ERROR(made.RunWith(k == 5, 1.0f));
        }
        EXPECT_THAT(made.MainGradient(), Each(5.0f));
        return absl::OkStatus();
      }));
    }
  }
}

// What each rank enqueues in a backward in which the first `writers` ranks of 4
// have a gradient of 3.
std::vector<CommLog::Counters> CollectivesWithWriters(const char* strategy,
                                                      int writers) {
  std::vector<CommLog::Counters> counters(4);
  EXPECT_OK(OnAnyRanks(4, [&](auto& rank) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(
        HandMade made, HandMade::Create(rank, "dp_outer=2,dp_inner=2",
                                        *PlacementsFor(strategy, 2), {5, 3},
                                        GradientReduction::kSum));
    // A slot full of other values first, so that zeros must be written.
    TESSERA_RETURN_IF_ERROR(made.RunWith(false, 100.0f));
    TESSERA_RETURN_IF_ERROR(made.context->ZeroGradients(ZeroGrad::kRelease));
    rank.comms.log().Clear();
    if (rank.rank < writers) {
      TESSERA_RETURN_IF_ERROR(made.RunWith(true, 3.0f));
    } else {
      TESSERA_RETURN_IF_ERROR(
          made.Run(true, [](Unit&) { return absl::OkStatus(); }));
    }
    counters[rank.rank] = rank.comms.log().counters();
    EXPECT_THAT(made.MainGradient(), Each(3.0f * static_cast<float>(writers)));
    return absl::OkStatus();
  }));
  return counters;
}

TEST(GradientTest, RanksWithoutAGradientCountAsZerosAndSendAsMuch) {
  for (const char* strategy :
       {"ddp", "zero1", "zero2", "fsdp", "hsdp", "hfsdp"}) {
    SCOPED_TRACE(strategy);
    const auto all = CollectivesWithWriters(strategy, 4);
    EXPECT_THAT(all, Each(::testing::Not(IsEmpty())));
    for (int writers : {0, 1}) {
      EXPECT_EQ(CollectivesWithWriters(strategy, writers), all);
    }
  }
}

// A weight used twice, 5 rows on 2 ranks: both uses add to one gradient and
// every row is updated once.
void ExpectBothUsesOfATiedWeight(const char* strategy) {
  SCOPED_TRACE(strategy);
  EXPECT_OK(OnAnyRanks(2, [&](auto& rank) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(
        HandMade made,
        HandMade::Create(rank, "dp=2", *PlacementsFor(strategy, 1), {5, 4},
                         GradientReduction::kSum));
    const std::vector<float> zeros(20, 0.0f);
    TESSERA_RETURN_IF_ERROR(made.unit->LoadWeight(
        0, TensorView(const_cast<float*>(zeros.data()),
                      made.unit->parameter_layout(0).meta())));
    const auto write = [&](Unit& unit) -> absl::Status {
      for (int use = 0; use < 2; ++use) {
        TESSERA_ASSIGN_OR_RETURN(TensorView gradient,
                                 unit.grad(0, GradientWrite::kAccumulate));
        const MemoryRange all[] = {gradient};
        TESSERA_RETURN_IF_ERROR(rank.stream.Launch(
            {.name = "use", .reads = all, .writes = all},
            [gradient, rank = rank.rank] {
              for (int64_t i = 0; i < 20; ++i) {
                gradient.as<float>()[i] += static_cast<float>(i + 100 * rank);
              }
              return absl::OkStatus();
            }));
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

TEST(GradientTest, AddsBothUsesOfATiedWeight) {
  for (const char* strategy :
       {"ddp", "zero1", "zero2", "fsdp", "hsdp", "hfsdp"}) {
    ExpectBothUsesOfATiedWeight(strategy);
  }
}

// A last backward, and then two more of which the second is the last.
absl::Status ReenterAndCheck(HandMade& made, int rank,
                             GradientReduction reduction) {
  const auto value = static_cast<float>(rank);
  TESSERA_RETURN_IF_ERROR(made.RunWith(true, 1.0f + value));
  const float first = reduction == GradientReduction::kSum ? 10 : 2.5f;
  EXPECT_THAT(made.MainGradient(), Each(first));
  TESSERA_RETURN_IF_ERROR(made.RunWith(false, 10.0f * value));
  TESSERA_RETURN_IF_ERROR(made.RunWith(true, 4.0f));
  const float more = reduction == GradientReduction::kSum ? 76 : 19;
  EXPECT_THAT(made.MainGradient(), Each(first + more));
  return absl::OkStatus();
}

// A backward after the last one, without zeroing, adds to the final value,
// however gradients became zero before.
TEST(GradientTest, AddsToAFinalGradientThatWasNotZeroed) {
  for (const UnitPlacements& triple : LegalTriples(2)) {
    for (GradientReduction reduction :
         {GradientReduction::kSum, GradientReduction::kMean}) {
      for (ZeroGrad zero_grad : {ZeroGrad::kRelease, ZeroGrad::kFill}) {
        SCOPED_TRACE(triple.ToString());
        EXPECT_OK(OnAnyRanks(4, [&](auto& rank) -> absl::Status {
          TESSERA_ASSIGN_OR_RETURN(
              HandMade made, HandMade::Create(rank, "dp_outer=2,dp_inner=2",
                                              triple, {5, 3}, reduction));
          for (int round = 0; round < 2; ++round) {
            TESSERA_RETURN_IF_ERROR(
                ReenterAndCheck(made, rank.rank, reduction));
            TESSERA_RETURN_IF_ERROR(made.context->ZeroGradients(zero_grad));
          }
          return absl::OkStatus();
        }));
      }
    }
  }
}

// Scales contributions, not totals, by a divisor that is no power of two; the
// mesh's shape does not matter.
TEST(GradientTest, ALargeDivisorDoesNotDependOnTheMesh) {
  std::vector<ToyHistory> histories;
  for (const char* mesh : {"dp=8", "dp_outer=2,dp_inner=4"}) {
    for (const char* strategy :
         {"ddp", "zero1", "zero2", "fsdp", "hsdp", "hfsdp"}) {
      ToyRun run;
      run.mesh = mesh;
      run.strategy = strategy;
      run.grad_divisor = 300;
      run.steps = 1;
      run.units = DefaultToyUnits();
      SCOPED_TRACE(run.ToString());
      const ToyHistory oracle = OracleHistory(run);
      EXPECT_OK(TrainAndCompare(run, oracle));
      EXPECT_OK(ScheduledTraining(run).Run({}));
      histories.push_back(oracle);
    }
  }
  for (const ToyHistory& history : histories) {
    for (size_t u = 0; u < history.gradients[0].size(); ++u) {
      for (size_t p = 0; p < history.gradients[0][u].size(); ++p) {
        EXPECT_THAT(history.gradients[0][u][p],
                    ::testing::Pointwise(::testing::DoubleNear(1e-8),
                                         histories[0].gradients[0][u][p]));
      }
    }
  }
}

// Contributions in bf16 that would vanish beside 1.0 in bf16 are kept: 128
// times 2^-9.
TEST(GradientTest, AccumulatesNarrowGradientsInF32) {
  for (const char* strategy :
       {"ddp", "zero1", "zero2", "fsdp", "hsdp", "hfsdp"}) {
    SCOPED_TRACE(strategy);
    EXPECT_OK(OnAnyRanks(4, [&](auto& rank) -> absl::Status {
      TESSERA_ASSIGN_OR_RETURN(
          HandMade made,
          HandMade::Create(rank, "dp_outer=2,dp_inner=2",
                           *PlacementsFor(strategy, 2), {6},
                           GradientReduction::kMean, DType::kBF16));
      for (int m = 0; m <= 128; ++m) {
        TESSERA_RETURN_IF_ERROR(
            made.RunWith(m == 128, m == 0 ? 1.0f : 1.0f / 512));
      }
      EXPECT_THAT(made.MainGradient(), Each(1.25f));
      return absl::OkStatus();
    }));
  }
}

// While one rank's gradients are late, the others' reductions wait and their
// later backwards go on. Those must not write into what is still to be reduced:
// slots are handed on only when they are done with.
TEST(GradientTest, KeepsLayersApartWhereSlotsAreShared) {
  ToyRun run;
  run.microbatches = 2;
  run.steps = 1;
  run.units.push_back({"root", -1, {{"w", {3}}}});
  for (int b = 0; b < 6; ++b) {
    run.units.push_back({"block" + std::to_string(b), 0, {{"w", {67, 31}}}});
  }
  const ToyHistory expected = OracleHistory(run);
  const auto pause = [] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return absl::OkStatus();
  };
  for (int late = 0; late < 4; ++late) {
    SCOPED_TRACE(late);
    const auto program = [&](LocalRank& rank) -> absl::Status {
      TESSERA_ASSIGN_OR_RETURN(auto toy,
                               ToyRank::Create(run, rank.comms, rank.stream));
      for (int m = 0; m < run.microbatches; ++m) {
        TESSERA_RETURN_IF_ERROR(toy->Forward(expected.weights[0]));
        if (rank.rank == late) {
          TESSERA_RETURN_IF_ERROR(rank.stream.Launch({.name = "pause"}, pause));
        }
        TESSERA_RETURN_IF_ERROR(toy->Backward(0, m, m + 1 == run.microbatches));
      }
      return toy->CheckGradients(expected.gradients[0]);
    };
    EXPECT_OK(RunLocalRanks(4, program,
                            {.device = {.streams = CpuStreams::kWorker}}));
  }
}

// Elements, and how many of them are not zero.
struct Count {
  int64_t elements = 0;
  int64_t non_zeros = 0;

  void Add(const TensorView& view) {
    const auto* begin = view.as<float>();
    elements += view.num_elements();
    non_zeros += std::count_if(begin, begin + view.num_elements(),
                               [](float x) { return x != 0; });
  }
};

// In every step of a training the whole buffers of weights and gradients have
// as many elements that are not zero as the parameters in them: the padding
// between and behind them is zero. And every shard is a multiple of 128 bytes.
TEST(GradientTest, KeepsPaddingZeroWhileTraining) {
  for (const char* strategy :
       {"ddp", "zero1", "zero2", "fsdp", "hsdp", "hfsdp"}) {
    ToyRun run;
    run.strategy = strategy;
    run.microbatches = 1;
    run.units = DefaultToyUnits();
    SCOPED_TRACE(run.ToString());
    const ToyHistory expected = OracleHistory(run);
    EXPECT_OK(OnAnyRanks(4, [&](auto& rank) -> absl::Status {
      TESSERA_ASSIGN_OR_RETURN(auto toy,
                               ToyRank::Create(run, rank.comms, rank.stream));
      for (int step = 0; step < run.steps; ++step) {
        TESSERA_RETURN_IF_ERROR(toy->Forward(expected.weights[step]));
        TESSERA_RETURN_IF_ERROR(toy->Backward(step, 0, true));
        Count buffers;
        const auto update = [&](const OptimizerShard& shard,
                                Stream& stream) -> absl::Status {
          EXPECT_EQ(shard.weight.num_bytes() % 128, 0);
          EXPECT_EQ(shard.gradient.num_bytes() % 128, 0);
          TESSERA_RETURN_IF_ERROR(rank.device.kernels().AccumulateScaled(
              stream, shard.weight, shard.gradient, -run.learning_rate));
          TESSERA_RETURN_IF_ERROR(stream.Synchronize());
          buffers.Add(shard.weight);
          buffers.Add(shard.gradient);
          return absl::OkStatus();
        };
        TESSERA_RETURN_IF_ERROR(toy->context().Step(update));
        TESSERA_RETURN_IF_ERROR(toy->CheckWeights(expected.weights[step + 1]));
        Count parameters;
        for (size_t u = 0; u < run.units.size(); ++u) {
          Unit& unit = toy->unit(static_cast<int>(u));
          for (ParameterId p = 0; p < unit.num_parameters(); ++p) {
            parameters.Add(unit.main_weight(p)->local());
            parameters.Add(unit.main_grad(p)->local());
          }
        }
        EXPECT_GT(buffers.elements, parameters.elements);
        EXPECT_EQ(buffers.non_zeros, parameters.non_zeros);
        TESSERA_RETURN_IF_ERROR(toy->context().ZeroGradients(ZeroGrad::kFill));
      }
      return absl::OkStatus();
    }));
  }
}

}  // namespace
}  // namespace tessera::testing

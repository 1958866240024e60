#include "tessera/fsdp/gradient_norm.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <latch>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/run_ranks.h"
#include "tessera/comm/sim/sim_world.h"
#include "tessera/device/sim/sim_device.h"
#include "tessera/testing/run_scheduled_ranks.h"
#include "tests/fsdp/toy_training.h"
#include "tests/sanitized.h"
#include "tests/status_matchers.h"
#include "tests/watched_stream.h"

namespace tessera {
namespace {

using ::tessera::testing::DefaultToyUnits;
using ::tessera::testing::IsOkAndHolds;
using ::tessera::testing::kSanitized;
using ::tessera::testing::OracleHistory;
using ::tessera::testing::RunScheduledRanks;
using ::tessera::testing::ScheduledRank;
using ::tessera::testing::StatusIs;
using ::tessera::testing::ToyHistory;
using ::tessera::testing::ToyRank;
using ::tessera::testing::ToyRun;
using ::tessera::testing::ToyUnit;
using ::tessera::testing::ToyValues;
using ::tessera::testing::WatchedStream;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr auto kOutOfOrder = absl::StatusCode::kFailedPrecondition;

int RanksOf(const ToyRun& run) { return DeviceMesh::Parse(run.mesh)->size(); }

// Forwards and backwards of step 0.
absl::Status Differentiate(const ToyRun& run, ToyRank& toy,
                           const ToyHistory& history) {
  for (int m = 0; m < run.microbatches; ++m) {
    TESSERA_RETURN_IF_ERROR(toy.Forward(history.weights[0]));
    TESSERA_RETURN_IF_ERROR(
        toy.Backward(/*step=*/0, m, m + 1 == run.microbatches));
  }
  return absl::OkStatus();
}

// By plain arithmetic: every element of every parameter once.
double NormOf(const ToyValues& gradients) {
  double squares = 0;
  for (const auto& unit : gradients) {
    for (const std::vector<double>& parameter : unit) {
      for (double x : parameter) squares += x * x;
    }
  }
  return std::sqrt(squares);
}

ToyValues Scaled(ToyValues gradients, double factor) {
  for (auto& unit : gradients) {
    for (std::vector<double>& parameter : unit) {
      for (double& x : parameter) x = static_cast<float>(x * factor);
    }
  }
  return gradients;
}

// Every strategy on meshes with 1 and 4 data-parallel ranks, and beside them an
// axis along which parameters are sharded or the same.
std::vector<ToyRun> AllRuns() {
  std::vector<ToyRun> runs;
  for (absl::string_view strategy : StrategyNames()) {
    for (const char* mesh :
         {"outer=2,inner=2", "outer=1,inner=4", "outer=4,inner=1",
          "outer=1,inner=1", "outer=2,tp=3,inner=2"}) {
      ToyRun run;
      run.strategy = std::string(strategy);
      run.mesh = mesh;
      run.axes = {"outer", "inner"};
      run.steps = 1;
      run.units = DefaultToyUnits();
      if (DeviceMesh::Parse(mesh)->num_axes() == 3) {
        run.units[1].parameters[0].layout = "[R, S(0), R]";
        run.units[2].parameters[0].layout = "[R, S(1), R]";
        run.units[2].parameters[1].layout = "[R, S(0), R]";
      }
      runs.push_back(run);
    }
  }
  return runs;
}

// In the order of ranks. Where any fails: none.
template <typename Body>
std::vector<double> OnEveryRank(const ToyRun& run, Body body,
                                const LocalRunOptions& options = {}) {
  std::vector<double> values(RanksOf(run));
  const absl::Status status = RunLocalRanks(
      RanksOf(run),
      [&](LocalRank& rank) -> absl::Status {
        TESSERA_ASSIGN_OR_RETURN(const auto toy,
                                 ToyRank::Create(run, rank.comms, rank.stream));
        TESSERA_ASSIGN_OR_RETURN(values[rank.rank], body(*toy));
        return absl::OkStatus();
      },
      options);
  EXPECT_OK(status) << run.ToString();
  return status.ok() ? values : std::vector<double>();
}

TEST(GradientNormTest, CountsEveryElementOnceUnderEveryStrategy) {
  std::vector<double> of_four_ranks;
  for (const ToyRun& run : AllRuns()) {
    SCOPED_TRACE(run.ToString());
    const ToyHistory history = OracleHistory(run);
    const std::vector<double> norms =
        OnEveryRank(run, [&](ToyRank& toy) -> absl::StatusOr<double> {
          TESSERA_RETURN_IF_ERROR(Differentiate(run, toy, history));
          TESSERA_ASSIGN_OR_RETURN(GradientNorm norm,
                                   GradientNorm::Create(toy.context()));
          TESSERA_RETURN_IF_ERROR(norm.Compute());
          TESSERA_RETURN_IF_ERROR(norm.CheckFinite());
          return norm.Value();
        });
    ASSERT_FALSE(norms.empty());
    const double wanted = NormOf(history.gradients[0]);
    EXPECT_NEAR(norms[0], wanted, 1e-12 * wanted);
    for (double norm : norms) {
      EXPECT_EQ(std::bit_cast<uint64_t>(norm),
                std::bit_cast<uint64_t>(norms[0]));
    }
    if (RanksOf(run) > 1) of_four_ranks.push_back(norms[0]);
  }
  // All of these average over the same four ranks.
  for (double norm : of_four_ranks) {
    EXPECT_NEAR(norm, of_four_ranks[0], 1e-6 * of_four_ranks[0]);
  }
}

TEST(GradientNormTest, ClipsGradientsByTheFormulaUnderEveryStrategy) {
  for (const ToyRun& run : AllRuns()) {
    SCOPED_TRACE(run.ToString());
    const ToyHistory history = OracleHistory(run);
    const ToyValues& gradients = history.gradients[0];
    for (double share : {0.5, 2.0}) {
      const double max_norm = share * NormOf(gradients);
      OnEveryRank(run, [&](ToyRank& toy) -> absl::StatusOr<double> {
        TESSERA_RETURN_IF_ERROR(Differentiate(run, toy, history));
        TESSERA_ASSIGN_OR_RETURN(GradientNorm norm,
                                 GradientNorm::Create(toy.context()));
        TESSERA_RETURN_IF_ERROR(norm.Clip(max_norm));
        TESSERA_ASSIGN_OR_RETURN(const double value, norm.Value());
        const double factor = max_norm / (value + 1e-6);
        TESSERA_RETURN_IF_ERROR(toy.CheckGradients(
            factor < 1 ? Scaled(gradients, factor) : gradients));
        return value;
      });
    }
  }
}

// A toy with small units on one rank, once its gradients are there.
void WithToy(std::vector<ToyUnit> units,
             const std::function<absl::Status(ToyRank&, WatchedStream&)>& body,
             const LocalRunOptions& options = {}) {
  ToyRun run;
  run.mesh = "dp=1";
  run.strategy = "fsdp";
  run.steps = 1;
  run.microbatches = 1;
  run.units = std::move(units);
  const ToyHistory history = OracleHistory(run);
  EXPECT_OK(RunLocalRanks(
      1,
      [&](LocalRank& rank) -> absl::Status {
        WatchedStream stream(rank.stream);
        TESSERA_ASSIGN_OR_RETURN(const auto toy,
                                 ToyRank::Create(run, rank.comms, stream));
        TESSERA_RETURN_IF_ERROR(Differentiate(run, *toy, history));
        TESSERA_RETURN_IF_ERROR(toy->context().Synchronize());
        return body(*toy, stream);
      },
      options));
}

TEST(GradientNormTest, PaddingIsNeitherReadNorWritten) {
  WithToy({{"unit", -1, {{"w", {5}}, {"norm", {3}}}}},
          [](ToyRank& toy, WatchedStream&) -> absl::Status {
            TESSERA_ASSIGN_OR_RETURN(const auto shards,
                                     toy.context().optimizer_shards());
            float* const gradient = shards[0].gradient.as<float>();
            const auto is_padding = [](int64_t i) {
              return (i >= 5 && i < 8) || i >= 11;
            };
            const int64_t n = shards[0].gradient.num_elements();
            EXPECT_GT(n, 11);
            for (int64_t i = 0; i < n; ++i) {
              if (is_padding(i)) gradient[i] = 1000;
            }
            TESSERA_ASSIGN_OR_RETURN(GradientNorm norm,
                                     GradientNorm::Create(toy.context()));
            TESSERA_RETURN_IF_ERROR(norm.Clip(0.0));
            TESSERA_ASSIGN_OR_RETURN(const double value, norm.Value());
            EXPECT_LT(value, 1000);
            EXPECT_GT(value, 0);
            for (int64_t i = 0; i < n; ++i) {
              EXPECT_EQ(gradient[i], is_padding(i) ? 1000 : 0) << i;
            }
            return absl::OkStatus();
          });
}

TEST(GradientNormTest, PiecesThatTouchAreOneLaunch) {
  for (const auto& [extent, launches] : {std::pair(8, 1), std::pair(7, 3)}) {
    WithToy({{"unit", -1, {{"a", {extent}}, {"b", {extent}}, {"c", {8}}}}},
            [launches = launches](ToyRank& toy,
                                  WatchedStream& stream) -> absl::Status {
              TESSERA_ASSIGN_OR_RETURN(GradientNorm norm,
                                       GradientNorm::Create(toy.context()));
              stream.launches.clear();
              TESSERA_RETURN_IF_ERROR(norm.Clip(1.0));
              for (const char* name : {"add_squares", "clip_to_norm"}) {
                EXPECT_EQ(absl::c_count(stream.launches, name), launches);
              }
              return absl::OkStatus();
            });
  }
}

TEST(GradientNormTest, TheHostWaitsOnlyForTheValue) {
  WithToy(DefaultToyUnits(),
          [](ToyRank& toy, WatchedStream& stream) -> absl::Status {
            std::latch asked(1);
            TESSERA_RETURN_IF_ERROR(stream.Launch({.name = "wait"}, [&asked] {
              asked.wait();
              return absl::OkStatus();
            }));
            TESSERA_ASSIGN_OR_RETURN(GradientNorm norm,
                                     GradientNorm::Create(toy.context()));
            TESSERA_RETURN_IF_ERROR(norm.Compute());
            TESSERA_RETURN_IF_ERROR(norm.Clip(1e-3));
            asked.count_down();  // all of the above came here while it stood
            TESSERA_ASSIGN_OR_RETURN(const double value, norm.Value());
            EXPECT_GT(value, 1e-3);
            return absl::OkStatus();
          },
          {.device = {.streams = CpuStreams::kWorker}});
}

TEST(GradientNormTest, GroupsWithoutAGradientAreLeftOut) {
  WithToy({{"used", -1, {{"w", {8}}}}, {"unused", -1, {{"w", {8}}}}},
          [](ToyRank& toy, WatchedStream&) -> absl::Status {
            Context& context = toy.context();
            TESSERA_RETURN_IF_ERROR(context.ZeroGradients(ZeroGrad::kRelease));
            TESSERA_ASSIGN_OR_RETURN(GradientNorm norm,
                                     GradientNorm::Create(context));
            EXPECT_THAT(norm.Compute(),
                        StatusIs(kOutOfOrder,
                                 "fsdp: gradient_norm: no unit has a gradient "
                                 "since the last zeroing"));
            toy.unit(0).BeforeForward();
            toy.unit(0).AfterForward();
            toy.unit(0).BeforeBackward();
            TESSERA_ASSIGN_OR_RETURN(
                const TensorView gradient,
                toy.unit(0).grad(0, GradientWrite::kOverwrite));
            TESSERA_RETURN_IF_ERROR(context.compute().device().kernels().Fill(
                context.compute(), gradient, 2.0));
            toy.unit(0).AfterBackward();
            TESSERA_RETURN_IF_ERROR(norm.Compute());
            EXPECT_THAT(norm.Value(), IsOkAndHolds(std::sqrt(32.0)));
            return absl::OkStatus();
          });
}

TEST(GradientNormTest, RefusesWhatStepRefuses) {
  WithToy({{"unit", -1, {{"w", {8}}}}},
          [](ToyRank& toy, WatchedStream&) -> absl::Status {
            TESSERA_ASSIGN_OR_RETURN(GradientNorm norm,
                                     GradientNorm::Create(toy.context()));
            EXPECT_THAT(norm.Value(), StatusIs(kOutOfOrder));
            for (double max_norm : {-1.0, std::nan(""), HUGE_VAL}) {
              EXPECT_THAT(norm.Clip(max_norm),
                          StatusIs(absl::StatusCode::kInvalidArgument,
                                   HasSubstr("max_norm is")));
            }
            Unit& unit = toy.unit(0);
            unit.BeforeForward();
            unit.AfterForward();
            EXPECT_THAT(norm.Compute(),
                        StatusIs(kOutOfOrder,
                                 "fsdp: gradient_norm: unit 'unit' has 1 "
                                 "forwards without a backward"));
            unit.BeforeBackward();
            unit.AfterBackward(/*is_last=*/false);
            EXPECT_THAT(
                norm.Clip(1.0),
                StatusIs(kOutOfOrder,
                         HasSubstr("gradient_norm: unit 'unit' has a partial "
                                   "gradient")));
            EXPECT_OK(toy.context().status());
            return absl::OkStatus();
          });
}

TEST(VisitGradientsTest, ErrorsOfVisitsStay) {
  WithToy({{"unit", -1, {{"w", {8}}}}},
          [](ToyRank& toy, WatchedStream&) -> absl::Status {
            const auto lost = StatusIs(absl::StatusCode::kDataLoss,
                                       "fsdp: mine: unit 'unit': lost");
            EXPECT_THAT(toy.context().VisitGradients(
                            "mine",
                            [](const OptimizerShard&, Stream&) {
                              return absl::DataLossError("lost");
                            }),
                        lost);
            EXPECT_THAT(toy.context().status(), lost);
            return absl::OkStatus();
          });
}

TEST(GradientNormTest, WantsAPreparedContext) {
  EXPECT_OK(RunLocalRanks(1, [](LocalRank& rank) -> absl::Status {
    FsdpOptions options;
    options.mesh = *DeviceMesh::Parse("dp=1");
    options.placements = *PlacementsFor("ddp", 1);
    TESSERA_ASSIGN_OR_RETURN(
        const auto context,
        Context::Create(options, rank.comms.world(), rank.stream));
    EXPECT_THAT(GradientNorm::Create(*context).status(),
                StatusIs(kOutOfOrder, "fsdp: the context is not prepared"));
    return absl::OkStatus();
  }));
}

// Gradients of a unit are made infinite or NaN on one rank.
absl::Status Spoil(ToyRank& toy, int unit, ParameterId p, float value) {
  TESSERA_RETURN_IF_ERROR(toy.context().Synchronize());
  TESSERA_ASSIGN_OR_RETURN(const ShardedTensor gradient,
                           toy.unit(unit).main_grad(p));
  EXPECT_GT(gradient.local().num_elements(), 0);
  *gradient.local().as<float>() = value;
  return absl::OkStatus();
}

TEST(GradientNormTest, NamesTheFirstBadParameterAndRankOnEveryRank) {
  ToyRun run;
  run.mesh = "dp=4";
  run.strategy = "fsdp";
  run.microbatches = 1;
  run.steps = 1;
  run.units = DefaultToyUnits();
  const ToyHistory history = OracleHistory(run);
  for (bool clips : {false, true}) {
    EXPECT_OK(RunLocalRanks(4, [&](LocalRank& rank) -> absl::Status {
      TESSERA_ASSIGN_OR_RETURN(const auto toy,
                               ToyRank::Create(run, rank.comms, rank.stream));
      TESSERA_RETURN_IF_ERROR(Differentiate(run, *toy, history));
      // The second of these comes first.
      if (rank.rank == 0) {
        TESSERA_RETURN_IF_ERROR(
            Spoil(*toy, 2, 0, std::numeric_limits<float>::infinity()));
      }
      if (rank.rank == 1 || rank.rank == 2) {
        TESSERA_RETURN_IF_ERROR(Spoil(*toy, 1, 0, std::nanf("")));
      }
      TESSERA_ASSIGN_OR_RETURN(GradientNorm norm,
                               GradientNorm::Create(toy->context()));
      TESSERA_RETURN_IF_ERROR(clips ? norm.Clip(1.0) : norm.Compute());
      EXPECT_THAT(
          norm.CheckFinite(),
          StatusIs(kOutOfOrder,
                   AllOf(HasSubstr("fsdp: the norm of the gradients is "),
                         HasSubstr("nan: unit 'block0' parameter "
                                   "'weight' has 1 elements that are "
                                   "infinite or NaN on rank 1"))));
      return toy->context().status();
    }));
  }
}

TEST(GradientNormTest, LooksAtParametersOnlyWhereTheNormIsNotFinite) {
  WithToy({{"unit", -1, {{"w", {8}}}}},
          [](ToyRank& toy, WatchedStream& stream) -> absl::Status {
            TESSERA_ASSIGN_OR_RETURN(GradientNorm norm,
                                     GradientNorm::Create(toy.context()));
            TESSERA_RETURN_IF_ERROR(norm.Compute());
            stream.launches.clear();
            TESSERA_RETURN_IF_ERROR(norm.CheckFinite());
            EXPECT_TRUE(stream.launches.empty());
            return absl::OkStatus();
          });
}

// One all-reduce of eight bytes, and no host waits, as on real ranks.
TEST(GradientNormTest, RunsOnASimulatedDevice) {
  ToyRun run;
  run.mesh = "dp=512";
  run.strategy = "fsdp";
  run.microbatches = 1;
  run.steps = 1;
  run.units = DefaultToyUnits();
  SimDevice device;
  ASSERT_OK_AND_ASSIGN(const auto stream, device.NewStream("compute"));
  ASSERT_OK_AND_ASSIGN(
      const SimWorld world,
      SimWorld::Create(*DeviceMesh::Parse(run.mesh), Topology::LocalCpu()));
  ASSERT_OK_AND_ASSIGN(const auto comm, world.Join(77, *stream));
  CommSet comms(*comm);
  ASSERT_OK_AND_ASSIGN(const auto toy, ToyRank::Create(run, comms, *stream));
  ASSERT_OK(toy->Forward({}));
  ASSERT_OK(toy->Backward(0, 0, true));
  ASSERT_OK_AND_ASSIGN(GradientNorm norm, GradientNorm::Create(toy->context()));
  comms.log().Clear();
  ASSERT_OK(norm.Clip(1.0));
  EXPECT_THAT(norm.Value(), IsOkAndHolds(0.0));
  EXPECT_OK(norm.CheckFinite());
  const CommLog::Counters counters = comms.log().counters();
  ASSERT_EQ(counters.size(), 1);
  EXPECT_EQ(counters.begin()->first,
            (CommLog::Counters::key_type{"dp", CollectiveKind::kAllReduce}));
  EXPECT_EQ(counters.begin()->second.calls, 1);
}

// In any order of streams the same bits, and no races.
TEST(GradientNormTest, ClipsInAnyOrderOfStreams) {
  for (const char* strategy : {"ddp", "zero1", "fsdp", "hsdp", "hfsdp"}) {
    ToyRun run;
    run.strategy = strategy;
    run.units = DefaultToyUnits();
    const ToyHistory history = OracleHistory(run);
    const double max_norm = NormOf(history.gradients[0]) / 2;
    for (uint64_t seed = 0; seed < (kSanitized ? 2 : 10); ++seed) {
      EXPECT_OK(RunScheduledRanks(
          RanksOf(run),
          [&](ScheduledRank& rank) -> absl::Status {
            TESSERA_ASSIGN_OR_RETURN(
                const auto toy, ToyRank::Create(run, rank.comms, rank.stream));
            TESSERA_ASSIGN_OR_RETURN(GradientNorm norm,
                                     GradientNorm::Create(toy->context()));
            TESSERA_RETURN_IF_ERROR(Differentiate(run, *toy, history));
            TESSERA_RETURN_IF_ERROR(norm.Clip(max_norm));
            // Adds to what was clipped while nothing waited.
            TESSERA_RETURN_IF_ERROR(Differentiate(run, *toy, history));
            TESSERA_RETURN_IF_ERROR(norm.Clip(max_norm));
            TESSERA_ASSIGN_OR_RETURN(const double value, norm.Value());
            EXPECT_NEAR(value, 3 * max_norm, 1e-5 * max_norm);
            return toy->context().Synchronize();
          },
          {.seed = seed}))
          << run.ToString();
    }
  }
}

}  // namespace
}  // namespace tessera

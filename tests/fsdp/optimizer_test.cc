#include "tessera/fsdp/optimizer.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <latch>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/run_ranks.h"
#include "tests/fsdp/toy_training.h"
#include "tests/status_matchers.h"
#include "tests/watched_stream.h"

namespace tessera {
namespace {

using ::tessera::testing::DefaultToyUnits;
using ::tessera::testing::IsOkAndHolds;
using ::tessera::testing::OracleHistory;
using ::tessera::testing::StatusIs;
using ::tessera::testing::ToyOptimizer;
using ::tessera::testing::ToyRank;
using ::tessera::testing::ToyRun;
using ::tessera::testing::TrainAndCompare;
using ::tessera::testing::WatchedStream;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// Runs of neighbours.

using internal::RunsOf;
using internal::ShardRun;

TEST(RunsOfTest, JoinsNeighboursOfOneGroup) {
  const std::vector<ShardPiece> pieces = {
      {0, {0, 5}}, {2, {8, 9}}, {1, {12, 12}}, {3, {12, 20}}, {4, {24, 30}}};
  const auto runs = [&](const std::vector<int>& groups) {
    return RunsOf(pieces, [&](ParameterId p) { return groups[p]; });
  };
  EXPECT_THAT(runs({0, 0, 0, 0, 0}), ElementsAre(ShardRun{0, {0, 30}}));
  // What has no elements does not come between.
  EXPECT_THAT(runs({0, 1, 0, 0, 2}),
              ElementsAre(ShardRun{0, {0, 20}}, ShardRun{2, {24, 30}}));
  EXPECT_THAT(runs({0, 0, 1, 0, 0}),
              ElementsAre(ShardRun{0, {0, 5}}, ShardRun{1, {8, 9}},
                          ShardRun{0, {12, 30}}));
  EXPECT_THAT(RunsOf({}, [](ParameterId) { return 0; }), IsEmpty());
}

TEST(RunsOfTest, LeavesOutWhatIsLeftToOthers) {
  const std::vector<ShardPiece> pieces = {
      {0, {0, 5}}, {1, {8, 9}}, {2, {12, 20}}, {3, {24, 30}}};
  const auto runs = [&](const std::vector<int>& groups) {
    return RunsOf(pieces, [&](ParameterId p) { return groups[p]; });
  };
  EXPECT_THAT(runs({0, kNoGroup, 0, 0}),
              ElementsAre(ShardRun{0, {0, 5}}, ShardRun{0, {12, 30}}));
  EXPECT_THAT(runs({kNoGroup, kNoGroup, 1, kNoGroup}),
              ElementsAre(ShardRun{1, {12, 20}}));
}

// Against the oracle and the formulas, bit for bit.

class OptimizerTest : public ::testing::TestWithParam<ToyOptimizer> {};

INSTANTIATE_TEST_SUITE_P(Optimizers, OptimizerTest,
                         ::testing::Values(ToyOptimizer::kSgd,
                                           ToyOptimizer::kMomentum,
                                           ToyOptimizer::kNesterov,
                                           ToyOptimizer::kAdamW),
                         [](const auto& optimizer) {
                           switch (optimizer.param) {
                             case ToyOptimizer::kSgd:
                               return "Sgd";
                             case ToyOptimizer::kMomentum:
                               return "Momentum";
                             case ToyOptimizer::kNesterov:
                               return "Nesterov";
                             case ToyOptimizer::kAdamW:
                               return "AdamW";
                             case ToyOptimizer::kWhole:
                               return "Whole";
                           }
                           return "";
                         });

TEST_P(OptimizerTest, EqualsOracleBitwiseUnderEveryStrategy) {
  for (absl::string_view strategy : StrategyNames()) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      for (CpuStreams streams : {CpuStreams::kInline, CpuStreams::kWorker}) {
        ToyRun run;
        run.strategy = std::string(strategy);
        run.mesh = "dp_outer=2,dp_inner=3";
        run.dtype = dtype;
        run.optimizer = GetParam();
        run.streams = streams;
        run.units = DefaultToyUnits();
        SCOPED_TRACE(run.ToString());
        EXPECT_OK(TrainAndCompare(run, OracleHistory(run)));
      }
    }
  }
}

TEST_P(OptimizerTest, EqualsOracleBitwiseInMixedPrecision) {
  const Precision precisions[] = {
      {.accumulation = DType::kF64, .main_weight = DType::kF32},
      {.accumulation = DType::kF32, .main_weight = DType::kF64},
      {.accumulation = DType::kF64, .main_weight = DType::kF64}};
  for (const Precision& precision : precisions) {
    ToyRun run;
    run.precision = precision;
    run.dtype = DType::kBF16;
    run.optimizer = GetParam();
    run.units = DefaultToyUnits();
    SCOPED_TRACE(run.ToString());
    EXPECT_OK(TrainAndCompare(run, OracleHistory(run)));
  }
}

// Memory, and when it is there.

int64_t StateBytes(const Device& device) {
  const MemoryReport report = device.memory();
  const auto found = report.by_tag.find(kOptimizerStateTag);
  return found == report.by_tag.end() ? 0 : found->second.current_bytes;
}

int64_t StateAllocations(const Device& device) {
  const MemoryReport report = device.memory();
  const auto found = report.by_tag.find(kOptimizerStateTag);
  return found == report.by_tag.end() ? 0 : found->second.allocations;
}

// What main weights that are trained take.
int64_t TrainedBytes(const Context& context) {
  int64_t bytes = 0;
  for (const UnitMemory& unit : context.unit_memory()) {
    for (const GroupMemory& group : unit.groups) {
      if (group.requires_grad) bytes += group.MainWeightBytes();
    }
  }
  return bytes;
}

TEST_P(OptimizerTest, StateIsAMultipleOfTheTrainedMainWeights) {
  const int values = GetParam() == ToyOptimizer::kSgd     ? 0
                     : GetParam() == ToyOptimizer::kAdamW ? 2
                                                          : 1;
  for (absl::string_view strategy : StrategyNames()) {
    ToyRun run;
    run.strategy = std::string(strategy);
    run.dtype = DType::kBF16;
    run.optimizer = GetParam();
    run.units = DefaultToyUnits();
    SCOPED_TRACE(run.ToString());
    const testing::ToyHistory expected = OracleHistory(run);
    EXPECT_OK(RunLocalRanks(4, [&](LocalRank& rank) -> absl::Status {
      TESSERA_ASSIGN_OR_RETURN(const auto toy,
                               ToyRank::Create(run, rank.comms, rank.stream));
      EXPECT_EQ(StateBytes(rank.device), 0);
      for (int step = 0; step < run.steps; ++step) {
        TESSERA_RETURN_IF_ERROR(toy->TrainStep(step, expected.weights[step]));
        EXPECT_EQ(StateBytes(rank.device),
                  values * TrainedBytes(toy->context()));
      }
      EXPECT_EQ(StateAllocations(rank.device), values == 0 ? 0 : 3);
      return absl::OkStatus();
    }));
  }
}

// One unit of a context on one rank: parameters "w" and "norm", and a frozen
// one.
class OneRank {
 public:
  explicit OneRank(LocalRank& rank, Stream* stream = nullptr)
      : stream_(stream == nullptr ? rank.stream : *stream) {
    FsdpOptions options;
    options.mesh = *DeviceMesh::Parse("dp=1");
    options.placements = *PlacementsFor("fsdp", 1);
    options.logger = Logger(nullptr, absl::LogSeverity::kError);
    context_ = *Context::Create(options, rank.comms.world(), stream_);
    UnitBuilder builder = context_->NewUnit("unit");
    builder.Add("w", *TensorMeta::Create(DType::kF32, {5}));
    builder.Add("norm", *TensorMeta::Create(DType::kF32, {3}));
    builder.Add("frozen", *TensorMeta::Create(DType::kF32, {7}),
                {.requires_grad = false});
    unit_ = *builder.Build();
    EXPECT_OK(context_->Prepare());
  }

  Context& context() { return *context_; }
  Unit& unit() { return *unit_; }

  // Both weights become this.
  void Load(float value) {
    std::vector<float> host(5, value);
    for (ParameterId p : {0, 1}) {
      EXPECT_OK(unit_->LoadWeight(
          p, TensorView(host.data(), unit_->parameter_layout(p).meta())));
    }
  }
  // Both gradients become this.
  void Differentiate(float value) {
    unit_->BeforeForward();
    unit_->AfterForward();
    unit_->BeforeBackward();
    for (ParameterId p : {0, 1}) {
      EXPECT_OK(stream_.device().kernels().Fill(
          stream_, *unit_->grad(p, GradientWrite::kOverwrite), value));
    }
    unit_->AfterBackward();
  }
  float Weight(ParameterId p) const {
    return unit_->main_weight(p)->local().as<float>()[0];
  }

 private:
  Stream& stream_;
  std::unique_ptr<Context> context_;
  Unit* unit_;
};

// One rank, inline.
void OnOneRank(absl::FunctionRef<void(LocalRank&)> body) {
  EXPECT_OK(RunLocalRanks(1, [&](LocalRank& rank) -> absl::Status {
    body(rank);
    return absl::OkStatus();
  }));
}

TEST(AdamWOptimizerTest, FirstUpdateIsTheFormulaByHand) {
  OnOneRank([](LocalRank& rank) {
    OneRank one(rank);
    one.Load(1.0f);
    one.Differentiate(0.5f);
    ASSERT_OK_AND_ASSIGN(
        auto optimizer,
        AdamWOptimizer::Create(one.context(), {.learning_rate = 0.25,
                                               .beta1 = 0.5,
                                               .beta2 = 0.75,
                                               .epsilon = 0.5,
                                               .weight_decay = 0.5}));
    ASSERT_OK(optimizer.Step());
    // m = 0.25, v = 1/16; corrected 0.5 and 1/4. All numbers are exact.
    EXPECT_EQ(one.Weight(0),
              1.0f * (1 - 0.125f) - 0.25f * 0.5f / (0.5f + 0.5f));
  });
}

TEST(AdamWOptimizerTest, SecondUpdateCorrectsByTheStep) {
  OnOneRank([](LocalRank& rank) {
    OneRank one(rank);
    one.Load(1.0f);
    ASSERT_OK_AND_ASSIGN(
        auto optimizer,
        AdamWOptimizer::Create(one.context(), {.learning_rate = 0.25}));
    double m = 0;
    double v = 0;
    double w = 1;
    for (int step : {1, 2, 3}) {
      const double g = 0.5 * step;
      one.Differentiate(static_cast<float>(g));
      ASSERT_OK(optimizer.Step());
      ASSERT_OK(one.context().ZeroGradients(ZeroGrad::kRelease));
      m = 0.9 * m + 0.1 * g;
      v = 0.999 * v + 0.001 * g * g;
      w -= 0.25 * 0.01 * w;
      w -= 0.25 * (m / (1 - std::pow(0.9, step))) /
           (std::sqrt(v / (1 - std::pow(0.999, step))) + 1e-8);
      EXPECT_NEAR(one.Weight(1), w, 1e-6) << step;
    }
  });
}

// Made ahead, state does not count as a step.
TEST_P(OptimizerTest, StateMadeAheadChangesNoUpdate) {
  OnOneRank([](LocalRank& rank) {
    std::vector<float> weights;
    for (bool ahead : {false, true}) {
      OneRank one(rank);
      one.Load(1.0f);
      const auto train = [&](auto optimizer) {
        ASSERT_OK(optimizer.status());
        if (ahead) {
          ASSERT_OK(optimizer->MakeState());
          ASSERT_OK(optimizer->MakeState());
        }
        for (float gradient : {0.3f, 0.7f}) {
          one.Differentiate(gradient);
          ASSERT_OK(optimizer->Step());
          ASSERT_OK(one.context().ZeroGradients(ZeroGrad::kFill));
          weights.push_back(one.Weight(0));
        }
      };
      if (GetParam() == ToyOptimizer::kAdamW) {
        train(AdamWOptimizer::Create(one.context()));
      } else {
        train(SgdOptimizer::Create(
            one.context(),
            {.learning_rate = 0.1, .momentum = 0.9, .dampening = 0.5}));
      }
    }
    ASSERT_EQ(weights.size(), 4);
    EXPECT_EQ(weights[0], weights[2]);
    EXPECT_EQ(weights[1], weights[3]);
  });
}

TEST(SgdOptimizerTest, FirstMomentumIsTheGradientUndampened) {
  OnOneRank([](LocalRank& rank) {
    OneRank one(rank);
    one.Load(1.0f);
    ASSERT_OK_AND_ASSIGN(
        auto optimizer,
        SgdOptimizer::Create(
            one.context(),
            {.learning_rate = 0.5, .momentum = 0.5, .dampening = 0.5}));
    one.Differentiate(0.5f);
    ASSERT_OK(optimizer.Step());
    EXPECT_EQ(one.Weight(0), 0.75f);
    ASSERT_OK(one.context().ZeroGradients(ZeroGrad::kFill));
    one.Differentiate(0.5f);
    ASSERT_OK(optimizer.Step());
    EXPECT_EQ(one.Weight(0), 0.75f - 0.5f * (0.25f + 0.25f));
  });
}

// A group without a gradient is left out: its state is not made, and its first
// update comes later.
TEST(AdamWOptimizerTest, UnitsWithoutAGradientHaveNoStateYet) {
  OnOneRank([](LocalRank& rank) {
    FsdpOptions options;
    options.mesh = *DeviceMesh::Parse("dp=1");
    options.placements = *PlacementsFor("ddp", 1);
    const auto context =
        *Context::Create(options, rank.comms.world(), rank.stream);
    std::vector<Unit*> units;
    for (const char* name : {"used", "unused"}) {
      UnitBuilder builder = context->NewUnit(name);
      builder.Add("w", *TensorMeta::Create(DType::kF32, {32}));
      units.push_back(*builder.Build());
    }
    ASSERT_OK(context->Prepare());
    ASSERT_OK_AND_ASSIGN(auto optimizer, AdamWOptimizer::Create(*context));
    units[0]->BeforeForward();
    units[0]->AfterForward();
    units[0]->BeforeBackward();
    units[0]->AfterBackward();
    ASSERT_OK(optimizer.Step());
    EXPECT_EQ(StateBytes(rank.device), 2 * 128);
    ASSERT_OK(optimizer.MakeState());
    EXPECT_EQ(StateBytes(rank.device), 4 * 128);
  });
}

TEST(AdamWOptimizerTest, StateGoesWithTheOptimizer) {
  OnOneRank([](LocalRank& rank) {
    OneRank one(rank);
    {
      ASSERT_OK_AND_ASSIGN(auto optimizer,
                           AdamWOptimizer::Create(one.context()));
      ASSERT_OK(optimizer.MakeState());
      EXPECT_GT(StateBytes(rank.device), 0);
    }
    EXPECT_EQ(StateBytes(rank.device), 0);
  });
}

// Counts what is given back.
class CountingAllocator final : public HostAllocator {
 public:
  void* Allocate(int64_t bytes) override {
    return ::operator new(bytes, kAlignment);
  }
  void Free(void* data, int64_t) override {
    ::operator delete(data, kAlignment);
    ++frees;
  }
  std::atomic<int> frees = 0;

 private:
  static constexpr std::align_val_t kAlignment{128};
};

TEST(AdamWOptimizerTest, StateStaysUntilTheStreamHasComePast) {
  OnOneRank([](LocalRank& rank) {
    CountingAllocator allocator;
    CpuDevice device({.streams = CpuStreams::kWorker, .allocator = &allocator});
    const auto stream = *device.NewStream("compute");
    OneRank one(rank, stream.get());
    ASSERT_OK(stream->Synchronize());
    const int frees = allocator.frees;
    std::latch destroyed(1);
    ASSERT_OK(stream->Launch({.name = "wait"}, [&destroyed] {
      destroyed.wait();
      return absl::OkStatus();
    }));
    {
      ASSERT_OK_AND_ASSIGN(auto optimizer,
                           AdamWOptimizer::Create(one.context()));
      ASSERT_OK(optimizer.MakeState());
    }
    EXPECT_EQ(allocator.frees, frees);
    destroyed.count_down();
    ASSERT_OK(stream->Synchronize());
    EXPECT_EQ(allocator.frees, frees + 1);
  });
}

// Padding, in front of and between the groups of a shard, stays zero.
TEST(AdamWOptimizerTest, PaddingStaysZero) {
  OnOneRank([](LocalRank& rank) {
    OneRank one(rank);
    one.Load(1.0f);
    one.Differentiate(0.5f);
    ASSERT_OK_AND_ASSIGN(auto optimizer, AdamWOptimizer::Create(one.context()));
    ASSERT_OK(optimizer.Step());
    ASSERT_OK_AND_ASSIGN(const auto shards, one.context().optimizer_shards());
    ASSERT_EQ(shards.size(), 1);
    const OptimizerShard& shard = shards[0];
    ASSERT_EQ(shard.pieces.size(), 2);
    EXPECT_EQ(shard.pieces[0].elements, (Interval{0, 5}));
    EXPECT_EQ(shard.pieces[1].elements, (Interval{8, 11}));
    EXPECT_EQ(shard.gradient.num_elements(), shard.weight.num_elements());
    for (int64_t i = 0; i < shard.weight.num_elements(); ++i) {
      const bool is_padding = (i >= 5 && i < 8) || i >= 11;
      EXPECT_EQ(shard.weight.as<float>()[i] == 0.0f, is_padding) << i;
    }
  });
}

// Groups of parameters.

// How many launches update "w" and "norm", which are in these groups.
int64_t LaunchesOf(std::vector<AdamWHyperparameters> groups,
                   absl::FunctionRef<void(AdamWOptimizer&)> adjust) {
  int64_t count = 0;
  OnOneRank([&](LocalRank& rank) {
    WatchedStream watched(rank.stream);
    OneRank one(rank, &watched);
    one.Differentiate(0.5f);
    ASSERT_OK_AND_ASSIGN(
        auto optimizer,
        AdamWOptimizer::Create(
            one.context(), std::move(groups),
            [](absl::string_view unit, absl::string_view parameter) {
              EXPECT_EQ(unit, "unit");
              return parameter == "norm" ? 1 : 0;
            }));
    adjust(optimizer);
    ASSERT_OK(optimizer.Step());
    count =
        std::count(watched.launches.begin(), watched.launches.end(), "adamw");
  });
  return count;
}

TEST(OptimizerGroupsTest, NeighboursWithEqualHyperparametersAreOneLaunch) {
  const auto nothing = [](AdamWOptimizer&) {};
  EXPECT_EQ(LaunchesOf({{}, {}}, nothing), 1);
  EXPECT_EQ(LaunchesOf({{}, {.weight_decay = 0}}, nothing), 2);
  EXPECT_EQ(LaunchesOf({{}, {}},
                       [](AdamWOptimizer& optimizer) {
                         optimizer.set_learning_rate(1, 0.5);
                       }),
            2);
  EXPECT_EQ(LaunchesOf({{}, {.learning_rate = 7}},
                       [](AdamWOptimizer& optimizer) {
                         optimizer.set_learning_rate(0.5);
                         EXPECT_EQ(optimizer.learning_rate(1), 0.5);
                       }),
            1);
}

TEST(OptimizerGroupsTest, GroupsThatDoNotExistAreErrorsAndChangeNothing) {
  OnOneRank([](LocalRank& rank) {
    OneRank one(rank);
    one.Load(1.0f);
    one.Differentiate(0.5f);
    for (int group : {-2, 2}) {
      ASSERT_OK_AND_ASSIGN(
          auto optimizer,
          SgdOptimizer::Create(one.context(),
                               {{.learning_rate = 1}, {.learning_rate = 1}},
                               [group](absl::string_view, absl::string_view p) {
                                 return p == "norm" ? group : 0;
                               }));
      const auto wants = StatusIs(
          kInvalid, absl::StrCat("optimizer: unit 'unit' parameter 'norm' is "
                                 "in group ",
                                 group, ", want one of 2"));
      EXPECT_THAT(optimizer.Step(), wants);
      EXPECT_THAT(optimizer.MakeState(), wants);
    }
    EXPECT_OK(one.context().status());
    EXPECT_EQ(one.Weight(0), 1.0f);
  });
}

// "w" and "norm" lie at 0..5 and 8..11 of a shard.
TEST(OptimizerGroupsTest, WhatIsLeftToOthersStaysAndHasNoState) {
  OnOneRank([](LocalRank& rank) {
    OneRank one(rank);
    one.Load(1.0f);
    ASSERT_OK_AND_ASSIGN(
        auto optimizer,
        AdamWOptimizer::Create(one.context(), {{.learning_rate = 0.25}},
                               [](absl::string_view, absl::string_view p) {
                                 return p == "norm" ? 0 : kNoGroup;
                               }));
    OneRank all(rank);
    all.Load(1.0f);
    EXPECT_THAT(optimizer.StateBytes(), IsOkAndHolds(2 * 3 * sizeof(float)));
    ASSERT_OK_AND_ASSIGN(
        auto whole_optimizer,
        AdamWOptimizer::Create(all.context(), {.learning_rate = 0.25}));
    for (float gradient : {0.3f, 0.7f}) {
      one.Differentiate(gradient);
      all.Differentiate(gradient);
      ASSERT_OK(optimizer.Step());
      EXPECT_EQ(one.Weight(0), 1.0f);
      EXPECT_EQ(StateBytes(rank.device), gradient == 0.3f
                                             ? 2 * 3 * sizeof(float)
                                             : 2 * (3 + 32) * sizeof(float));
      ASSERT_OK(whole_optimizer.Step());
      EXPECT_EQ(one.Weight(1), all.Weight(1));
      for (OneRank* each : {&one, &all}) {
        ASSERT_OK(each->context().ZeroGradients(ZeroGrad::kFill));
      }
    }
  });
}

TEST(OptimizerGroupsTest, RejectsHyperparametersOutOfRange) {
  OnOneRank([](LocalRank& rank) {
    OneRank one(rank);
    Context& context = one.context();
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const double inf = std::numeric_limits<double>::infinity();
    const auto sgd = [&](const SgdHyperparameters& h) {
      return SgdOptimizer::Create(context, {{}, h}, nullptr).status();
    };
    EXPECT_THAT(sgd({.momentum = -1}),
                StatusIs(kInvalid,
                         "optimizer: in group 1 momentum is -1, want "
                         "at least 0"));
    EXPECT_THAT(sgd({.weight_decay = -1}),
                StatusIs(kInvalid, HasSubstr("weight_decay is -1")));
    EXPECT_THAT(sgd({.learning_rate = nan}),
                StatusIs(kInvalid, HasSubstr("learning_rate is nan, want a "
                                             "finite number")));
    EXPECT_THAT(sgd({.dampening = inf}),
                StatusIs(kInvalid, HasSubstr("dampening is inf")));
    EXPECT_THAT(sgd({.nesterov = true}),
                StatusIs(kInvalid, HasSubstr("nesterov wants momentum and no "
                                             "dampening, found 0 and 0")));
    EXPECT_THAT(sgd({.momentum = 0.5, .dampening = 0.5, .nesterov = true}),
                StatusIs(kInvalid, HasSubstr("found 0.5 and 0.5")));
    EXPECT_THAT(SgdOptimizer::Create(context, {}, nullptr).status(),
                StatusIs(kInvalid, HasSubstr("at least one group")));

    const auto adamw = [&](const AdamWHyperparameters& h) {
      return AdamWOptimizer::Create(context, h).status();
    };
    EXPECT_THAT(adamw({.beta1 = 1}),
                StatusIs(kInvalid, HasSubstr("betas are 1 and 0.999, want less "
                                             "than 1")));
    EXPECT_THAT(adamw({.beta2 = -0.1}),
                StatusIs(kInvalid, HasSubstr("beta2 is -0.1")));
    EXPECT_THAT(adamw({.epsilon = 0}),
                StatusIs(kInvalid, HasSubstr("epsilon is 0, want at least "
                                             "1.17549e-38")));
    EXPECT_THAT(adamw({.weight_decay = nan}), StatusIs(kInvalid));
    EXPECT_OK(adamw({}));
  });
}

// As a schedule may give it that divides by 0.
TEST(OptimizerGroupsTest, LearningRatesThatAreNoNumberGiveWeightsThatAreNone) {
  OnOneRank([](LocalRank& rank) {
    OneRank one(rank);
    one.Load(1.0f);
    one.Differentiate(0.5f);
    SgdOptimizer optimizer(one.context(), 0.1);
    optimizer.set_learning_rate(std::numeric_limits<double>::quiet_NaN());
    EXPECT_OK(optimizer.Step());
    EXPECT_TRUE(std::isnan(one.Weight(0)));
    EXPECT_TRUE(std::isnan(one.Weight(1)));
  });
}

// An optimizer that is asked too early has learned nothing of units to come.
TEST(OptimizerGroupsTest, KnowsUnitsThatAreBuiltLater) {
  OnOneRank([](LocalRank& rank) {
    FsdpOptions options;
    options.mesh = *DeviceMesh::Parse("dp=1");
    options.placements = *PlacementsFor("fsdp", 1);
    const auto context =
        *Context::Create(options, rank.comms.world(), rank.stream);
    ASSERT_OK_AND_ASSIGN(auto optimizer, AdamWOptimizer::Create(
                                             *context, AdamWHyperparameters()));
    const auto is_early = StatusIs(absl::StatusCode::kFailedPrecondition,
                                   "fsdp: the context is not prepared");
    EXPECT_THAT(optimizer.MakeState(), is_early);
    EXPECT_THAT(optimizer.Step(), is_early);
    UnitBuilder builder = context->NewUnit("unit");
    builder.Add("w", *TensorMeta::Create(DType::kF32, {5}));
    ASSERT_OK(builder.Build().status());
    EXPECT_THAT(optimizer.StateBytes().status(), is_early);
    ASSERT_OK(context->Prepare());
    EXPECT_OK(optimizer.MakeState());
    EXPECT_GT(*optimizer.StateBytes(), 0);
  });
}

TEST(OptimizerShardsTest, AreThereOncePrepared) {
  OnOneRank([](LocalRank& rank) {
    FsdpOptions options;
    options.mesh = *DeviceMesh::Parse("dp=1");
    options.placements = *PlacementsFor("ddp", 1);
    const auto context =
        *Context::Create(options, rank.comms.world(), rank.stream);
    EXPECT_THAT(context->optimizer_shards().status(),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         "fsdp: the context is not prepared"));
    EXPECT_EQ(&context->compute(), &rank.stream);
    OneRank one(rank);
    ASSERT_OK_AND_ASSIGN(const auto shards, one.context().optimizer_shards());
    ASSERT_EQ(shards.size(), 1);  // nothing of what is frozen
    EXPECT_EQ(shards[0].gradient.num_elements(), 0);
  });
}

TEST(AdamWOptimizerTest, NoMemoryForStateIsAnErrorThatStays) {
  int64_t needed = 0;  // by all but the state
  OnOneRank([&](LocalRank& rank) {
    OneRank(rank).Differentiate(0.5f);
    needed = rank.device.memory().total.peak_bytes;
  });
  EXPECT_OK(RunLocalRanks(
      1,
      [](LocalRank& rank) -> absl::Status {
        OneRank one(rank);
        one.Differentiate(0.5f);
        TESSERA_ASSIGN_OR_RETURN(auto optimizer,
                                 AdamWOptimizer::Create(one.context()));
        const auto exhausted = StatusIs(absl::StatusCode::kResourceExhausted,
                                        HasSubstr("optimizer_state"));
        EXPECT_THAT(optimizer.MakeState(), exhausted);
        EXPECT_OK(one.context().status());
        EXPECT_THAT(optimizer.Step(), exhausted);
        EXPECT_THAT(one.context().status(), exhausted);
        return absl::OkStatus();
      },
      {.device = {.memory_limit_bytes = needed + 255}}));
}

}  // namespace
}  // namespace tessera

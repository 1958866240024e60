#include "tessera/fsdp/loss_scaler.h"

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/run_ranks.h"
#include "tessera/fsdp/optimizer.h"
#include "tests/fsdp/scheduled_training.h"
#include "tests/fsdp/toy_training.h"
#include "tests/sanitized.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::DefaultToyUnits;
using ::tessera::testing::kSanitized;
using ::tessera::testing::OracleHistory;
using ::tessera::testing::RunsOfAllStrategies;
using ::tessera::testing::ScheduledTraining;
using ::tessera::testing::StatusIs;
using ::tessera::testing::ToyHistory;
using ::tessera::testing::ToyRun;
using ::tessera::testing::TrainAndCompare;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr int kRanks = 4;

// Scales that change no bit.

TEST(LossScaleTest, ChangesNoBitWhereNothingOverflows) {
  for (absl::string_view strategy : StrategyNames()) {
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      ToyRun run;
      run.strategy = std::string(strategy);
      run.dtype = dtype;
      run.units = DefaultToyUnits();
      const ToyHistory unscaled = OracleHistory(run);
      run.loss_scale = dtype == DType::kF16 ? 1024.0 : 0x1p40;
      run.precision.wire_pre_scale = 0.25;
      SCOPED_TRACE(run.ToString());
      EXPECT_OK(TrainAndCompare(run, unscaled));
    }
  }
}

TEST(LossScaleTest, ChangesNoBitInAnyOrderOfStreams) {
  for (ToyRun run : RunsOfAllStrategies()) {
    run.loss_scale = 0x1p-20;
    run.precision.wire_pre_scale = 0.5;
    const ScheduledTraining training(run);
    for (uint64_t seed = 0; seed < (kSanitized ? 2 : 5); ++seed) {
      ASSERT_OK(training.Run({.seed = seed})) << training.ToString();
    }
  }
}

// One rank of four with one unit of f16 and main weights in f32, all zero.
class HalfTraining {
 public:
  HalfTraining(LocalRank& rank, absl::string_view strategy,
               double wire_pre_scale = 1.0)
      : stream_(rank.stream) {
    FsdpOptions options;
    options.mesh = *DeviceMesh::Parse("dp_outer=2,dp_inner=2");
    options.placements = *PlacementsFor(strategy, 2);
    options.precision.wire_pre_scale = wire_pre_scale;
    options.logger = Logger(nullptr, absl::LogSeverity::kError);
    context_ = *Context::Create(options, rank.comms.world(), rank.stream);
    UnitBuilder builder = context_->NewUnit("unit");
    builder.Add("w", *TensorMeta::Create(DType::kF16, {kElements}));
    unit_ = *builder.Build();
    EXPECT_OK(context_->Prepare());
  }

  Context& context() { return *context_; }

  // A backward in which every gradient is this, times the loss scale.
  void Differentiate(double gradient) {
    unit_->BeforeForward();
    unit_->AfterForward();
    unit_->BeforeBackward();
    EXPECT_OK(stream_.device().kernels().Fill(
        stream_, *unit_->grad(0, GradientWrite::kOverwrite),
        gradient * context_->loss_scale()));
    unit_->AfterBackward();
  }

  std::vector<float> Gradient() const { return Values(unit_->main_grad(0)); }
  std::vector<float> Weight() const { return Values(unit_->main_weight(0)); }

 private:
  static constexpr int64_t kElements = 256;

  // This rank's piece.
  std::vector<float> Values(const absl::StatusOr<ShardedTensor>& tensor) const {
    EXPECT_OK(tensor.status());
    EXPECT_OK(context_->Synchronize());
    const float* const values = tensor->local().as<float>();
    EXPECT_GT(tensor->local().num_elements(), 0);
    return {values, values + tensor->local().num_elements()};
  }

  Stream& stream_;
  std::unique_ptr<Context> context_;
  Unit* unit_;
};

void OnFourRanks(absl::FunctionRef<void(LocalRank&)> body) {
  EXPECT_OK(RunLocalRanks(kRanks, [&](LocalRank& rank) -> absl::Status {
    body(rank);
    return absl::OkStatus();
  }));
}

TEST(LossScaleTest, KeepsGradientsThatUnderflowInF16) {
  constexpr double kTiny = 0x1p-26;  // f16 has nothing between 2^-24 and 0
  for (absl::string_view strategy : StrategyNames()) {
    OnFourRanks([&](LocalRank& rank) {
      HalfTraining training(rank, strategy);
      training.Differentiate(kTiny);
      EXPECT_THAT(training.Gradient(), Each(0.0f));
      ASSERT_OK(training.context().ZeroGradients(ZeroGrad::kFill));
      ASSERT_OK(training.context().set_loss_scale(0x1p16));
      training.Differentiate(kTiny);
      EXPECT_THAT(training.Gradient(), Each(static_cast<float>(kTiny)));
    });
  }
}

TEST(LossScaleTest, IsReadByEachBackward) {
  OnFourRanks([](LocalRank& rank) {
    HalfTraining training(rank, "hsdp");
    for (double scale : {1.0, 256.0, 0.125}) {
      ASSERT_OK(training.context().set_loss_scale(scale));
      training.Differentiate(1.5);
    }
    EXPECT_THAT(training.Gradient(), Each(4.5f));
  });
}

TEST(LossScaleTest, IsAPowerOfTwo) {
  OnFourRanks([](LocalRank& rank) {
    HalfTraining training(rank, "ddp");
    Context& context = training.context();
    ASSERT_OK(context.set_loss_scale(8));
    for (double scale :
         {3.0, 0.0, -2.0, 0x1p65, 0x1p-65, HUGE_VAL, std::nan("")}) {
      EXPECT_THAT(
          context.set_loss_scale(scale),
          StatusIs(kInvalid, absl::StrCat("fsdp: loss scale is ", scale,
                                          ", want a power of two from 2^-64 to "
                                          "2^64")));
    }
    EXPECT_EQ(context.loss_scale(), 8);
    EXPECT_OK(context.set_loss_scale(0x1p64));
    EXPECT_OK(context.set_loss_scale(0x1p-64));
  });
}

// The scale of gradients on the wire.

TEST(WirePreScaleTest, KeepsSumsThatOverflowInF16) {
  constexpr double kLarge = 40960;  // twice that is infinite
  OnFourRanks([](LocalRank& rank) {
    for (double pre_scale : {1.0, 0.25}) {
      HalfTraining training(rank, "fsdp", pre_scale);
      training.Differentiate(kLarge);
      EXPECT_THAT(training.Gradient(),
                  Each(pre_scale == 1 ? HUGE_VALF : kLarge));
    }
  });
}

// Halves of it would be none.
TEST(WirePreScaleTest, IsNotLookedAtWhereNothingIsReducedOnTheWire) {
  constexpr double kLeast = 0x1p-24;
  OnFourRanks([](LocalRank& rank) {
    for (const char* strategy : {"ddp", "zero1", "zero2", "fsdp"}) {
      HalfTraining training(rank, strategy, 0x1p-2);
      training.Differentiate(kLeast);
      const bool reduces = PlacementsFor(strategy, 2)->gradient[0].is_flat();
      EXPECT_THAT(training.Gradient(),
                  Each(reduces ? 0 : static_cast<float>(kLeast)))
          << strategy;
    }
  });
}

TEST(WirePreScaleTest, IsAPowerOfTwo) {
  OnFourRanks([](LocalRank& rank) {
    FsdpOptions options;
    options.mesh = *DeviceMesh::Parse("dp=4");
    options.placements = *PlacementsFor("fsdp", 1);
    const auto context =
        *Context::Create(options, rank.comms.world(), rank.stream);
    for (double pre_scale : {3.0, 0.0, -1.0, 0x1p25, std::nan("")}) {
      UnitOptions unit;
      unit.precision = Precision{.wire_pre_scale = pre_scale};
      UnitBuilder builder = context->NewUnit("unit", unit);
      builder.Add("w", *TensorMeta::Create(DType::kF16, {8}));
      EXPECT_THAT(
          builder.Build().status(),
          StatusIs(kInvalid, HasSubstr(absl::StrCat(
                                 "unit 'unit': wire_pre_scale is ", pre_scale,
                                 ", want a power of two from 2^-24 to 2^24"))));
    }
  });
}

TEST(WirePreScaleTest, RanksHaveToAgree) {
  EXPECT_OK(RunLocalRanks(2, [](LocalRank& rank) -> absl::Status {
    FsdpOptions options;
    options.mesh = *DeviceMesh::Parse("dp=2");
    options.placements = *PlacementsFor("fsdp", 1);
    options.precision.wire_pre_scale = rank.rank == 0 ? 0.5 : 0.25;
    options.logger = Logger(nullptr, absl::LogSeverity::kFatal);
    TESSERA_ASSIGN_OR_RETURN(
        const auto context,
        Context::Create(options, rank.comms.world(), rank.stream));
    UnitBuilder builder = context->NewUnit("unit");
    builder.Add("w", *TensorMeta::Create(DType::kF16, {8}));
    TESSERA_RETURN_IF_ERROR(builder.Build().status());
    EXPECT_THAT(context->Prepare(),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("wire=f16*0.5")));
    return absl::OkStatus();
  }));
}

// The scaler.

TEST(LossScalerTest, OverflowOnOneRankSkipsTheStepOnAll) {
  for (absl::string_view strategy : StrategyNames()) {
    OnFourRanks([&](LocalRank& rank) {
      HalfTraining training(rank, strategy);
      Context& context = training.context();
      ASSERT_OK_AND_ASSIGN(
          LossScaler scaler,
          LossScaler::Create(context, {.initial_scale = 1024}));
      ASSERT_OK_AND_ASSIGN(GradientNorm norm, GradientNorm::Create(context));
      SgdOptimizer optimizer(context, 0.5);
      std::vector<bool> stepped;
      std::vector<float> weights;
      // 128 times 1024 is infinite in f16, half of it, unsummed, is not.
      for (double largest : {1.0, 128.0, 1.0}) {
        training.Differentiate(rank.rank == 2 ? largest : 1.0);
        ASSERT_OK(norm.Clip(1e9));
        ASSERT_OK_AND_ASSIGN(const bool is_finite, scaler.Update(norm));
        stepped.push_back(is_finite);
        if (is_finite) {
          ASSERT_OK(optimizer.Step());
        }
        ASSERT_OK(context.ZeroGradients(ZeroGrad::kFill));
        const std::vector<float> now = training.Weight();
        EXPECT_THAT(now, Each(now[0]));
        weights.push_back(now[0]);
      }
      EXPECT_THAT(stepped, ElementsAre(true, false, true));
      EXPECT_THAT(weights, ElementsAre(-0.5f, -0.5f, -1.0f));
      EXPECT_EQ(scaler.scale(), 512);
    });
  }
}

// Scales after steps on one rank that are finite ('.') or not ('x').
std::vector<double> ScalesAfter(const std::string& steps,
                                const LossScalerOptions& options) {
  std::vector<double> scales;
  EXPECT_OK(RunLocalRanks(1, [&](LocalRank& rank) -> absl::Status {
    FsdpOptions fsdp;
    fsdp.mesh = *DeviceMesh::Parse("dp=1");
    fsdp.placements = *PlacementsFor("ddp", 1);
    TESSERA_ASSIGN_OR_RETURN(
        const auto context,
        Context::Create(fsdp, rank.comms.world(), rank.stream));
    UnitBuilder builder = context->NewUnit("unit");
    builder.Add("w", *TensorMeta::Create(DType::kF32, {8}));
    TESSERA_ASSIGN_OR_RETURN(Unit * unit, builder.Build());
    TESSERA_RETURN_IF_ERROR(context->Prepare());
    TESSERA_ASSIGN_OR_RETURN(GradientNorm norm, GradientNorm::Create(*context));
    TESSERA_ASSIGN_OR_RETURN(LossScaler scaler,
                             LossScaler::Create(*context, options));
    EXPECT_THAT(scaler.Update(norm).status(),
                StatusIs(absl::StatusCode::kFailedPrecondition));
    for (char step : steps) {
      unit->BeforeForward();
      unit->AfterForward();
      unit->BeforeBackward();
      TESSERA_ASSIGN_OR_RETURN(const TensorView gradient,
                               unit->grad(0, GradientWrite::kOverwrite));
      TESSERA_RETURN_IF_ERROR(rank.device.kernels().Fill(
          rank.stream, gradient, step == 'x' ? HUGE_VAL : 1.0));
      unit->AfterBackward();
      TESSERA_RETURN_IF_ERROR(norm.Compute());
      TESSERA_ASSIGN_OR_RETURN(const bool is_finite, scaler.Update(norm));
      EXPECT_EQ(is_finite, step == '.');
      if (!is_finite) {
        EXPECT_EQ(scaler.finite_steps(), 0);
      }
      scales.push_back(scaler.scale());
      TESSERA_RETURN_IF_ERROR(context->ZeroGradients(ZeroGrad::kFill));
    }
    return absl::OkStatus();
  }));
  return scales;
}

TEST(LossScalerTest, GrowsAfterFiniteStepsInARowAndBacksOff) {
  EXPECT_THAT(
      ScalesAfter("....x..x...", {.initial_scale = 16, .growth_interval = 3}),
      ElementsAre(16, 16, 32, 32, 16, 16, 16, 8, 8, 8, 16));
  EXPECT_THAT(ScalesAfter("..xx", {.initial_scale = 1,
                                   .growth_factor = 4,
                                   .backoff_factor = 0.125,
                                   .growth_interval = 1}),
              ElementsAre(4, 16, 2, 0.25));
}

TEST(LossScalerTest, GoesOnWhereItWasStopped) {
  const LossScalerOptions whole = {.initial_scale = 16, .growth_interval = 3};
  const std::vector<double> scales = ScalesAfter("..x.....", whole);
  LossScalerOptions rest = whole;
  rest.initial_scale = scales[4];
  rest.finite_steps = 2;
  EXPECT_THAT(ScalesAfter("...", rest),
              ElementsAre(scales[5], scales[6], scales[7]));
}

TEST(LossScalerTest, StaysInRange) {
  EXPECT_THAT(
      ScalesAfter("..", {.initial_scale = 0x1p63, .growth_interval = 1}),
      ElementsAre(0x1p64, 0x1p64));
  EXPECT_THAT(ScalesAfter("xx", {.initial_scale = 0x1p-63}),
              ElementsAre(0x1p-64, 0x1p-64));
}

TEST(LossScalerTest, RejectsOptionsOutOfRange) {
  OnFourRanks([](LocalRank& rank) {
    HalfTraining training(rank, "ddp");
    const auto create = [&](const LossScalerOptions& options) {
      return LossScaler::Create(training.context(), options).status();
    };
    EXPECT_THAT(create({.initial_scale = 3}),
                StatusIs(kInvalid, HasSubstr("loss scale is 3")));
    EXPECT_THAT(create({.growth_factor = 1.5}),
                StatusIs(kInvalid,
                         HasSubstr("fsdp: loss scaler: growth_factor is 1.5")));
    EXPECT_THAT(create({.backoff_factor = 0}),
                StatusIs(kInvalid, HasSubstr("backoff_factor is 0")));
    EXPECT_THAT(create({.growth_factor = 1}),
                StatusIs(kInvalid, HasSubstr("growth_factor is 1 and "
                                             "backoff_factor 0.5, want")));
    EXPECT_THAT(create({.backoff_factor = 1}), StatusIs(kInvalid));
    EXPECT_THAT(create({.growth_interval = 0}),
                StatusIs(kInvalid, HasSubstr("growth_interval is 0")));
    EXPECT_THAT(create({.growth_interval = 3, .finite_steps = 3}),
                StatusIs(kInvalid, HasSubstr("finite_steps is 3, want")));
    EXPECT_THAT(create({.finite_steps = -1}), StatusIs(kInvalid));
    EXPECT_EQ(training.context().loss_scale(), 1);
    EXPECT_OK(create({}));
    EXPECT_EQ(training.context().loss_scale(), 65536);
  });
}

}  // namespace
}  // namespace tessera

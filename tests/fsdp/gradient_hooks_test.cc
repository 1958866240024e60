// What a trainer may do to gradients before and after finalization.

#include <barrier>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/run_ranks.h"
#include "tests/cpu_streams.h"
#include "tests/fsdp/scheduled_training.h"
#include "tests/fsdp/toy_training.h"
#include "tests/sanitized.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::BothStreams;
using ::tessera::testing::DefaultToyUnits;
using ::tessera::testing::kSanitized;
using ::tessera::testing::OracleHistory;
using ::tessera::testing::RunsOfAllStrategies;
using ::tessera::testing::ScheduledTraining;
using ::tessera::testing::StatusIs;
using ::tessera::testing::StreamsName;
using ::tessera::testing::ToyHistory;
using ::tessera::testing::ToyRank;
using ::tessera::testing::ToyRun;
using ::tessera::testing::TrainAndCompare;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Multiplies all gradients.
GradientHook ScaleBy(double factor) {
  return [factor](const Unit&, absl::Span<const RestingGradient> gradients,
                  Stream& stream) -> absl::Status {
    for (const RestingGradient& resting : gradients) {
      TESSERA_RETURN_IF_ERROR(stream.device().kernels().Scale(
          stream, resting.gradient.local(), factor));
    }
    return absl::OkStatus();
  };
}

// Two hooks that undo each other.
ToyRun WithHooks(ToyRun run) {
  run.gradient_hooks = {.before_finalize = ScaleBy(4),
                        .after_finalize = ScaleBy(0.25)};
  return run;
}

TEST(GradientHooksTest, ChangeWhatIsFinalizedAndWhatIsFinal) {
  for (const ToyRun& run : RunsOfAllStrategies()) {
    const ToyHistory unhooked = OracleHistory(run);
    EXPECT_OK(TrainAndCompare(WithHooks(run), unhooked)) << run.ToString();
    ToyRun halved = run;
    halved.gradient_hooks.after_finalize = ScaleBy(0.5);
    ToyRun divided = run;
    divided.grad_divisor = 2;
    EXPECT_OK(TrainAndCompare(halved, OracleHistory(divided)))
        << run.ToString();
  }
}

TEST(GradientHooksTest, NeedNoWaitsOfTheirOwn) {
  for (const ToyRun& run : RunsOfAllStrategies()) {
    const ScheduledTraining training(WithHooks(run));
    for (uint64_t seed = 0; seed < (kSanitized ? 2 : 5); ++seed) {
      ASSERT_OK(training.Run({.seed = seed})) << training.ToString();
    }
  }
}

// Both are called once a step, with what rests where.
TEST(GradientHooksTest, SeeGradientsAsTheyRest) {
  ToyRun run;
  run.strategy = "hsdp";
  run.units = {{"unit", -1, {{"a", {8}}, {"b", {3, 2}}}}};
  const ToyHistory history = OracleHistory(run);
  EXPECT_OK(RunLocalRanks(4, [&](LocalRank& rank) -> absl::Status {
    std::vector<std::string> seen;
    const auto hook_of = [&seen](const std::string& name) {
      return [&seen, name](const Unit& unit,
                           absl::Span<const RestingGradient> gradients,
                           Stream& stream) {
        for (const auto& [parameter, gradient] : gradients) {
          seen.push_back(absl::StrCat(
              name, " ", unit.parameter_name(parameter), " ",
              gradient.layout().placement(0).ToString(), " ", stream.name()));
        }
        return absl::OkStatus();
      };
    };
    ToyRun hooked = run;
    hooked.gradient_hooks = {.before_finalize = hook_of("before"),
                             .after_finalize = hook_of("after")};
    TESSERA_ASSIGN_OR_RETURN(const auto toy,
                             ToyRank::Create(hooked, rank.comms, rank.stream));
    TESSERA_RETURN_IF_ERROR(toy->TrainStep(0, history.weights[0]));
    EXPECT_THAT(seen, ElementsAre("before a P(sum) finalize",
                                  "before b P(sum) finalize",
                                  "after a R finalize", "after b R finalize"));
    return absl::OkStatus();
  }));
}

TEST(GradientHooksTest, FrozenParametersHaveNothingToHook) {
  EXPECT_OK(RunLocalRanks(1, [](LocalRank& rank) -> absl::Status {
    FsdpOptions options;
    options.mesh = *DeviceMesh::Parse("dp=1");
    options.placements = *PlacementsFor("ddp", 1);
    TESSERA_ASSIGN_OR_RETURN(
        const auto context,
        Context::Create(options, rank.comms.world(), rank.stream));
    std::vector<ParameterId> seen;
    UnitOptions hooked;
    hooked.gradient_hooks.after_finalize =
        [&seen](const Unit&, absl::Span<const RestingGradient> gradients,
                Stream&) {
          for (const auto& resting : gradients) {
            seen.push_back(resting.parameter);
          }
          return absl::OkStatus();
        };
    UnitBuilder builder = context->NewUnit("unit", hooked);
    const TensorMeta meta = *TensorMeta::Create(DType::kF32, {8});
    builder.Add("frozen", meta, {.requires_grad = false});
    builder.Add("w", meta);
    TESSERA_ASSIGN_OR_RETURN(Unit * unit, builder.Build());
    TESSERA_RETURN_IF_ERROR(context->Prepare());
    unit->BeforeForward();
    unit->AfterForward();
    unit->BeforeBackward();
    unit->AfterBackward();
    EXPECT_THAT(seen, ElementsAre(1));
    return context->status();
  }));
}

// FSDP, with one microbatch.
ToyRun OneBackwardOn(const std::string& mesh) {
  ToyRun run;
  run.mesh = mesh;
  run.strategy = "fsdp";
  run.microbatches = 1;
  run.units = DefaultToyUnits();
  return run;
}

TEST(GradientHooksTest, ErrorsStayAndNameUnitAndHook) {
  const ToyRun run = OneBackwardOn("dp=1");
  const ToyHistory history = OracleHistory(run);
  const GradientHook fail = [](const Unit&, absl::Span<const RestingGradient>,
                               Stream&) { return absl::DataLossError("lost"); };
  for (const std::string hook : {"before_finalize", "after_finalize"}) {
    ToyRun failing = run;
    (hook == "before_finalize" ? failing.gradient_hooks.before_finalize
                               : failing.gradient_hooks.after_finalize) = fail;
    EXPECT_OK(RunLocalRanks(1, [&](LocalRank& rank) -> absl::Status {
      TESSERA_ASSIGN_OR_RETURN(
          const auto toy, ToyRank::Create(failing, rank.comms, rank.stream));
      TESSERA_RETURN_IF_ERROR(toy->Forward(history.weights[0]));
      const auto lost = StatusIs(
          absl::StatusCode::kDataLoss,
          absl::StrCat("fsdp: unit 'block1' AfterBackward: ", hook, ": lost"));
      EXPECT_FALSE(toy->Backward(0, 0, true).ok());
      EXPECT_THAT(toy->context().status(), lost);
      return absl::OkStatus();
    }));
  }
}

class FailingGradientHook : public ::testing::TestWithParam<CpuStreams> {};

INSTANTIATE_TEST_SUITE_P(Streams, FailingGradientHook, BothStreams(),
                         StreamsName);

// Nobody leaves before all have ended: the others can only hear of it by an
// abort.
TEST_P(FailingGradientHook, EndsTheBackwardOfTheOthers) {
  const ToyRun run = OneBackwardOn("dp=3");
  const ToyHistory history = OracleHistory(run);
  const auto train = [&](LocalRank& rank) -> absl::Status {
    ToyRun own = run;
    own.gradient_hooks.after_finalize = [&](const Unit&,
                                            absl::Span<const RestingGradient>,
                                            Stream&) {
      return rank.rank == 1 ? absl::DataLossError("lost") : absl::OkStatus();
    };
    TESSERA_ASSIGN_OR_RETURN(const auto toy,
                             ToyRank::Create(own, rank.comms, rank.stream));
    TESSERA_RETURN_IF_ERROR(toy->Forward(history.weights[0]));
    TESSERA_RETURN_IF_ERROR(toy->Backward(0, 0, true));
    return toy->context().Synchronize();
  };
  LocalRunOptions options;
  options.device.streams = GetParam();
  options.world.timeout = std::chrono::seconds(100);
  std::barrier all(3);
  // The streams that fail are the ranks' own, and so is what this returns.
  (void)RunLocalRanks(
      3,
      [&](LocalRank& rank) -> absl::Status {
        EXPECT_THAT(train(rank),
                    StatusIs(rank.rank == 1 ? absl::StatusCode::kDataLoss
                                            : absl::StatusCode::kAborted,
                             HasSubstr("after_finalize: lost")));
        all.arrive_and_wait();
        return absl::OkStatus();
      },
      options);
}

}  // namespace
}  // namespace tessera

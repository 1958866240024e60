// FSDP on emulated GPUs.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/fsdp/context.h"
#include "tessera/fsdp/placements.h"
#include "tests/emulation/launch_work.h"
#include "tests/emulation/machine.h"
#include "tests/emulation/nccl_network.h"
#include "tests/emulation/run_as_scheduled.h"
#include "tests/emulation/run_emulated_ranks.h"
#include "tests/fsdp/scheduled_training.h"
#include "tests/gpu/captured_steps.h"
#include "tests/sanitized.h"
#include "tests/status_matchers.h"

namespace tessera::emulation {
namespace {

using ::testing::HasSubstr;
using testing::ScheduledTraining;
using testing::ToyRun;
using testing::TrainingOptions;

// What the trainer computes reads and writes the GPU's memory.
std::vector<ToyRun> RunsOnGpus() {
  std::vector<ToyRun> runs = testing::RunsOfAllStrategies();
  for (ToyRun& run : runs) run.launch = LaunchWork;
  return runs;
}

TEST(EmulatedFsdpTest, AllStrategiesHaveTheBitsOfTheOracleInAnyOrder) {
  uint64_t seed = 0;
  for (const ToyRun& run : RunsOnGpus()) {
    if (testing::kSanitized && run.zero_grad == ZeroGrad::kFill) continue;
    for (const TrainingOptions& options :
         {TrainingOptions{}, TrainingOptions{.finalizes_often = true},
          TrainingOptions{.skips_units = true}}) {
      const ScheduledTraining training(run, options);
      EXPECT_OK(training.Run({.seed = seed++}, nullptr, RunAsScheduled))
          << training.ToString();
    }
  }
}

TEST(EmulatedFsdpTest, TrainsInBf16WithMainWeightsInF32) {
  for (ToyRun run : RunsOnGpus()) {
    if (testing::kSanitized && run.strategy != "hfsdp") continue;
    run.dtype = DType::kBF16;
    run.optimizer = testing::ToyOptimizer::kAdamW;
    const ScheduledTraining training(run);
    EXPECT_OK(training.Run({.seed = 1}, nullptr, RunAsScheduled))
        << training.ToString();
  }
}

// Those of NCCL's streams and staging included.
TEST(EmulatedFsdpTest, EveryWaitOfAStepIsMissed) {
  ToyRun run;
  run.steps = 2;
  run.microbatches = 2;
  run.units = testing::DefaultToyUnits();
  run.launch = LaunchWork;
  const ScheduledTraining training(run, {.skips_units = true});
  testing::ScheduledReport report;
  ASSERT_OK(training.Run({}, &report, RunAsScheduled));
  const std::vector<testing::StreamWait>& waits = report.waits[0];
  int missed = 0;
  for (size_t call = 0; call < waits.size(); ++call) {
    const testing::StreamWait& wait = waits[call];
    if (wait.redundant) continue;
    ++missed;
    if (testing::kSanitized && missed % 8 != 0) continue;
    EXPECT_THAT(training.Run({.drop_wait = {{0, static_cast<int64_t>(call)}}},
                             nullptr, RunAsScheduled),
                testing::StatusIs(absl::StatusCode::kFailedPrecondition,
                                  HasSubstr("not ordered after")))
        << wait.stream << " waits for " << wait.recorded_on << " between "
        << wait.before << " and " << wait.after;
  }
  EXPECT_GT(missed, 10);
}

// One rank: nothing that is captured waits for another one.
TEST(EmulatedFsdpTest, AGraphTrainsAsStepsDo) {
  for (uint64_t seed = 0; seed < 3; ++seed) {
    EXPECT_OK(RunEmulatedRanks(1,
                               [](EmulatedRank& rank) {
                                 return testing::CheckCapturedSteps(
                                     rank.comms.world());
                               },
                               {.gpus = {.seed = seed}}));
  }
}

// All ranks of the mesh make the groups of a context at the same time.
TEST(EmulatedFsdpTest, GroupsOfAContextNeedNoId) {
  EXPECT_OK(RunEmulatedRanks(4, [](EmulatedRank& rank) -> absl::Status {
    FsdpOptions options;
    TESSERA_ASSIGN_OR_RETURN(options.mesh,
                             DeviceMesh::Parse("dp_outer=2,dp_inner=2"));
    TESSERA_ASSIGN_OR_RETURN(options.placements, PlacementsFor("hsdp", 2));
    TESSERA_ASSIGN_OR_RETURN(
        const auto context,
        Context::Create(options, rank.comms.world(), rank.stream));
    UnitBuilder builder = context->NewUnit("block");
    TESSERA_ASSIGN_OR_RETURN(const TensorMeta meta,
                             TensorMeta::Parse("f32[4,2]"));
    builder.Add("weight", meta);
    TESSERA_RETURN_IF_ERROR(builder.Build().status());
    TESSERA_RETURN_IF_ERROR(context->Prepare());
    EXPECT_GT(Machine::current()->nccl().num_splits(), 0);
    EXPECT_EQ(Machine::current()->nccl().num_ids(), 0);
    return absl::OkStatus();
  }));
}

}  // namespace
}  // namespace tessera::emulation

// Whether the race detector notices when a wait of the runtime is missing: each
// is taken out in turn, unless other order implies it.

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/scheduled_training.h"
#include "tests/sanitized.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::DefaultToyUnits;
using ::tessera::testing::kSanitized;
using ::tessera::testing::RunsOfAllStrategies;
using ::tessera::testing::ScheduledReport;
using ::tessera::testing::ScheduledTraining;
using ::tessera::testing::StatusIs;
using ::tessera::testing::StreamWait;
using ::tessera::testing::ToyRun;
using ::testing::HasSubstr;

// What the waits of a step are for, by the stream that waits and the one that
// it waits for.
constexpr char kGradientsAreWritten[] = "reduce <- compute";
constexpr char kSlotIsReduced[] = "compute <- reduce";
constexpr char kGradientsAreAccumulated[] = "finalize <- reduce";
constexpr char kGradientsAreFinal[] = "compute <- finalize";
constexpr char kWeightsAreGathered[] = "compute <- gather";
// And weights are updated.
constexpr char kSlotIsReadNoMore[] = "gather <- compute";
// Where final gradients are added to.
constexpr char kGradientsMayReopen[] = "reduce <- finalize";

std::set<std::string> KindsOf(const ToyRun& run, bool finalizes_often) {
  std::set<std::string> kinds = {kGradientsAreWritten, kSlotIsReduced,
                                 kGradientsAreAccumulated, kGradientsAreFinal};
  const UnitPlacements placements = run.Placements();
  if (placements.parameter.back().is_flat()) {
    kinds.insert({kWeightsAreGathered, kSlotIsReadNoMore});
  }
  // Else there is nothing to finalize, and nothing to undo.
  if (finalizes_often && placements.gradient != placements.optimizer) {
    kinds.insert(kGradientsMayReopen);
  }
  return kinds;
}

// The kinds of those that were taken out and missed.
std::set<std::string> MissedWaits(const ScheduledTraining& training) {
  ScheduledReport report;
  EXPECT_OK(training.Run({}, &report));
  // It holds elements of every unit, for the optimizer to read.
  constexpr int kRank = 0;
  const std::vector<StreamWait>& waits = report.waits[kRank];
  std::set<std::string> missed;
  for (size_t call = 0; call < waits.size(); ++call) {
    const StreamWait& wait = waits[call];
    if (wait.redundant) continue;
    missed.insert(absl::StrCat(wait.stream, " <- ", wait.recorded_on));
    EXPECT_THAT(
        training.Run({.drop_wait = {{kRank, static_cast<int64_t>(call)}}}),
        StatusIs(absl::StatusCode::kFailedPrecondition,
                 HasSubstr("not ordered after")))
        << wait.stream << " waits for " << wait.recorded_on << " between "
        << wait.before << " and " << wait.after;
  }
  return missed;
}

TEST(ForgottenWaitsTest, EveryWaitOfAStepIsMissed) {
  for (const ToyRun& run : RunsOfAllStrategies()) {
    if (kSanitized && run.strategy != "hsdp") continue;
    // Release goes with one, fill with the other.
    const bool finalizes_often = run.zero_grad == ZeroGrad::kFill;
    const ScheduledTraining training(
        run, {.finalizes_often = finalizes_often, .skips_units = true});
    SCOPED_TRACE(training.ToString());
    EXPECT_EQ(MissedWaits(training), KindsOf(run, finalizes_often));
  }
}

TEST(ForgottenWaitsTest, EveryWaitIsMissedHoweverFarCommunicationRunsAhead) {
  for (const OverlapOptions& overlap :
       {OverlapOptions{.prefetch = 0, .gradients_in_flight = 1},
        OverlapOptions{.prefetch = 2, .gradients_in_flight = 3},
        OverlapOptions{.streams = CommunicationStreams::kShared}}) {
    ToyRun run;
    run.steps = 2;
    run.overlap = overlap;
    run.units = DefaultToyUnits();
    const ScheduledTraining training(run, {.skips_units = true});
    SCOPED_TRACE(training.ToString());
    const bool shared = overlap.streams == CommunicationStreams::kShared;
    EXPECT_EQ(MissedWaits(training),
              shared ? std::set<std::string>(
                           {"communicate <- compute", "compute <- communicate"})
                     : KindsOf(run, /*finalizes_often=*/false));
    if (kSanitized) return;
  }
}

}  // namespace
}  // namespace tessera

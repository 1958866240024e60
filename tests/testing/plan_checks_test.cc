#include "tessera/testing/plan_checks.h"

#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/mesh/topology.h"
#include "tessera/redistribute/planner.h"
#include "tessera/testing/matchers.h"
#include "tests/status_matchers.h"

namespace tessera::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Lt;
using ::testing::Not;

// [P(sum), S(0)] -RS(dp)-> [S(1), S(0)] -AG(tp)-> [S(1), R].
// Received: 48 bytes, then 96; held before and after: 192.
Plan TwoSteps() {
  const Layout source = Layout::Parse("f32[8,12] [P, S(0)]",
                                      DeviceMesh::Parse("dp=2,tp=2").value())
                            .value();
  Step scatter;
  scatter.kind = StepKind::kReduceScatter;
  scatter.axes = {0};
  scatter.before = source;
  scatter.after = source.With("[S(1), S(0)]").value();
  scatter.bytes_received = 96;
  scatter.messages = 1;
  Step gather;
  gather.kind = StepKind::kAllGather;
  gather.axes = {1};
  gather.before = scatter.after;
  gather.after = source.With("[S(1), R]").value();
  gather.bytes_received = 96;
  gather.messages = 1;
  return Plan(source, gather.after, {scatter, gather});
}

// The same, but for a figure that is wrong.
Plan WrongPlan() {
  const Plan right = TwoSteps();
  std::vector<Step> steps(right.steps().begin(), right.steps().end());
  steps[1].bytes_received = 95;
  return Plan(right.source(), right.target(), steps);
}

Plan PlanOnUnit(const std::string& mesh, const std::string& source,
                const std::string& target) {
  const Layout from =
      Layout::Parse(source, DeviceMesh::Parse(mesh).value()).value();
  return MakePlan(from, from.With(target).value(), Topology::Unit()).value();
}

// An error that shows the plan.
auto Fails(const std::string& message) {
  return StatusIs(
      absl::StatusCode::kFailedPrecondition,
      AllOf(HasSubstr("testing: want " + message),
            HasSubstr("  [P(sum), S(0)] -RS(dp)-> [S(1), S(0)] -AG(tp)-> "),
            HasSubstr("\n  all_gather ")));
}

TEST(PlanChecksTest, TellRightPlansFromWrongOnes) {
  EXPECT_OK(CheckVerified(TwoSteps()));
  EXPECT_THAT(CheckVerified(WrongPlan()),
              Fails("a plan that is right, found verify: step 2"));
}

TEST(PlanChecksTest, CompareTheStepLine) {
  EXPECT_OK(CheckSteps(TwoSteps(), "RS(dp) AG(tp)"));
  EXPECT_OK(CheckSteps(PlanOnUnit("x=2", "f32[4] [R]", "[R]"), ""));
  for (const char* line : {"", "RS(dp)", "AG(tp) RS(dp)", "RS(dp)  AG(tp)"}) {
    EXPECT_THAT(CheckSteps(TwoSteps(), line),
                Fails(std::string("steps \"") + line +
                      "\", found \"RS(dp) AG(tp)\" in\n"));
  }
}

TEST(PlanChecksTest, CompareFiguresWithTheirBounds) {
  EXPECT_OK(CheckBytesAtMost(TwoSteps(), 192));
  EXPECT_THAT(CheckBytesAtMost(TwoSteps(), 191),
              Fails("at most 191 bytes received, found 192"));
  const int64_t peak = TwoSteps().peak_bytes();
  EXPECT_OK(CheckPeakBelow(TwoSteps(), peak + 1));
  EXPECT_THAT(CheckPeakBelow(TwoSteps(), peak), Fails("a peak below "));
  EXPECT_OK(CheckLaunchesAtMost(TwoSteps(), 2));
  EXPECT_THAT(CheckLaunchesAtMost(TwoSteps(), 1),
              Fails("at most 1 launches, found 2"));
}

TEST(PlanChecksTest, FindGathersAlongAnAxis) {
  EXPECT_OK(CheckNeverGathers(TwoSteps(), "dp"));
  EXPECT_THAT(CheckNeverGathers(TwoSteps(), "tp"),
              Fails("no step that gathers along 'tp', found AG(tp) to "
                    "[S(1), R]"));
  // A typing error is not a plan that never gathers.
  EXPECT_THAT(CheckNeverGathers(TwoSteps(), "pt"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'pt'")));
}

TEST(PlanChecksTest, FindGathersOfEveryKind) {
  // By exchange, of several axes at once, of ragged cuts.
  EXPECT_THAT(
      CheckNeverGathers(
          PlanOnUnit("x=2,y=2", "f32[4,6] [S(0), S(1)]", "[R, R]"), "y"),
      Not(IsOk()));
  EXPECT_THAT(
      CheckNeverGathers(
          PlanOnUnit("x=2,y=2", "f32[4,6] [S(0), S(0)]", "[R, R]"), "x"),
      Not(IsOk()));
  EXPECT_THAT(CheckNeverGathers(
                  PlanOnUnit("x=2", "f32[4] [Ragged(0,1,4)]", "[R]"), "x"),
              Not(IsOk()));
  // Neither reductions nor moved shards are gathers.
  EXPECT_OK(
      CheckNeverGathers(PlanOnUnit("x=2", "f32[4,6] [P(sum)]", "[R]"), "x"));
  EXPECT_OK(
      CheckNeverGathers(PlanOnUnit("x=2", "f32[4,6] [S(0)]", "[S(1)]"), "x"));
}

// On another mesh the axis of the same name counts.
TEST(PlanChecksTest, FollowAxesToAnotherMesh) {
  const auto crossing = [](const char* mesh) {
    Step step;
    step.kind = StepKind::kExchange;
    step.axes = {0};
    step.before =
        Layout::Parse("f32[4] [S(0)]", DeviceMesh::Parse("x=2").value())
            .value();
    step.after =
        Layout::Parse("f32[4] [R]", DeviceMesh::Parse(mesh).value()).value();
    return Plan(step.before, step.after, {step});
  };
  EXPECT_THAT(CheckNeverGathers(crossing("x=2@2"), "x"), Not(IsOk()));
  EXPECT_OK(CheckNeverGathers(crossing("y=2@2"), "x"));
}

// --- Matchers ---------------------------------------------------------------

// What a failed EXPECT_THAT(plan, matcher) would print.
template <typename Matcher>
std::string FailureOf(const Plan& plan, const Matcher& matcher) {
  const ::testing::Matcher<const Plan&> typed(matcher);
  ::testing::StringMatchResultListener listener;
  if (typed.MatchAndExplain(plan, &listener)) return "it matches";
  std::ostringstream text;
  text << "Expected: ";
  typed.DescribeTo(&text);
  text << "\n  Actual: " << ::testing::PrintToString(plan) << ", "
       << listener.str();
  return text.str();
}

constexpr char kPlanInFull[] =
    "  [P(sum), S(0)] -RS(dp)-> [S(1), S(0)] -AG(tp)-> [S(1), R]\n  step";

TEST(PlanMatchersTest, MatchWhatTheySay) {
  const Plan plan = TwoSteps();
  EXPECT_THAT(plan, IsVerified());
  EXPECT_THAT(plan, StepsAre("RS(dp) AG(tp)"));
  EXPECT_THAT(plan, Sends(192));
  EXPECT_THAT(plan, Sends(AtMost(192)));
  EXPECT_THAT(plan, Sends(AllOf(AtMost(int64_t{1} << 40), Not(Lt(192)))));
  EXPECT_THAT(plan, PeaksBelow(plan.peak_bytes() + 1));
  EXPECT_THAT(plan, Launches(2));
  EXPECT_THAT(plan, Launches(AtMost(2)));
  EXPECT_THAT(plan, NeverGathers("dp"));
  const absl::StatusOr<Plan> result = plan;
  EXPECT_THAT(result, IsOkAndHolds(AllOf(IsVerified(), Launches(2))));
}

TEST(PlanMatchersTest, DoNotMatchAnythingElse) {
  const Plan plan = TwoSteps();
  EXPECT_THAT(WrongPlan(), Not(IsVerified()));
  EXPECT_THAT(plan, Not(StepsAre("RS(dp)")));
  EXPECT_THAT(plan, Not(StepsAre("")));
  EXPECT_THAT(plan, Not(Sends(191)));
  EXPECT_THAT(plan, Not(Sends(AtMost(191))));
  EXPECT_THAT(plan, Not(PeaksBelow(plan.peak_bytes())));
  EXPECT_THAT(plan, Not(Launches(1)));
  EXPECT_THAT(plan, Not(Launches(AtMost(1))));
  EXPECT_THAT(plan, Not(NeverGathers("tp")));
  EXPECT_THAT(plan, Not(NeverGathers("no_such_axis")));
}

TEST(PlanMatchersTest, FailuresSayWhatWasWantedAndPrintThePlan) {
  const Plan plan = TwoSteps();
  EXPECT_THAT(FailureOf(WrongPlan(), IsVerified()),
              AllOf(HasSubstr("Expected: is proved right"), HasSubstr("step 2"),
                    HasSubstr(kPlanInFull)));
  EXPECT_THAT(
      FailureOf(plan, StepsAre("RS(dp)")),
      AllOf(HasSubstr("Expected: has steps \"RS(dp)\""),
            HasSubstr("found \"RS(dp) AG(tp)\""), HasSubstr(kPlanInFull)));
  EXPECT_THAT(FailureOf(plan, Sends(AtMost(191))),
              AllOf(HasSubstr("Expected: sends bytes, whose number is <= 191"),
                    HasSubstr("which is 192 in\n"), HasSubstr(kPlanInFull)));
  EXPECT_THAT(FailureOf(plan, PeaksBelow(1)),
              AllOf(HasSubstr("Expected: peaks below 1 bytes"),
                    HasSubstr(kPlanInFull)));
  EXPECT_THAT(FailureOf(plan, Launches(AtMost(1))),
              AllOf(HasSubstr("Expected: launches steps, whose number is <= 1"),
                    HasSubstr("which is 2 in\n"), HasSubstr(kPlanInFull)));
  EXPECT_THAT(FailureOf(plan, NeverGathers("tp")),
              AllOf(HasSubstr("Expected: never gathers along 'tp'"),
                    HasSubstr("found AG(tp)"), HasSubstr(kPlanInFull)));
}

}  // namespace
}  // namespace tessera::testing

#include "tessera/redistribute/plan.h"

#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/redistribute/planner.h"
#include "tessera/redistribute/storage.h"

namespace tessera {
namespace {

using internal::Storage;
using internal::StorageOfSteps;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

Step MakeStep(StepKind kind, int axis, const Layout& before,
              const char* after) {
  Step step;
  step.kind = kind;
  step.axes = {axis};
  step.before = before;
  step.after = before.With(after).value();
  step.bytes_received = Communicates(kind) ? 100 : 0;
  step.messages = Communicates(kind) ? 1 : 0;
  step.time_ps = 7'500'000;
  return step;
}

Layout ParseLayout(const char* text) {
  return Layout::Parse(text, DeviceMesh::Parse("dp=2,tp=2").value()).value();
}

// A plan that takes these steps one after the other.
struct NextStep {
  StepKind kind;
  int axis;
  const char* after;
};
Plan MakeChain(const Layout& source, const std::vector<NextStep>& chain) {
  std::vector<Step> steps;
  Layout at = source;
  for (const NextStep& next : chain) {
    steps.push_back(MakeStep(next.kind, next.axis, at, next.after));
    at = steps.back().after;
  }
  return Plan(source, at, steps);
}

// An f32[8,4] on four ranks that goes to three others.
Plan ToAnotherMesh() {
  const Layout source = ParseLayout("f32[8,4] [R, S(0)]");
  const Step slice = MakeStep(StepKind::kSlice, 0, source, "[S(1), S(0)]");
  Step exchange = MakeStep(StepKind::kExchange, 0, slice.after, "[S(1), S(0)]");
  exchange.axes = {0, 1};
  exchange.after =
      Layout::Parse("f32[8,4] [S(0)]", DeviceMesh::Parse("x=3@4").value())
          .value();
  const Step gather = MakeStep(StepKind::kAllGather, 0, exchange.after, "[R]");
  return Plan(source, gather.after, {slice, exchange, gather});
}

TEST(StepKindTest, NamesAreDistinct) {
  std::set<std::string> names;
  int communicating = 0;
  for (StepKind kind : kAllStepKinds) {
    names.emplace(StepKindName(kind));
    names.emplace(StepKindShortName(kind));
    communicating += Communicates(kind) ? 1 : 0;
  }
  EXPECT_EQ(names.size(), 2 * std::size(kAllStepKinds));
  EXPECT_EQ(communicating, 5);
}

TEST(PlanTest, PrintsAsOneLineAndAsATable) {
  const Plan plan = MakeChain(ParseLayout("f32[8,4] [P(sum), S(0)]"),
                              {{StepKind::kReduceScatter, 0, "[S(1), S(0)]"},
                               {StepKind::kAllGather, 1, "[S(1), R]"}});
  EXPECT_EQ(plan.ToString(),
            "[P(sum), S(0)] -RS(dp)-> [S(1), S(0)] -AG(tp)-> [S(1), R]");
  EXPECT_EQ(plan.ToTable(),
            "step            axes  before -> after                 "
            "bytes  messages  workspace  time us\n"
            "reduce_scatter  dp    [P(sum), S(0)] -> [S(1), S(0)]  "
            "  100         1         32      7.5\n"
            "all_gather      tp    [S(1), S(0)] -> [S(1), R]       "
            "  100         1         32      7.5\n"
            "total                                                 "
            "  200         2         32     15.0\n");
}

TEST(PlanTest, NamesAMeshWhereAStepLeadsToAnother) {
  const Plan plan = ToAnotherMesh();
  EXPECT_EQ(plan.ToString(),
            "[R, S(0)] -SL(dp)-> [S(1), S(0)] -XC(dp,tp)-> [S(0)] on 'x=3@4' "
            "-AG(x)-> [R]");
  EXPECT_EQ(plan.ToTable(),
            "step        axes   before -> after                    "
            "bytes  messages  workspace  time us\n"
            "slice       dp     [R, S(0)] -> [S(1), S(0)]          "
            "    0         0          0      7.5\n"
            "exchange    dp,tp  [S(1), S(0)] -> [S(0)] on 'x=3@4'  "
            "  100         1         48      7.5\n"
            "all_gather  x      [S(0)] -> [R]                      "
            "  100         1         48      7.5\n"
            "total                                                 "
            "  200         2         48     22.5\n");
}

TEST(PlanTest, WithoutStepsIsItsLayout) {
  const Layout layout = ParseLayout("f32[8,4] [R, S(0)]");
  const Plan plan(layout, layout, {});
  EXPECT_EQ(plan.ToString(), "[R, S(0)]");
  EXPECT_EQ(plan.bytes_received(), 0);
  EXPECT_EQ(plan.launches(), 0);
  EXPECT_EQ(plan.time_ps(), 0);
  EXPECT_THAT(plan.step_workspace_bytes(), IsEmpty());
  EXPECT_EQ(plan.workspace_bytes(), 0);
  EXPECT_EQ(plan.peak_bytes(), 2 * 64);
}

TEST(PlanTest, NamesAllAxesOfAStep) {
  Step step =
      MakeStep(StepKind::kRelabel, 0, ParseLayout("f32[8,4] [R, R]"), "[R, R]");
  step.axes = {0, 1};
  EXPECT_EQ(step.Name(), "RL(dp,tp)");
}

TEST(PlanTest, AddsUpSteps) {
  const Plan plan = MakeChain(ParseLayout("f32[8,4] [P(sum), P(sum)]"),
                              {{StepKind::kAllReduce, 0, "[R, P(sum)]"},
                               {StepKind::kScale, 1, "[R, P(avg)]"},
                               {StepKind::kAllReduce, 1, "[R, R]"}});
  EXPECT_EQ(plan.bytes_received(), 200);
  EXPECT_EQ(plan.launches(), 2);
  EXPECT_EQ(plan.time_ps(), 3 * 7'500'000);
}

TEST(PlanTest, SumsThatDoNotFitBecomeTheGreatestValue) {
  Step step = MakeStep(StepKind::kAllReduce, 0,
                       ParseLayout("f32[8,4] [P(sum), R]"), "[R, R]");
  step.time_ps = INT64_MAX - 1;
  const Plan plan(step.before, step.after, {step, step});
  EXPECT_EQ(plan.time_ps(), INT64_MAX);
}

TEST(StorageOfStepsTest, LastChangeOfRegionAndAllBehindItUseTheTarget) {
  const Plan plan = MakeChain(ParseLayout("f32[8,4] [P(sum), S(0)]"),
                              {{StepKind::kAllGather, 1, "[P(sum), R]"},
                               {StepKind::kAllReduce, 0, "[R, R]"},
                               {StepKind::kFill, 1, "[R, P(sum)]"}});
  EXPECT_THAT(
      StorageOfSteps(plan.steps()),
      ElementsAre(Storage::kTarget, Storage::kTarget, Storage::kTarget));
  EXPECT_EQ(plan.workspace_bytes(), 0);
}

TEST(StorageOfStepsTest, SlicesOfTheSourceAreViews) {
  const Plan plan = MakeChain(ParseLayout("f32[8,4] [R, S(0)]"),
                              {{StepKind::kRelabel, 0, "[R, S(0)]"},
                               {StepKind::kSlice, 0, "[S(1), S(0)]"},
                               {StepKind::kAllGather, 1, "[S(1), R]"}});
  EXPECT_THAT(
      StorageOfSteps(plan.steps()),
      ElementsAre(Storage::kSource, Storage::kSource, Storage::kTarget));
  EXPECT_EQ(plan.workspace_bytes(), 0);
}

TEST(StorageOfStepsTest, WorksInPlaceInWorkspaceButNeverInTheSource) {
  const Plan plan = MakeChain(ParseLayout("f32[8,4] [P(sum), S(0)]"),
                              {{StepKind::kScale, 0, "[P(avg), S(0)]"},
                               {StepKind::kAllReduce, 0, "[R, S(0)]"},
                               {StepKind::kRelabel, 0, "[R, S(0)]"},
                               {StepKind::kAllGather, 1, "[R, R]"},
                               {StepKind::kSlice, 0, "[S(0), R]"},
                               {StepKind::kFill, 1, "[S(0), P(sum)]"}});
  EXPECT_THAT(
      StorageOfSteps(plan.steps()),
      ElementsAre(Storage::kNewBuffer, Storage::kWorkspace, Storage::kWorkspace,
                  Storage::kNewBuffer, Storage::kTarget, Storage::kTarget));
  // Half of the tensor, and all of it while it is gathered.
  EXPECT_THAT(plan.step_workspace_bytes(),
              ElementsAre(16 * 4, 16 * 4, 16 * 4, (16 + 32) * 4, 32 * 4, 0));
  EXPECT_EQ(plan.workspace_bytes(), (16 + 32) * 4);
  EXPECT_EQ(plan.peak_bytes(), (16 + 32 + 16 + 16) * 4);
}

TEST(StorageOfStepsTest, APieceAmongIdentitiesIsAChangeOfRegion) {
  const Plan plan = MakeChain(ParseLayout("f32[8,4] [S(0), S(1)]"),
                              {{StepKind::kFill, 0, "[P(sum), S(1)]"},
                               {StepKind::kReduceScatter, 0, "[S(1), S(1)]"}});
  EXPECT_THAT(StorageOfSteps(plan.steps()),
              ElementsAre(Storage::kNewBuffer, Storage::kTarget));
  EXPECT_EQ(plan.workspace_bytes(), 16 * 4);
}

TEST(StorageOfStepsTest, RaggedPiecesCountAsTheLargestOfThem) {
  const Plan plan = MakeChain(
      ParseLayout("f32[10] [Ragged(0,1,10), R]"),
      {{StepKind::kExchange, 0, "[R, Ragged(0,7,10)]"},
       {StepKind::kExchange, 1, "[Ragged(-2+6)[0], Ragged(-2+6)[1]]"}});
  EXPECT_THAT(plan.step_workspace_bytes(), ElementsAre(7 * 4, 7 * 4));
  EXPECT_EQ(plan.peak_bytes(), (9 + 7 + 6) * 4);
}

}  // namespace
}  // namespace tessera

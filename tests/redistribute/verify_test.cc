#include "tessera/redistribute/verify.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/redistribute/planner.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

Layout ParseLayout(const std::string& mesh, const std::string& text) {
  return Layout::Parse(text, DeviceMesh::Parse(mesh).value()).value();
}

struct NextStep {
  StepKind kind;
  MeshCoords axes;
  const char* after;
  int64_t bytes = 0;
  int64_t messages = 0;
};

// A plan that takes these steps one after the other.
Plan Chain(const std::string& mesh, const std::string& source,
           const std::vector<NextStep>& chain) {
  std::vector<Step> steps;
  const Layout from = ParseLayout(mesh, source);
  Layout at = from;
  for (const NextStep& next : chain) {
    Step step;
    step.kind = next.kind;
    step.axes.assign(next.axes.begin(), next.axes.end());
    step.before = at;
    step.after = at.With(next.after).value();
    step.bytes_received = next.bytes;
    step.messages = next.messages;
    at = step.after;
    steps.push_back(step);
  }
  return Plan(from, at, steps);
}

Plan PlanBetween(const std::string& mesh, const std::string& source,
                 const std::string& target) {
  const Layout from = ParseLayout(mesh, source);
  return MakePlan(from, from.With(target).value(), Topology::LocalCpu())
      .value();
}

// InvalidArgument with all of this in the message.
template <typename... Texts>
auto IsWrong(const Texts&... texts) {
  return StatusIs(absl::StatusCode::kInvalidArgument,
                  AllOf(HasSubstr("verify: "), HasSubstr(texts)...));
}

// --- Chain ------------------------------------------------------------------

TEST(VerifyChainTest, AcceptsAPlanWithoutStepsThatNeedsNone) {
  const Layout layout = ParseLayout("x=2", "f32[4] [S(0)]");
  EXPECT_OK(Verify(Plan(layout, layout, {})));
}

TEST(VerifyChainTest, RejectsAPlanThatDoesNotReachItsTarget) {
  const Layout source = ParseLayout("x=2", "f32[4] [S(0)]");
  EXPECT_THAT(Verify(Plan(source, source.With("[R]").value(), {})),
              IsWrong("want the 0 steps to end at the target f32[4] [R]",
                      "found f32[4] [S(0)]"));
}

TEST(VerifyChainTest, RejectsAFirstStepThatDoesNotBeginAtTheSource) {
  const Plan plan = PlanBetween("x=2", "f32[4] [S(0)]", "[R]");
  const Layout other = plan.source().With("[P]").value();
  EXPECT_THAT(
      Verify(Plan(other, plan.target(),
                  {plan.steps().begin(), plan.steps().end()})),
      IsWrong("step 1, all_gather", "want it to begin at f32[4] [P(sum)]",
              "found f32[4] [S(0)]"));
}

TEST(VerifyChainTest, RejectsAGapBetweenSteps) {
  const Plan plan = PlanBetween("x=2,y=2", "f32[8] [S(0), S(0)]", "[R, R]");
  ASSERT_EQ(plan.steps().size(), 2u);
  std::vector<Step> steps(plan.steps().begin(), plan.steps().end());
  steps[1].before = plan.source();
  EXPECT_THAT(Verify(Plan(plan.source(), plan.target(), steps)),
              IsWrong("step 2, all_gather", "begin at f32[8] [S(0), R]",
                      "found f32[8] [S(0), S(0)]"));
}

// Placements, dtype and shape alone do not make a layout.
TEST(VerifyChainTest, RejectsAnotherMeshOrTensor) {
  const Layout from = ParseLayout("x=2", "f32[4] [R]");
  for (const Layout& to : {ParseLayout("y=2", "f32[4] [S(0)]"),
                           ParseLayout("x=2", "i32[4] [S(0)]"),
                           ParseLayout("x=2", "f32[4,1] [S(0)]")}) {
    Step step;
    step.kind = StepKind::kSlice;
    step.axes = {0};
    step.before = from;
    step.after = to;
    EXPECT_THAT(Verify(Plan(from, to, {step})),
                IsWrong("want one tensor on one mesh", to.ToString()));
  }
}

// --- Axes -------------------------------------------------------------------

TEST(VerifyAxesTest, RejectsAxesThatTheMeshDoesNotHave) {
  const auto with_axes = [](const MeshCoords& axes) {
    return Verify(Chain("x=2,y=2", "f32[4] [R, R]",
                        {{StepKind::kSlice, axes, "[S(0), R]"}}));
  };
  EXPECT_OK(with_axes({0}));
  EXPECT_THAT(with_axes({}), IsWrong("want at least one axis, found none"));
  EXPECT_THAT(with_axes({2}), IsWrong("'x=2,y=2'", "found axis 2"));
  EXPECT_THAT(with_axes({-1}), IsWrong("'x=2,y=2'", "found axis -1"));
  EXPECT_THAT(with_axes({0, 0}), IsWrong("want every axis once", "'x' twice"));
}

TEST(VerifyAxesTest, RejectsCommunicationAlongAnAxisOfSizeOne) {
  EXPECT_THAT(
      Verify(Chain("x=2,y=1", "f32[4] [R, S(0)]",
                   {{StepKind::kAllGather, {1}, "[R, R]"}})),
      IsWrong("all_gather", "axes of size above 1", "found 'y' of size 1"));
  EXPECT_OK(Verify(Chain("x=2,y=1", "f32[4] [R, S(0)]",
                         {{StepKind::kRelabel, {1}, "[R, R]"}})));
}

TEST(VerifyAxesTest, RejectsChangesThatTheStepDoesNotName) {
  EXPECT_THAT(Verify(Chain("x=2,y=2", "f32[4,4] [R, R]",
                           {{StepKind::kSlice, {0}, "[S(0), S(1)]"}})),
              IsWrong("slice", "no change along axis 'y'", "R -> S(1)"));
  // Nor may the other axes trade places.
  EXPECT_THAT(
      Verify(Chain("x=2,y=2,z=2", "f32[8,4] [S(0), S(0), R]",
                   {{StepKind::kSlice, {2}, "[S(0)[1], S(0)[0], S(1)]"}})),
      IsWrong("slice", "want dim 0 cut in the same order",
              "[S(0)[1], S(0)[0], S(1)]"));
}

// --- Change -----------------------------------------------------------------

TEST(VerifyChangeTest, RejectsAKindThatDoesNotDoThis) {
  const auto step = [](StepKind kind, const char* before, const char* after) {
    return Verify(
        Chain("x=2", std::string("f32[4,4] ") + before, {{kind, {0}, after}}));
  };
  EXPECT_THAT(step(StepKind::kAllGather, "[P]", "[R]"),
              IsWrong("all_gather", "want S(d) -> R along axis 'x'",
                      "found P(sum) -> R"));
  EXPECT_THAT(step(StepKind::kReduceScatter, "[S(0)]", "[S(1)]"),
              IsWrong("want P(op) -> S(d)", "found S(0) -> S(1)"));
  EXPECT_THAT(step(StepKind::kAllReduce, "[R]", "[R]"),
              IsWrong("want P(op) -> R", "found R -> R"));
  EXPECT_THAT(step(StepKind::kAllToAll, "[S(1)]", "[S(1)]"),
              IsWrong("want S(d) -> S(e) with d != e", "found S(1) -> S(1)"));
  EXPECT_THAT(step(StepKind::kSlice, "[P]", "[S(0)]"),
              IsWrong("want R -> S(d)", "found P(sum) -> S(0)"));
  EXPECT_THAT(step(StepKind::kFill, "[S(0)]", "[P(avg)]"),
              IsWrong("S(d) -> P(sum)", "found S(0) -> P(avg)"));
  EXPECT_THAT(step(StepKind::kFill, "[P]", "[R]"),
              IsWrong("want R -> P(op)", "found P(sum) -> R"));
  EXPECT_THAT(step(StepKind::kScale, "[P]", "[P]"),
              IsWrong("want P(sum) -> P(avg)", "found P(sum) -> P(sum)"));
  EXPECT_THAT(step(StepKind::kScale, "[P(max)]", "[P]"),
              IsWrong("found P(max) -> P(sum)"));
  EXPECT_THAT(
      step(StepKind::kRelabel, "[P(min)]", "[P(max)]"),
      IsWrong("want no change of what is Partial", "found P(min) -> P(max)"));
  EXPECT_THAT(step(StepKind::kRelabel, "[P]", "[R]"),
              IsWrong("found P(sum) -> R"));
  EXPECT_THAT(step(static_cast<StepKind>(99), "[P]", "[R]"),
              IsWrong("want a known kind of step"));
}

TEST(VerifyChangeTest, RejectsAReductionOfDifferentOpsAtOnce) {
  EXPECT_THAT(Verify(Chain("x=2,y=2", "f32[4] [P(sum), P(avg)]",
                           {{StepKind::kAllReduce, {0, 1}, "[R, R]"}})),
              IsWrong("want the same change along all axes",
                      "P(sum) -> R along 'x'", "P(avg) -> R along 'y'"));
}

// --- Regions ----------------------------------------------------------------

TEST(VerifyRegionsTest, RejectsGatheringAMajorAxis) {
  EXPECT_THAT(
      Verify(Chain("x=2,y=2", "f32[8] [S(0), S(0)]",
                   {{StepKind::kAllGather, {0}, "[R, S(0)]"}})),
      IsWrong("step 1, all_gather", "at (x=0,y=1) dim 0",
              "in [S(0), S(0)]: want [4,6) for [R, S(0)]", "found [2,4)"));
}

TEST(VerifyRegionsTest, RejectsScatteringIntoAMajorPlace) {
  EXPECT_THAT(
      Verify(Chain("x=2,y=2", "f32[8] [P, S(0)]",
                   {{StepKind::kReduceScatter, {0}, "[S(0), S(0)]"}})),
      IsWrong("reduce_scatter", "at (x=0,y=1) dim 0",
              "in [S(0), S(0)]: want [4,6) for [P(sum), S(0)]", "found [2,4)"));
}

TEST(VerifyRegionsTest, RejectsAllToAllOfMajorPlaces) {
  EXPECT_THAT(Verify(Chain("x=2,y=2", "f32[8,8] [S(0), S(1)]",
                           {{StepKind::kAllToAll, {0}, "[S(1), S(1)]"}})),
              IsWrong("all_to_all", "dim 1 in [S(1), S(1)]: want [4,6)",
                      "found [2,4)"));
  EXPECT_THAT(Verify(Chain("x=2,y=2", "f32[8,8] [S(0), S(0)]",
                           {{StepKind::kAllToAll, {0}, "[S(1), S(0)]"}})),
              IsWrong("all_to_all", "dim 0 in [S(0), S(0)]: want [4,6)",
                      "found [2,4)"));
}

TEST(VerifyRegionsTest, RejectsSlicesOfWhatIsNotHeld) {
  EXPECT_THAT(Verify(Chain("x=2,y=2", "f32[8] [R, S(0)]",
                           {{StepKind::kSlice, {0}, "[S(0), S(0)]"}})),
              IsWrong("slice", "in [S(0), S(0)]: want [4,6) for [R, S(0)]",
                      "found [2,4)"));
}

TEST(VerifyRegionsTest, RejectsAPieceFilledInElsewhere) {
  EXPECT_THAT(
      Verify(Chain("x=2,y=2", "f32[8] [S(0), S(0)]",
                   {{StepKind::kFill, {0}, "[P, S(0)]"}})),
      IsWrong("fill", "at (x=0,y=1) dim 0", "want [4,6)", "found [2,4)"));
}

// Pieces lie in the order of the named axes, the last of them fastest.
TEST(VerifyRegionsTest, TakesFlattenedGroupsInTheOrderOfTheirAxes) {
  const auto scatter = [](const MeshCoords& axes, const char* after) {
    return Verify(Chain("x=2,y=3", "f32[4] [P, P]",
                        {{StepKind::kReduceScatter, axes, after, 20, 5}}));
  };
  EXPECT_OK(scatter({0, 1}, "[S(0), S(0)]"));
  EXPECT_OK(scatter({1, 0}, "[S(0)[1], S(0)[0]]"));
  EXPECT_THAT(scatter({1, 0}, "[S(0), S(0)]"),
              IsWrong("at (x=0,y=1) dim 0", "want [2,3)", "found [1,2)"));
  EXPECT_THAT(scatter({0, 1}, "[S(0)[1], S(0)[0]]"),
              IsWrong("reduce_scatter", "dim 0"));
}

TEST(VerifyRegionsTest, AcceptsUnevenNestedPieces) {
  EXPECT_OK(
      Verify(Chain("x=2,y=2", "f32[5,3] [S(0), S(0)]",
                   {{StepKind::kAllGather, {0, 1}, "[R, R]", 4 * 12, 3}})));
  // Sizes 2, 1, 1, 1, so that a whole less the piece of y=1 is 4 rows; to make
  // it of dim 1's pieces of 1, 1, 1, 0 columns takes 4 elements.
  EXPECT_OK(
      Verify(Chain("x=2,y=2", "f32[5,3] [S(0), S(0)]",
                   {{StepKind::kAllToAll, {0, 1}, "[S(1), S(1)]", 16, 3}})));
}

TEST(VerifyRegionsTest, RelabelsWhatIsHeldAnyway) {
  const auto swap = [](const char* meta) {
    return Verify(Chain("x=2,y=2", std::string(meta) + " [S(0), S(0)]",
                        {{StepKind::kRelabel, {0, 1}, "[S(0)[1], S(0)[0]]"}}));
  };
  EXPECT_OK(swap("f32[0]"));
  EXPECT_OK(swap("f32[1]"));
  EXPECT_THAT(swap("f32[2]"),
              IsWrong("relabel", "at (x=0,y=1) dim 0",
                      "want [2,2) for [S(0), S(0)]", "found [1,2)"));
  EXPECT_THAT(
      Verify(Chain("x=2", "f32[4] [R]", {{StepKind::kRelabel, {0}, "[S(0)]"}})),
      IsWrong("at (x=0) dim 0", "want [0,4)", "found [0,2)"));
  // No elements, but pieces of another shape.
  EXPECT_THAT(Verify(Chain("x=2", "f32[0,4] [S(0)]",
                           {{StepKind::kRelabel, {0}, "[S(1)]"}})),
              IsWrong("relabel", "dim 1"));
}

// --- Ragged cuts ------------------------------------------------------------

TEST(VerifyRaggedTest, AcceptsWhatLeavesTheCutAlone) {
  EXPECT_OK(Verify(PlanBetween("x=2,y=2", "f32[6] [P(avg), Ragged(0,1,6)]",
                               "[R, Ragged(0,1,6)]")));
  EXPECT_OK(
      Verify(PlanBetween("x=3,y=2,z=2", "f32[7,2] [P, S(0), Ragged(-2+5)]",
                         "[P(avg), S(0), Ragged(-2+5)]")));
  EXPECT_OK(Verify(PlanBetween("x=2,y=2,z=2",
                               "f32[9] [P, Ragged(-2+4)[1], Ragged(-2+4)[0]]",
                               "[R, Ragged(-2+4)[1], Ragged(-2+4)[0]]")));
}

TEST(VerifyRaggedTest, RejectsMovedCuts) {
  const auto relabel = [](const char* after) {
    return Verify(Chain("x=2,y=1", "f32[6] [Ragged(0,1,6)[0], R]",
                        {{StepKind::kRelabel, {0, 1}, after}}));
  };
  EXPECT_THAT(relabel("[Ragged(0,2,6)[0], R]"),
              IsWrong("want ragged cuts to stay", "along axis 'x'",
                      "Ragged(0,1,6)[0] -> Ragged(0,2,6)[0]"));
  EXPECT_THAT(relabel("[R, R]"), IsWrong("Ragged(0,1,6)[0] -> R"));
  EXPECT_THAT(relabel("[Ragged(0,1,6)[0], Ragged(0,1,6)[1]]"),
              IsWrong("want ragged cuts to stay", "along axis 'y'"));
  EXPECT_OK(relabel("[Ragged(0,1,6)[0], P]"));
}

TEST(VerifyRaggedTest, RejectsMovesBesideACut) {
  EXPECT_THAT(
      Verify(
          Chain("x=2,y=2", "f32[4,4] [S(0), Ragged(0,1,16)]",
                {{StepKind::kAllGather, {0}, "[R, Ragged(0,1,16)]", 32, 1}})),
      IsWrong("want no elements moved beside a ragged cut", "found dim 0"));
}

// --- Figures ----------------------------------------------------------------

// The largest rank counts: the one of the least piece where pieces are
// gathered, the one of the largest where they are scattered.
TEST(VerifyFiguresTest, WantsTheMostThatARankReceives) {
  const auto step = [](const char* mesh, const char* source, NextStep next,
                       int64_t bytes, int64_t messages) {
    next.bytes = bytes;
    next.messages = messages;
    return Verify(Chain(mesh, source, {next}));
  };
  const struct {
    const char* mesh;
    const char* source;
    NextStep next;
    int64_t bytes;
    int64_t messages;
  } kCases[] = {
      // Pieces of 2, 2, 1, 0 rows of 3.
      {"x=4", "f32[5,3] [S(0)]", {StepKind::kAllGather, {0}, "[R]"}, 60, 3},
      {"x=4", "f32[5,3] [P]", {StepKind::kReduceScatter, {0}, "[S(0)]"}, 72, 3},
      // 15 elements in pieces of 4, 4, 4, 3.
      {"x=4", "f32[5,3] [P]", {StepKind::kAllReduce, {0}, "[R]"}, 92, 3},
      // Of 5 x (1, 1, 1, 0) all but the 2, 2, 1 rows that a rank has.
      {"x=4", "f32[5,3] [S(0)]", {StepKind::kAllToAll, {0}, "[S(1)]"}, 16, 3},
      // The larger half of y's.
      {"x=2,y=2",
       "i64[3,2] [P, S(0)]",
       {StepKind::kAllReduce, {0}, "[R, S(0)]"},
       32,
       1},
      {"x=2,y=2",
       "bf16[8] [P, P]",
       {StepKind::kAllReduce, {1, 0}, "[R, R]"},
       24,
       3},
      {"x=2,y=2",
       "f32[6] [P, Ragged(0,1,6)]",
       {StepKind::kAllReduce, {0}, "[R, Ragged(0,1,6)]"},
       20,
       1},
      {"x=2", "f32[4] [R]", {StepKind::kSlice, {0}, "[S(0)]"}, 0, 0},
      {"x=2", "f32[4] [R]", {StepKind::kFill, {0}, "[P]"}, 0, 0},
      {"x=2", "f32[0] [S(0)]", {StepKind::kAllGather, {0}, "[R]"}, 0, 1},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.source);
    EXPECT_OK(step(c.mesh, c.source, c.next, c.bytes, c.messages));
    EXPECT_THAT(step(c.mesh, c.source, c.next, c.bytes + 1, c.messages),
                IsWrong("want " + std::to_string(c.bytes) + " bytes received",
                        "found " + std::to_string(c.bytes + 1)));
    EXPECT_THAT(step(c.mesh, c.source, c.next, c.bytes, c.messages + 1),
                IsWrong("want " + std::to_string(c.messages) + " messages",
                        "found " + std::to_string(c.messages + 1)));
  }
}

TEST(VerifyFiguresTest, TakesTheGreatestValueForWhatDoesNotFit) {
  EXPECT_OK(Verify(PlanBetween("x=64", "f64[1152921504606846975] [P]", "[R]")));
}

// --- Exchanges --------------------------------------------------------------

Plan ExchangePlan(const Layout& before, const Layout& after,
                  const MeshCoords& axes, int64_t bytes, int64_t messages) {
  Step step;
  step.kind = StepKind::kExchange;
  step.axes.assign(axes.begin(), axes.end());
  step.before = before;
  step.after = after;
  step.bytes_received = bytes;
  step.messages = messages;
  return Plan(before, after, {step});
}

TEST(VerifyExchangeTest, WantsAllAxesAlongWhichElementsMove) {
  const Layout from = ParseLayout("x=2,y=2,z=2", "f32[8] [S(0), R, R]");
  const Layout to = from.With("[R, S(0), R]").value();
  const auto along = [&](const MeshCoords& axes) {
    return Verify(ExchangePlan(from, to, axes, 16, 1));
  };
  EXPECT_OK(along({0, 1}));
  EXPECT_OK(along({1, 0}));
  EXPECT_THAT(along({0}), IsWrong("step 1, exchange",
                                  "elements may move, (x,y)", "found (x)"));
  EXPECT_THAT(along({0, 1, 2}), IsWrong("(x,y), found (x,y,z)"));
  EXPECT_THAT(along({}), IsWrong("(x,y), found ()"));
  EXPECT_THAT(along({0, 1, 1}), IsWrong("want every axis once", "'y' twice"));
  EXPECT_THAT(along({0, 3}), IsWrong("found axis 3"));
}

TEST(VerifyExchangeTest, TakesNoAxesWhereNothingMoves) {
  const Layout from = ParseLayout("x=1", "f32[2,3] [Ragged(0,6)]");
  const Layout to = from.With("[R]").value();
  EXPECT_OK(Verify(ExchangePlan(from, to, {}, 0, 0)));
  EXPECT_THAT(Verify(ExchangePlan(from, to, {0}, 0, 0)),
              IsWrong("axes of size above 1", "'x' of size 1"));
}

TEST(VerifyExchangeTest, RejectsWhatIsPartial) {
  const Layout shards = ParseLayout("x=2,y=2", "f32[4] [S(0), R]");
  const Layout partial = shards.With("[S(0), P]").value();
  EXPECT_THAT(Verify(ExchangePlan(shards, partial, {0}, 0, 0)),
              IsWrong("want nothing Partial", "found [S(0), P(sum)]"));
  EXPECT_THAT(Verify(ExchangePlan(partial, shards, {0}, 0, 0)),
              IsWrong("want nothing Partial", "found [S(0), P(sum)]"));
}

// Rank 1 wants 5 of the 6 elements that two ranks hold, and has one of them.
TEST(VerifyExchangeTest, TakesFiguresOrBoundsAboveThem) {
  const Layout from = ParseLayout("x=3", "f32[6] [Ragged(0,1,3,6)]");
  const Layout to = from.With("[Ragged(0,0,6,6)]").value();
  const auto with = [&](int64_t bytes, int64_t messages) {
    return Verify(ExchangePlan(from, to, {0}, bytes, messages));
  };
  EXPECT_OK(with(16, 2));
  EXPECT_OK(with(17, 3));
  EXPECT_THAT(with(15, 2),
              IsWrong("want at least 16 bytes received", "found 15"));
  EXPECT_THAT(with(16, 1), IsWrong("want at least 2 messages", "found 1"));
}

TEST(VerifyExchangeTest, DoesNotCountOnMoreThan4096Ranks) {
  const auto without_figures = [](const char* mesh) {
    const Layout from = ParseLayout(mesh, "f32[65536,2] [S(0)]");
    return Verify(ExchangePlan(from, from.With("[R]").value(), {0}, 0, 0));
  };
  EXPECT_THAT(without_figures("x=4096"), IsWrong("bytes received"));
  EXPECT_OK(without_figures("x=4097"));
}

TEST(VerifyExchangeTest, LeadsToAnotherMesh) {
  const Layout from = ParseLayout("x=2,y=1,z=2", "f32[4] [S(0), R, R]");
  const Layout to = ParseLayout("a=3@2", "f32[4] [S(0)]");
  EXPECT_OK(Verify(ExchangePlan(from, to, {0, 2}, 8, 1)));
  EXPECT_OK(Verify(ExchangePlan(from, to, {2, 0}, 8, 1)));
  EXPECT_THAT(Verify(ExchangePlan(from, to, {0}, 8, 1)),
              IsWrong("(x,z), found (x)"));
  const Layout other = ParseLayout("a=3@2", "i32[4] [S(0)]");
  EXPECT_THAT(Verify(ExchangePlan(from, other, {0, 2}, 8, 1)),
              IsWrong("want one tensor, found f32[4]", "i32[4]"));
}

// --- Size -------------------------------------------------------------------

// Nothing here is as large as the mesh.
TEST(VerifyTest, LooksAtTheAxesThatMatterAlone) {
  EXPECT_OK(Verify(PlanBetween("a=128,b=128,c=128,d=512",
                               "bf16[4096,4096,4096] [S(0), P, S(1), S(2)]",
                               "[S(1), S(0), P, R]")));
}

}  // namespace
}  // namespace tessera

// What plans receive where other systems receive, replicate or wait too much.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/mesh/topology.h"
#include "tessera/redistribute/plan_many.h"
#include "tessera/redistribute/planner.h"
#include "tessera/redistribute/verify.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

Plan PlanBetween(const std::string& mesh, const std::string& source,
                 const std::string& target,
                 const Topology& topology = Topology::Unit()) {
  const Layout from =
      Layout::Parse(source, DeviceMesh::Parse(mesh).value()).value();
  Plan plan = MakePlan(from, from.With(target).value(), topology).value();
  EXPECT_OK(Verify(plan)) << plan;
  return plan;
}

int64_t ElementsReceived(const Plan& plan) {
  return plan.bytes_received() / SizeOf(plan.source().dtype());
}

// The most elements that a rank holds in any of the plan's layouts.
int64_t LargestPiece(const Plan& plan) {
  int64_t largest = plan.source().MostElements();
  for (const Step& step : plan.steps()) {
    largest = std::max(largest, step.after.MostElements());
  }
  return largest;
}

TEST(PlanReportsTest, UnevenNestedPiecesCountAsTheyAre) {
  // Of five rows in pieces of 2, 1, 1 and 1, some rank lacks four.
  EXPECT_EQ(ElementsReceived(
                PlanBetween("x=2,y=2", "f32[5,3] [S(0), S(0)]", "[R, R]")),
            4 * 3);
  EXPECT_EQ(ElementsReceived(PlanBetween(
                "x=2,y=2", "f32[1001,1024] [S(0), S(0)]", "[R, R]")),
            (1001 - 250) * 1024);
  // Four rows are reduced to pieces of 1, 1, 0, 1, 1 and 0: first over x to
  // pieces of two rows, then over y to one.
  EXPECT_EQ(ElementsReceived(
                PlanBetween("x=2,y=3", "f32[4,3] [P, P]", "[S(0), S(0)]")),
            1 * 6 + 2 * 3);
}

TEST(PlanReportsTest, PaddingIsNeverSent) {
  EXPECT_EQ(ElementsReceived(PlanBetween("x=4", "f32[5,10] [R]", "[S(0)]")), 0);
  // The last of four ranks has no row.
  const Plan back = PlanBetween("x=4", "f32[5,10] [S(0)]", "[R]");
  EXPECT_EQ(ElementsReceived(back), 50);
  EXPECT_EQ(LargestPiece(back), 50);
}

TEST(PlanReportsTest, SquaresSwapPiecesAcrossTheDiagonal) {
  const Plan plan =
      PlanBetween("x=4,y=4", "f32[16,16] [S(0), S(1)]", "[S(1), S(0)]");
  EXPECT_EQ(plan.ToString(), "[S(0), S(1)] -XC(x,y)-> [S(1), S(0)]");
  EXPECT_EQ(ElementsReceived(plan), 16);
  EXPECT_EQ(plan.steps()[0].messages, 1);
}

TEST(PlanReportsTest, ThreeAxesMoveToAnotherDimAtOnce) {
  const Plan plan = PlanBetween("x=2,y=2,z=2", "f32[8,8,8] [S(0), S(0), S(0)]",
                                "[S(1), S(1), S(1)]");
  EXPECT_EQ(ElementsReceived(plan), 56);
  EXPECT_EQ(LargestPiece(plan), 64);
  EXPECT_EQ(plan.launches(), 1);
}

TEST(PlanReportsTest, TwoDimsBecomeOneWithoutReplication) {
  const Plan plan =
      PlanBetween("x=4,y=2", "f32[16,16,16] [S(2), S(0)]", "[S(1), S(1)]");
  EXPECT_EQ(ElementsReceived(plan), 448);
  EXPECT_EQ(LargestPiece(plan), 512);
}

TEST(PlanReportsTest, WaysRoundCostNoLess) {
  const std::string mesh = "a=2,b=2,c=2,d=2";
  for (absl::string_view name : Topology::PresetNames()) {
    const Topology topology = Topology::Preset(name).value();
    for (const std::string meta : {"f32[16,16] ", "f32[4096,4096] "}) {
      const Plan direct = PlanBetween(mesh, meta + "[R, S(0), R, R]",
                                      "[S(1), R, S(1), S(1)]", topology);
      const Plan first = PlanBetween(mesh, meta + "[R, S(0), R, R]",
                                     "[S(1), S(0), S(1), S(1)]", topology);
      const Plan second = PlanBetween(mesh, meta + "[S(1), S(0), S(1), S(1)]",
                                      "[S(1), R, S(1), S(1)]", topology);
      EXPECT_LE(direct.time_ps(), first.time_ps() + second.time_ps())
          << name << " " << direct << "\n"
          << first << "\n"
          << second;
    }
  }
}

TEST(PlanReportsTest, GivingUpTheMajorCutCostsMoreThanTheMinorOne) {
  for (absl::string_view name : Topology::PresetNames()) {
    const Topology topology = Topology::Preset(name).value();
    const std::string source = "f32[16,16] [S(0), S(0)]";
    const Plan major = PlanBetween("x=2,y=2", source, "[R, S(0)]", topology);
    const Plan minor = PlanBetween("x=2,y=2", source, "[S(0), R]", topology);
    EXPECT_EQ(ElementsReceived(major), 128) << major;
    EXPECT_EQ(ElementsReceived(minor), 64) << minor;
    EXPECT_GT(major.time_ps(), minor.time_ps()) << name;
  }
}

TEST(PlanReportsTest, AnotherCuttingOrderHasToMove) {
  const Plan plan =
      PlanBetween("x=2,y=2", "f32[16] [S(0), S(0)]", "[S(0)[1], S(0)[0]]");
  EXPECT_EQ(plan.ToString(), "[S(0), S(0)] -XC(x,y)-> [S(0)[1], S(0)[0]]");
  // Two of the four ranks swap their pieces.
  EXPECT_EQ(ElementsReceived(plan), 4);
}

TEST(PlanReportsTest, SumToAverageIsAScaleAndNoCommunication) {
  const Plan plan = PlanBetween("x=4", "f32[3] [P(sum)]", "[P(avg)]");
  EXPECT_EQ(plan.ToString(), "[P(sum)] -SC(x)-> [P(avg)]");
  EXPECT_EQ(plan.launches(), 0);
}

TEST(PlanReportsTest, IntegersBecomePartialWithoutDivision) {
  EXPECT_EQ(PlanBetween("x=3", "i32[4] [R]", "[P(sum)]").ToString(),
            "[R] -FI(x)-> [P(sum)]");
  EXPECT_EQ(PlanBetween("x=3", "i32[4] [P(sum)]", "[R]").ToString(),
            "[P(sum)] -AR(x)-> [R]");
}

// Replicas of the addends share the work, or each do all of it: in either case
// they end with the same sums.
TEST(PlanReportsTest, ReplicasReduceAlike) {
  EXPECT_EQ(PlanBetween("x=3,y=2", "f32[1000] [P, R]", "[R, R]").ToString(),
            "[P(sum), R] -SL(y)-> [P(sum), S(0)] -AR(x)-> [R, S(0)] -AG(y)-> "
            "[R, R]");
  EXPECT_EQ(
      PlanBetween("x=3,y=2", "f32[8] [P, R]", "[R, R]", Topology::LocalCpu())
          .ToString(),
      "[P(sum), R] -AR(x)-> [R, R]");
}

TEST(PlanReportsTest, AxesOfSizeOneAreRelabelled) {
  for (const char* target : {"[S(0), R, P, S(1)]", "[S(1), S(0), S(0), P]"}) {
    const Plan plan =
        PlanBetween("a=1,b=1,c=1,d=1", "f32[5,3] [P, S(0), R, S(0)]", target);
    EXPECT_EQ(plan.launches(), 0) << plan;
    EXPECT_EQ(plan.bytes_received(), 0) << plan;
  }
}

TEST(PlanReportsTest, SizesThatNothingDividesAreCounted) {
  const int64_t piece = (1'000'003 + 6) / 7;
  // The last rank has the smallest piece.
  EXPECT_EQ(ElementsReceived(PlanBetween("x=7", "f32[1000003] [S(0)]", "[R]")),
            6 * piece);
  EXPECT_EQ(ElementsReceived(PlanBetween("x=7", "f32[1000003] [P]", "[S(0)]")),
            6 * piece);
  EXPECT_EQ(ElementsReceived(PlanBetween("x=4", "f32[0,4] [S(0)]", "[S(1)]")),
            0);
  EXPECT_EQ(ElementsReceived(PlanBetween("x=4", "f32[0,4] [P]", "[R]")), 0);
  EXPECT_EQ(PlanBetween("x=4", "f32[] [P]", "[R]").ToString(),
            "[P(sum)] -AR(x)-> [R]");
}

TEST(PlanReportsTest, AShardThatMovesToAnotherAxisIsExchanged) {
  const Plan plan = PlanBetween("x=2,y=2", "f32[96] [S(0), R]", "[R, S(0)]");
  EXPECT_EQ(plan.ToString(), "[S(0), R] -XC(x,y)-> [R, S(0)]");
  EXPECT_EQ(ElementsReceived(plan), 48);
  EXPECT_EQ(LargestPiece(plan), 48);
}

TEST(PlanReportsTest, AListOfTensorsSharesItsLaunches) {
  const Layout source = Layout::Parse("f32[16,16] [S(0), S(1)]",
                                      DeviceMesh::Parse("x=4,y=4").value())
                            .value();
  const Redistribution swap = {source, source.With("[S(1), S(0)]").value()};
  const ManyPlan plan =
      PlanMany(std::vector<Redistribution>(100, swap), Topology::LocalCpu())
          .value();
  EXPECT_EQ(plan.launches(), 1);
  EXPECT_EQ(plan.bytes_received(), 100 * 16 * 4);
}

}  // namespace
}  // namespace tessera

#include "tessera/redistribute/planner.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/redistribute/all_layouts.h"
#include "tests/redistribute/sampling.h"
#include "tests/redistribute/step_rules.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::AllLayouts;
using ::tessera::testing::LegalStep;
using ::tessera::testing::NamedStep;
using ::tessera::testing::Sampler;
using ::tessera::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

Plan PlanBetween(const std::string& mesh, const std::string& source,
                 const std::string& target,
                 const Topology& topology = Topology::LocalCpu()) {
  const Layout from =
      Layout::Parse(source, DeviceMesh::Parse(mesh).value()).value();
  return MakePlan(from, from.With(target).value(), topology).value();
}

std::string Line(const std::string& mesh, const std::string& source,
                 const std::string& target) {
  return PlanBetween(mesh, source, target).ToString();
}

// What is wrong with the plan's steps.
std::string FaultIn(const Plan& plan) {
  Layout at = plan.source();
  for (const Step& step : plan.steps()) {
    if (step.before != at) return step.Name() + " does not follow";
    at = step.after;
    if (step.kind == StepKind::kExchange) {
      if (step.before.HasPartial() || at.HasPartial()) {
        return step.Name() + " exchanges what is Partial";
      }
      continue;
    }
    const std::optional<NamedStep> legal = LegalStep(step.before, step.after);
    if (!legal.has_value()) return step.Name() + " is no documented step";
    if (legal->kind != step.kind) return step.Name() + " is of another kind";
    if (!absl::c_equal(step.axes, legal->axes)) {
      return step.Name() + " is along other axes";
    }
  }
  return at == plan.target() ? "" : "does not end at the target";
}

class PlannerPairsTest : public ::testing::TestWithParam<const char*> {
 protected:
  PlannerPairsTest()
      : layouts_(AllLayouts(TensorMeta::Parse("f32[5,3]").value(),
                            DeviceMesh::Parse(GetParam()).value(),
                            {ReduceOp::kSum, ReduceOp::kAvg})) {}

  const std::vector<Layout> layouts_;
};

TEST_P(PlannerPairsTest, StepsLeadFromSourceToTargetAlongDocumentedEdges) {
  Sampler sampler(13);
  for (const Layout& source : layouts_) {
    for (const Layout& target : layouts_) {
      if (!sampler.Takes()) continue;
      const Plan plan = MakePlan(source, target, Topology::LocalCpu()).value();
      ASSERT_EQ(FaultIn(plan), "") << source << " -> " << target << plan;
      EXPECT_EQ(plan.source(), source);
      EXPECT_EQ(plan.target(), target);
      EXPECT_EQ(plan.steps().empty(), source == target);
      EXPECT_EQ(plan, MakePlan(source, target, Topology::LocalCpu()).value());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, PlannerPairsTest,
                         ::testing::Values("x=4", "x=2,y=2", "x=2,y=3",
                                           "x=2,y=2,z=2"));

TEST(MakePlanTest, TakesOneStepWhereOneWillDo) {
  EXPECT_EQ(Line("x=4", "f32[8,8] [P]", "[S(0)]"), "[P(sum)] -RS(x)-> [S(0)]");
  EXPECT_EQ(Line("x=4", "f32[8,8] [S(1)]", "[R]"), "[S(1)] -AG(x)-> [R]");
  EXPECT_EQ(Line("x=4", "f32[8,8] [P(max)]", "[R]"), "[P(max)] -AR(x)-> [R]");
  EXPECT_EQ(Line("x=4", "f32[8,8] [S(0)]", "[S(1)]"),
            "[S(0)] -A2A(x)-> [S(1)]");
  EXPECT_EQ(Line("x=4", "f32[8,8] [R]", "[S(0)]"), "[R] -SL(x)-> [S(0)]");
  EXPECT_EQ(Line("x=4", "f32[8,8] [R]", "[P(min)]"), "[R] -FI(x)-> [P(min)]");
  EXPECT_EQ(Line("x=4", "f32[8,8] [S(0)]", "[P]"), "[S(0)] -FI(x)-> [P(sum)]");
  EXPECT_EQ(Line("x=4", "f32[8,8] [P]", "[P(avg)]"),
            "[P(sum)] -SC(x)-> [P(avg)]");
  EXPECT_EQ(Line("x=4", "f32[8,8] [P(avg)]", "[P]"),
            "[P(avg)] -SC(x)-> [P(sum)]");
  EXPECT_EQ(Line("x=2,y=2", "f32[8,8] [S(0), S(0)]", "[S(0), R]"),
            "[S(0), S(0)] -AG(y)-> [S(0), R]");
}

TEST(MakePlanTest, ComposesStepsOfOneAxisEach) {
  EXPECT_EQ(Line("x=4", "f32[8,8] [P(max)]", "[P(sum)]"),
            "[P(max)] -RS(x)-> [S(0)] -FI(x)-> [P(sum)]");
  EXPECT_EQ(Line("x=4", "f32[8,8] [S(0)]", "[P(avg)]"),
            "[S(0)] -FI(x)-> [P(sum)] -SC(x)-> [P(avg)]");
  EXPECT_EQ(Line("x=2,y=2", "f32[8,8] [P, S(0)]", "[R, S(1)]"),
            "[P(sum), S(0)] -A2A(y)-> [P(sum), S(1)] -AR(x)-> [R, S(1)]");
  EXPECT_EQ(Line("x=2,y=2", "f32[8,8] [P, P]", "[R, R]"),
            "[P(sum), P(sum)] -AR(x)-> [R, P(sum)] -AR(y)-> [R, R]");
  EXPECT_EQ(Line("x=2,y=2", "f32[8,8] [P, P]", "[S(0), S(0)]"),
            "[P(sum), P(sum)] -RS(x)-> [S(0), P(sum)] -RS(y)-> [S(0), S(0)]");
  EXPECT_EQ(Line("x=2,y=2", "f32[8,8] [S(0), S(0)]", "[R, R]"),
            "[S(0), S(0)] -AG(y)-> [S(0), R] -AG(x)-> [R, R]");
  // The cutting order decides which axis has to be gathered first.
  EXPECT_EQ(Line("x=2,y=2", "f32[8,8] [S(0)[1], S(0)[0]]", "[R, R]"),
            "[S(0)[1], S(0)[0]] -AG(x)-> [R, S(0)] -AG(y)-> [R, R]");
  EXPECT_EQ(Line("x=2,y=2", "f32[8,8] [S(0), S(0)]", "[S(0)[1], S(0)[0]]"),
            "[S(0), S(0)] -XC(x,y)-> [S(0)[1], S(0)[0]]");
}

// What is worth its launches depends on size and links.
TEST(MakePlanTest, FollowsThePrices) {
  const std::string small = "f32[8,8] [P, P]";
  const std::string large = "f32[4096,4096] [P, P]";
  EXPECT_EQ(PlanBetween("x=2,y=2", small, "[R, R]").launches(), 2);
  EXPECT_EQ(PlanBetween("x=2,y=2", large, "[R, R]").launches(), 3);
  // A slow outer axis: reduce over it what the inner one has scattered.
  const Topology hosts =
      Topology::LocalCpu().WithLink("x", {0, 1'000'000'000}).value();
  EXPECT_EQ(PlanBetween("x=2,y=8", large, "[R, R]", hosts).ToString(),
            "[P(sum), P(sum)] -RS(y)-> [P(sum), S(0)] -AR(x)-> [R, S(0)] "
            "-AG(y)-> [R, R]");
}

TEST(MakePlanTest, RelabelsAxesOfSizeOneWithoutCommunication) {
  EXPECT_EQ(Line("a=1,b=1,c=1,d=1", "f32[8] [S(0), P, R, S(0)]",
                 "[R, P(avg), P(avg), R]"),
            "[S(0), P(sum), R, S(0)] -RL(a,b,c,d)-> [R, P(avg), P(avg), R]");
  EXPECT_EQ(Line("a=1,b=1", "f32[8] [S(0), S(0)]", "[S(0)[1], S(0)[0]]"),
            "[S(0), S(0)] -RL(a,b)-> [S(0)[1], S(0)[0]]");
  EXPECT_EQ(Line("a=1,b=1", "f32[8] [P(min), P(min)]", "[P(sum), S(0)]"),
            "[P(min), P(min)] -RL(a,b)-> [P(sum), S(0)]");
  EXPECT_EQ(Line("a=1,b=2", "f32[8] [P(min), R]", "[R, P(sum)]"),
            "[P(min), R] -RL(a)-> [R, R] -FI(b)-> [R, P(sum)]");
  EXPECT_EQ(Line("a=1,b=2", "f32[8] [R, S(0)]", "[S(0), R]"),
            "[R, S(0)] -AG(b)-> [R, R] -RL(a)-> [S(0), R]");
  EXPECT_EQ(Line("a=1,b=2", "f32[8] [S(0), S(0)]", "[S(0)[1], S(0)[0]]"),
            "[S(0), S(0)] -RL(a,b)-> [S(0)[1], S(0)[0]]");
}

TEST(MakePlanTest, NeverCommunicatesWhereAllAxesHaveSizeOne) {
  const std::vector<Layout> layouts =
      AllLayouts(TensorMeta::Parse("f32[5,3]").value(),
                 DeviceMesh::Parse("a=1,b=1,c=1").value(),
                 {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMin});
  for (const Layout& source : layouts) {
    for (const Layout& target : layouts) {
      const Plan plan = MakePlan(source, target, Topology::LocalCpu()).value();
      EXPECT_EQ(plan.launches(), 0) << plan;
      EXPECT_EQ(plan.steps().size(), source == target ? 0u : 1u) << plan;
    }
  }
}

TEST(MakePlanTest, ReducesBesideARaggedCutInOneStep) {
  const Plan plan =
      PlanBetween("outer=2,inner=2", "f32[4,6] [P, Ragged(-3+16)[0]]",
                  "[R, Ragged(-3+16)[0]]");
  EXPECT_EQ(plan.ToString(),
            "[P(sum), Ragged(-3+16)[0]] -AR(outer)-> [R, Ragged(-3+16)[0]]");
  EXPECT_EQ(plan.bytes_received(), 4 * 13);
  EXPECT_EQ(Line("a=2,b=1,c=2,d=1",
                 "f32[4,6] [P, Ragged(0,12,24)[1], Ragged(0,12,24)[0], S(0)]",
                 "[P(avg), Ragged(0,12,24)[1], Ragged(0,12,24)[0], R]"),
            "[P(sum), Ragged(0,12,24)[1], Ragged(0,12,24)[0], S(0)] -RL(d)-> "
            "[P(sum), Ragged(0,12,24)[1], Ragged(0,12,24)[0], R] -SC(a)-> "
            "[P(avg), Ragged(0,12,24)[1], Ragged(0,12,24)[0], R]");
}

TEST(MakePlanTest, CountsBytesBesideARaggedCutThatBeginsAtTheLimit) {
  const std::string cut = "Ragged(-9223372036854775808+9223372036854775807)[0]";
  const Plan plan = PlanBetween("outer=2,inner=2", "f32[100] [P, " + cut + "]",
                                "[R, " + cut + "]");
  EXPECT_EQ(plan.bytes_received(), 400);
}

TEST(MakePlanTest, RejectsTensorsThatDiffer) {
  const DeviceMesh mesh = DeviceMesh::Parse("x=2").value();
  const Layout layout = Layout::Parse("f32[8] [R]", mesh).value();
  const auto plan_to = [&](const char* text, const DeviceMesh& target_mesh) {
    return MakePlan(layout, Layout::Parse(text, target_mesh).value(),
                    Topology::LocalCpu());
  };
  EXPECT_THAT(plan_to("f32[9] [R]", mesh),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("f32[8]"), HasSubstr("f32[9]"))));
  EXPECT_THAT(plan_to("bf16[8] [R]", mesh),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("f32[8]"), HasSubstr("bf16[8]"))));
}

TEST(MakePlanTest, PlansForAnyNumberOfRanks) {
  EXPECT_EQ(PlanBetween("x=1024,y=128", "bf16[4096,14336] [P, S(0)]",
                        "[R, S(1)]", Topology::Unit())
                .ToString(),
            "[P(sum), S(0)] -RS(x)-> [S(1), S(0)] -XC(x,y)-> [R, S(1)]");
}

}  // namespace
}  // namespace tessera

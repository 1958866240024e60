#include "tessera/redistribute/plan_many.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/redistribute/planner.h"
#include "tests/redistribute/all_layouts.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::AllLayouts;
using ::tessera::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

Layout ParseLayout(const std::string& mesh, const std::string& text) {
  return Layout::Parse(text, DeviceMesh::Parse(mesh).value()).value();
}

Redistribution Between(const std::string& mesh, const std::string& source,
                       const std::string& target) {
  const Layout from = ParseLayout(mesh, source);
  return {from, from.With(target).value()};
}

// Latency, bandwidth and launches of different weight; tp is slow.
Topology SlowTp() {
  return Topology::Create("prices", {7'000, 3'000'000'000}, 50'000, 1 << 30)
      .value()
      .WithLink("tp", {90'000, 100'000'000})
      .value();
}

ManyPlan Many(const std::vector<Redistribution>& tensors) {
  return PlanMany(tensors, SlowTp()).value();
}

Step MakeExchange(const Layout& before, const Layout& after, int64_t messages) {
  Step step;
  step.kind = StepKind::kExchange;
  for (int axis = 0; axis < before.mesh().num_axes(); ++axis) {
    step.axes.push_back(axis);
  }
  step.before = before;
  step.after = after;
  step.bytes_received = 100;
  step.messages = messages;
  step.time_ps = SlowTp().launch_ps() + 1000;
  return step;
}

Plan ExchangePlan(const Layout& before, const Layout& after,
                  int64_t messages = 3) {
  return Plan(before, after, {MakeExchange(before, after, messages)});
}

// ---------------------------------------------------------------------------
// Which steps share a launch.

TEST(PlanManyTest, EqualRedistributionsShareEveryLaunch) {
  const Redistribution two_steps =
      Between("dp=2,tp=4", "bf16[1024,4096] [P(sum), S(0)]", "[R, S(1)]");
  ASSERT_OK_AND_ASSIGN(const Plan one,
                       MakePlan(two_steps.source, two_steps.target, SlowTp()));
  ASSERT_GT(one.launches(), 1);
  const ManyPlan many = Many(std::vector<Redistribution>(7, two_steps));
  EXPECT_THAT(many.plans(), ::testing::Each(one));
  EXPECT_EQ(many.launches(), one.launches());
  for (const Stage& stage : many.stages()) {
    EXPECT_EQ(stage.members.size(), 7u);
  }
}

TEST(PlanManyTest, WeightsOfAModelAreGatheredInOneLaunch) {
  std::vector<Redistribution> weights;
  for (int i = 0; i < 30; ++i) {
    weights.push_back(
        Between("dp=8", absl::StrCat("bf16[", 1000 + i, ",64] [S(0)]"), "[R]"));
  }
  weights.push_back(Between("dp=8", "f32[1000] [S(0)]", "[R]"));
  const ManyPlan many = Many(weights);
  EXPECT_EQ(many.ToString(), "AG(dp) x31");
  EXPECT_EQ(many.launches(), 1);
  EXPECT_EQ(many.stages()[0].messages, 7);
  EXPECT_EQ(many.stages()[0].members[30], (StepOfPlan{30, 0}));
}

TEST(PlanManyTest, AnEmptyListHasNothingToDo) {
  ASSERT_OK_AND_ASSIGN(const ManyPlan many, PlanMany({}, Topology::LocalCpu()));
  EXPECT_EQ(many, ManyPlan());
  EXPECT_EQ(many.ToString(), "");
  EXPECT_EQ(many.time_ps(), 0);
  EXPECT_EQ(many.peak_bytes(), 0);
}

TEST(PlanManyTest, LocalStepsNeedNoStage) {
  const ManyPlan many = Many({Between("x=4", "f32[8] [R]", "[S(0)]"),
                              Between("x=4", "f32[8] [R]", "[R]"),
                              Between("x=1", "f32[8] [S(0)]", "[R]")});
  EXPECT_THAT(many.stages(), IsEmpty());
  EXPECT_EQ(many.plans().size(), 3u);
  EXPECT_EQ(many.time_ps(), many.plans()[0].time_ps());
  EXPECT_GT(many.time_ps(), 0);
}

TEST(PlanManyTest, OtherKindsAxesAndMeshesGoSeparately) {
  const ManyPlan many =
      Many({Between("x=2,y=2", "f32[8,8] [S(0), R]", "[R, R]"),
            Between("x=2,y=2", "f32[8,8] [R, S(0)]", "[R, R]"),
            Between("x=2,y=2", "f32[8,8] [S(0), R]", "[S(1), R]"),
            Between("x=2,z=2", "f32[8,8] [S(0), R]", "[R, R]"),
            Between("x=2,y=2@4", "f32[8,8] [S(0), R]", "[R, R]")});
  EXPECT_EQ(many.ToString(),
            "AG(x) x1, AG(y) x1, A2A(x) x1, AG(x) x1, AG(x) x1");
}

TEST(PlanManyTest, ReductionsShareWithThoseOfTheSameOpAndDType) {
  const ManyPlan many = Many({Between("x=4", "f32[8] [P(sum)]", "[R]"),
                              Between("x=4", "f32[8] [P(max)]", "[R]"),
                              Between("x=4", "bf16[8] [P(sum)]", "[R]"),
                              Between("x=4", "f32[9,3] [P(sum)]", "[R]"),
                              Between("x=4", "f32[8] [P(sum)]", "[S(0)]"),
                              Between("x=4", "f32[8] [P(avg)]", "[S(0)]"),
                              Between("x=4", "f32[8,2] [P(sum)]", "[S(1)]")});
  EXPECT_EQ(many.ToString(),
            "AR(x) x2, RS(x) x2, AR(x) x1, AR(x) x1, RS(x) x1");
  EXPECT_THAT(many.stages()[0].members,
              ElementsAre(StepOfPlan{0, 0}, StepOfPlan{3, 0}));
  EXPECT_THAT(many.stages()[1].members,
              ElementsAre(StepOfPlan{4, 0}, StepOfPlan{6, 0}));
}

TEST(PlanManyTest, WhatIsMovedSharesWhateverItsDTypeAndDims) {
  const ManyPlan many = Many({Between("x=4", "f32[8,8] [S(0)]", "[R]"),
                              Between("x=4", "i32[8,8,4] [S(2)]", "[R]"),
                              Between("x=4", "bf16[5] [S(0)]", "[R]")});
  EXPECT_EQ(many.ToString(), "AG(x) x3");
}

TEST(PlanManyTest, AStageWaitsForThoseThatCanStillJoinIt) {
  const Redistribution both_axes =
      Between("dp=2,tp=2", "f32[8,8] [S(0), S(1)]", "[R, R]");
  const Redistribution dp_only =
      Between("dp=2,tp=2", "f32[8,8] [S(0), R]", "[R, R]");
  const ManyPlan many = Many({dp_only, dp_only, both_axes, dp_only});
  ASSERT_EQ(many.plans()[2].ToString(),
            "[S(0), S(1)] -AG(tp)-> [S(0), R] -AG(dp)-> [R, R]");
  EXPECT_EQ(many.ToString(), "AG(tp) x1, AG(dp) x4");
}

TEST(CoalesceTest, OfStepsThatNobodyCanJoinTheMostAreFirst) {
  const Topology topology = SlowTp();
  const auto plan = [&](const char* source, const char* target) {
    const Redistribution tensor = Between("x=2,y=2", source, target);
    return MakePlan(tensor.source, tensor.target, topology).value();
  };
  const Plan x = plan("f32[8,8] [S(0), R]", "[R, R]");
  const Plan y = plan("f32[8,8] [R, S(0)]", "[R, R]");
  EXPECT_EQ(Coalesce({x, y, y}, topology).ToString(), "AG(y) x2, AG(x) x1");
  EXPECT_EQ(Coalesce({x, y}, topology).ToString(), "AG(x) x1, AG(y) x1");
  EXPECT_EQ(Coalesce({y, x}, topology).ToString(), "AG(y) x1, AG(x) x1");
}

TEST(CoalesceTest, StepsThatRepeatInAPlanDoNotJoinThemselves) {
  const Layout rows = ParseLayout("x=2", "f32[8,8] [S(0)]");
  const Layout columns = ParseLayout("x=2", "f32[8,8] [S(1)]");
  const Plan there_and_back(
      rows, rows,
      {MakeExchange(rows, columns, 1), MakeExchange(columns, rows, 1)});
  const ManyPlan many = Coalesce({there_and_back, there_and_back}, SlowTp());
  ASSERT_EQ(many.launches(), 2);
  EXPECT_THAT(many.stages()[0].members,
              ElementsAre(StepOfPlan{0, 0}, StepOfPlan{1, 0}));
  EXPECT_THAT(many.stages()[1].members,
              ElementsAre(StepOfPlan{0, 1}, StepOfPlan{1, 1}));
}

TEST(CoalesceTest, ExchangesShareBetweenTheSameMeshes) {
  const Layout here = ParseLayout("x=2", "f32[8] [S(0)]");
  const Layout there = ParseLayout("y=2@2", "f32[8] [S(0)]");
  const Layout elsewhere = ParseLayout("y=2@4", "f32[8] [S(0)]");
  const ManyPlan many =
      Coalesce({ExchangePlan(here, there), ExchangePlan(here, elsewhere),
                ExchangePlan(here, there), ExchangePlan(there, here)},
               SlowTp());
  EXPECT_EQ(many.ToString(), "XC(x) x2, XC(x) x1, XC(y) x1");
}

// ---------------------------------------------------------------------------
// Figures.

TEST(CoalesceTest, LikeExchangesHaveTheirMessagesInCommon) {
  const Layout rows = ParseLayout("x=4", "f32[8,8] [S(0)]");
  const Layout columns = ParseLayout("x=4", "f32[8,8] [S(1)]");
  const Layout ragged = ParseLayout("x=4", "f32[8,8] [Ragged(0,1,2,3,64)]");
  const ManyPlan many =
      Coalesce({ExchangePlan(rows, columns, 3), ExchangePlan(rows, columns, 3),
                ExchangePlan(rows, ragged, 2)},
               SlowTp());
  ASSERT_EQ(many.launches(), 1);
  EXPECT_EQ(many.stages()[0].messages, 3 + 2);
  EXPECT_EQ(many.stages()[0].bytes_received, 300);
  EXPECT_EQ(many.stages()[0].time_ps, SlowTp().launch_ps() + 3 * 1000);
}

// Several tensors cost what one does that has all their elements.
TEST(PlanManyTest, SeveralTensorsCostWhatOneLargeOneDoes) {
  const std::pair<std::string, std::string> ends[] = {{"[S(0)]", "[R]"},
                                                      {"[P(sum)]", "[R]"},
                                                      {"[P(sum)]", "[S(1)]"},
                                                      {"[S(0)]", "[S(1)]"}};
  for (const char* mesh : {"x=4", "tp=4"}) {
    for (const auto& end : ends) {
      const auto tensor = [&](const char* meta) {
        return Between(mesh, absl::StrCat(meta, " ", end.first), end.second);
      };
      const ManyPlan several = Many(
          {tensor("f32[8,4,1]"), tensor("f32[8,4,5]"), tensor("f32[8,4,2]")});
      const ManyPlan large = Many({tensor("f32[8,4,8]")});
      ASSERT_EQ(several.launches(), 1);
      EXPECT_EQ(several.bytes_received(), large.bytes_received());
      EXPECT_EQ(several.stages()[0].messages, large.stages()[0].messages);
      EXPECT_LE(std::abs(several.time_ps() - large.time_ps()), 2);
    }
  }
}

TEST(PlanManyTest, MemoryIsThatOfAllTensors) {
  const Redistribution tensor =
      Between("dp=2,tp=2", "f32[8,8] [S(0), S(1)]", "[R, R]");
  const ManyPlan many = Many({tensor, tensor, tensor});
  const Plan& plan = many.plans()[0];
  ASSERT_GT(plan.workspace_bytes(), 0);
  EXPECT_EQ(many.workspace_bytes(), 3 * plan.workspace_bytes());
  EXPECT_EQ(many.peak_bytes(), 3 * plan.peak_bytes());
}

TEST(CoalesceTest, FiguresThatDoNotFitBecomeTheGreatestValue) {
  const Layout rows = ParseLayout("x=4", "f32[8,8] [S(0)]");
  const Layout columns = ParseLayout("x=4", "f32[8,8] [S(1)]");
  Step step = MakeExchange(rows, columns, 3);
  step.bytes_received = INT64_MAX;
  step.time_ps = INT64_MAX;
  const Plan plan(rows, columns, {step});
  const ManyPlan many = Coalesce({plan, plan}, SlowTp());
  EXPECT_EQ(many.stages()[0].bytes_received, INT64_MAX);
  EXPECT_EQ(many.stages()[0].time_ps, INT64_MAX);
  EXPECT_EQ(many.bytes_received(), INT64_MAX);
  EXPECT_EQ(many.time_ps(), INT64_MAX);
}

// ---------------------------------------------------------------------------
// Errors, text, fingerprint.

TEST(PlanManyTest, NamesTheTensorThatHasNoPlan) {
  const Redistribution good = Between("x=4", "f32[8] [S(0)]", "[R]");
  EXPECT_THAT(PlanMany({good,
                        good,
                        {good.source, ParseLayout("x=4", "f32[9] [R]")},
                        {good.source, ParseLayout("x=4", "f32[7] [R]")}},
                       SlowTp()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(StartsWith("plan_many: tensor 2: redistribute: "),
                             HasSubstr("f32[9]"))));
}

TEST(ManyPlanTest, PrintsAsATable) {
  const Layout here = ParseLayout("x=2", "f32[8] [S(0)]");
  const Layout there = ParseLayout("y=2@2", "f32[8] [S(0)]");
  const Topology unit = Topology::Unit();
  const auto plan = [&](const char* source, const char* target) {
    const Redistribution tensor = Between("dp=2,tp=2", source, target);
    return MakePlan(tensor.source, tensor.target, unit).value();
  };
  Plan exchange = ExchangePlan(here, there);
  const ManyPlan many =
      Coalesce({plan("f32[1000,2000] [S(0), R]", "[R, R]"),
                plan("f32[1000,1000] [S(0), R]", "[R, R]"),
                plan("f32[1000,1000] [R, R]", "[R, S(0)]"), exchange},
               unit);
  EXPECT_EQ(many.ToTable(),
            "step        axes  mesh          "
            "tensors    bytes  messages  time us\n"
            "all_gather  dp    dp=2,tp=2     "
            "      2  6000000         1      6.0\n"
            "exchange    x     x=2 -> y=2@2  "
            "      1      100         3      0.1\n"
            "1 local                         "
            "               0         0      0.0\n"
            "total                           "
            "      4  6000100         4      6.1\n");
}

TEST(ManyPlanTest, FingerprintTellsPlansAndStagesApartButNotPrices) {
  const Redistribution a = Between("x=4", "f32[8] [S(0)]", "[R]");
  const Redistribution b = Between("x=4", "f32[9] [S(0)]", "[R]");
  std::set<uint64_t> seen;
  const auto is_new = [&](const ManyPlan& many) {
    return seen.insert(many.fingerprint()).second;
  };
  EXPECT_TRUE(is_new(Many({})));
  EXPECT_TRUE(is_new(Many({a})));
  EXPECT_TRUE(is_new(Many({a, a})));
  EXPECT_TRUE(is_new(Many({a, b})));
  EXPECT_TRUE(is_new(Many({b, a})));
  const ManyPlan both = Many({a, b});
  Stage first = both.stages()[0];
  Stage second = first;
  first.members.pop_back();
  second.members.erase(second.members.begin());
  const std::vector<Plan> plans(both.plans().begin(), both.plans().end());
  EXPECT_TRUE(is_new(ManyPlan(plans, {first, second})));
  EXPECT_TRUE(is_new(ManyPlan(plans, {second, first})));
  EXPECT_FALSE(is_new(PlanMany({a, b}, Topology::LocalCpu()).value()));
  // The same in every process, on every host.
  EXPECT_EQ(ManyPlan().fingerprint(), 0x4a262010df9f7dbeu);
}

// ---------------------------------------------------------------------------
// All rules, on random lists.

// Tensors of several dtypes on several meshes, which move at random.
std::vector<Redistribution> RandomTensors(std::mt19937& random) {
  static const std::vector<std::vector<Layout>>* const kWorlds = [] {
    auto* worlds = new std::vector<std::vector<Layout>>;
    const ReduceOp ops[] = {ReduceOp::kSum, ReduceOp::kMax};
    for (const char* mesh : {"dp=2,tp=3", "x=4", "tp=3,dp=2", "x=1,y=2"}) {
      for (const char* meta : {"f32[5,3]", "i32[8,4]"}) {
        worlds->push_back(AllLayouts(TensorMeta::Parse(meta).value(),
                                     DeviceMesh::Parse(mesh).value(), ops));
      }
    }
    return worlds;
  }();
  std::vector<Redistribution> tensors(random() % 12);
  for (Redistribution& tensor : tensors) {
    const std::vector<Layout>& layouts = (*kWorlds)[random() % kWorlds->size()];
    tensor = {layouts[random() % layouts.size()],
              layouts[random() % layouts.size()]};
  }
  return tensors;
}

// What keeps two steps from sharing a launch.
std::string DifferenceOf(const Step& a, const Step& b) {
  if (a.kind != b.kind) return "kind";
  if (a.axes != b.axes) return "axes";
  if (a.before.mesh() != b.before.mesh()) return "mesh";
  const Placement& from_a = a.before.placement(a.axes[0]);
  const Placement& from_b = b.before.placement(b.axes[0]);
  if (!from_a.is_partial()) return "";
  if (from_a != from_b) return "op";
  return a.before.dtype() == b.before.dtype() ? "" : "dtype";
}

std::vector<int> CommunicatingSteps(const Plan& plan) {
  std::vector<int> steps;
  for (size_t i = 0; i < plan.steps().size(); ++i) {
    if (Communicates(plan.steps()[i].kind)) {
      steps.push_back(static_cast<int>(i));
    }
  }
  return steps;
}

// Takes the stages one by one: each has the next step of its members' plans,
// all that it can have, and what there is to do is done in the end.
void CheckStages(const ManyPlan& many) {
  std::vector<std::vector<int>> left;  // of each plan, the last step first
  for (const Plan& plan : many.plans()) {
    left.push_back(CommunicatingSteps(plan));
    std::reverse(left.back().begin(), left.back().end());
  }
  for (const Stage& stage : many.stages()) {
    ASSERT_FALSE(stage.members.empty());
    const Step& first = many.step(stage.members[0]);
    std::vector<StepOfPlan> joining;
    for (size_t plan = 0; plan < left.size(); ++plan) {
      if (left[plan].empty()) continue;
      const StepOfPlan ready = {static_cast<int>(plan), left[plan].back()};
      if (DifferenceOf(first, many.step(ready)) == "") joining.push_back(ready);
    }
    ASSERT_EQ(stage.members, joining);
    for (const StepOfPlan& member : joining) left[member.plan].pop_back();
  }
  EXPECT_THAT(left, ::testing::Each(IsEmpty()));
}

void CheckFigures(const ManyPlan& many) {
  int64_t launches = 0;
  int64_t bytes = 0;
  int64_t time_ps = 0;
  int64_t most_launches = 0;
  int64_t longest_ps = 0;
  for (const Plan& plan : many.plans()) {
    launches += plan.launches();
    bytes += plan.bytes_received();
    time_ps += plan.time_ps();
    most_launches = std::max(most_launches, plan.launches());
    longest_ps = std::max(longest_ps, plan.time_ps());
  }
  EXPECT_LE(many.launches(), launches);
  EXPECT_GE(many.launches(), most_launches);
  EXPECT_EQ(many.bytes_received(), bytes);
  EXPECT_GE(many.time_ps(), longest_ps);
  const int64_t saved = (launches - many.launches()) * SlowTp().launch_ps();
  EXPECT_LE(many.time_ps(), time_ps - saved);
  int64_t stage_bytes = 0;
  for (const Stage& stage : many.stages()) {
    stage_bytes += stage.bytes_received;
    for (const StepOfPlan& member : stage.members) {
      const Step& step = many.step(member);
      if (step.kind == StepKind::kExchange) {
        EXPECT_GE(stage.messages, step.messages);
      } else {
        EXPECT_EQ(stage.messages, step.messages);
      }
      EXPECT_GE(stage.time_ps, many.step(member).time_ps);
    }
    if (stage.members.size() == 1) {
      EXPECT_EQ(stage.time_ps, many.step(stage.members[0]).time_ps);
    }
  }
  EXPECT_EQ(stage_bytes, bytes);
}

TEST(PlanManyTest, StagesMergeAllPlansStepByStep) {
  const uint32_t seed = ::testing::UnitTest::GetInstance()->random_seed();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  int64_t shared = 0;
  for (int i = 0; i < 300; ++i) {
    const std::vector<Redistribution> tensors = RandomTensors(random);
    ASSERT_OK_AND_ASSIGN(const ManyPlan many, PlanMany(tensors, SlowTp()));
    ASSERT_EQ(many.plans().size(), tensors.size());
    for (size_t k = 0; k < tensors.size(); ++k) {
      ASSERT_EQ(
          many.plans()[k],
          MakePlan(tensors[k].source, tensors[k].target, SlowTp()).value());
    }
    CheckStages(many);
    CheckFigures(many);
    for (const Stage& stage : many.stages()) {
      shared += static_cast<int64_t>(stage.members.size()) - 1;
    }
    EXPECT_EQ(many, PlanMany(tensors, SlowTp()).value());
    if (HasFailure()) return;
  }
  EXPECT_GT(shared, 0);
}

}  // namespace
}  // namespace tessera

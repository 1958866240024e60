// Plan::fingerprint.

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/redistribute/plan.h"
#include "tessera/redistribute/planner.h"
#include "tests/redistribute/all_layouts.h"

namespace tessera {
namespace {

using ::tessera::testing::AllLayouts;

Layout ParseLayout(const char* mesh, const char* text) {
  return Layout::Parse(text, DeviceMesh::Parse(mesh).value()).value();
}

Plan PlanBetween(const char* mesh, const char* source, const char* target) {
  const Layout from = ParseLayout(mesh, source);
  return MakePlan(from, from.With(target).value(), Topology::Unit()).value();
}

Step MakeStep(StepKind kind, absl::InlinedVector<int, 2> axes,
              const Layout& before, const Layout& after) {
  Step step;
  step.kind = kind;
  step.axes = std::move(axes);
  step.before = before;
  step.after = after;
  return step;
}

// If these change, ranks of different versions of the library refuse to work
// together: change the version in the hashed text too.
TEST(FingerprintTest, IsTheSameInEveryProcessAndFromEveryCompiler) {
  const Layout none;
  EXPECT_EQ(Plan(none, none, {}).fingerprint(), 0xeaf19dc3c1e65236u);

  const Layout source =
      ParseLayout("dp=2,tp=4", "bf16[4096,14336] [P(sum), S(0)]");
  const Layout between = source.With("[P(sum), S(1)]").value();
  const Layout target = source.With("[R, S(1)]").value();
  const Plan plan(source, target,
                  {MakeStep(StepKind::kAllToAll, {1}, source, between),
                   MakeStep(StepKind::kAllReduce, {0}, between, target)});
  EXPECT_EQ(plan.fingerprint(), 0x794229d01c977827u);
}

TEST(FingerprintTest, LeavesPricesOut) {
  const Layout source = ParseLayout("x=2", "f32[8] [S(0)]");
  Step step =
      MakeStep(StepKind::kAllGather, {0}, source, source.With("[R]").value());
  const Plan free(source, step.after, {step});
  step.bytes_received = 16;
  step.messages = 1;
  step.time_ps = 1'000'000;
  const Plan priced(source, step.after, {step});
  EXPECT_NE(free, priced);
  EXPECT_EQ(free.fingerprint(), priced.fingerprint());
}

TEST(FingerprintTest, TellsMeshesAndTensorsApart) {
  const Plan plans[] = {
      PlanBetween("x=2,y=2", "f32[8,4] [S(0), R]", "[R, R]"),
      PlanBetween("y=2,x=2", "f32[8,4] [S(0), R]", "[R, R]"),
      PlanBetween("x=2,y=3", "f32[8,4] [S(0), R]", "[R, R]"),
      PlanBetween("x=2,y=2@1", "f32[8,4] [S(0), R]", "[R, R]"),
      PlanBetween("x=2:1,y=2:2", "f32[8,4] [S(0), R]", "[R, R]"),
      PlanBetween("x=2,y=2", "i32[8,4] [S(0), R]", "[R, R]"),
      PlanBetween("x=2,y=2", "f32[84] [S(0), R]", "[R, R]"),
      PlanBetween("x=2,y=2", "f32[8,4,1] [S(0), R]", "[R, R]"),
      PlanBetween("x=2,y=2", "f32[4] [Ragged(0,1,4), P]", "[Ragged(0,1,4), R]"),
      PlanBetween("x=2,y=2", "f32[4] [Ragged(0,2,4), P]", "[Ragged(0,2,4), R]"),
      PlanBetween("x=2,y=2", "f32[4] [Ragged(0+2), P]", "[Ragged(0+2), R]"),
  };
  std::map<uint64_t, Plan> seen;
  for (const Plan& plan : plans) {
    EXPECT_TRUE(seen.emplace(plan.fingerprint(), plan).second)
        << plan << " like " << seen.at(plan.fingerprint());
  }
}

TEST(FingerprintTest, TellsMeshesOfStepsApart) {
  const Layout source = ParseLayout("x=2", "f32[8] [S(0)]");
  const Layout whole = source.With("[R]").value();
  const auto exchange = [&](const Layout& after) {
    return MakeStep(StepKind::kExchange, {0}, source, after);
  };
  // By way of `between` to the source's own mesh.
  const auto by_way_of = [&](const Layout& between) {
    return Plan(source, whole,
                {exchange(between),
                 MakeStep(StepKind::kExchange, {0}, between, whole)});
  };
  std::vector<Plan> plans = {Plan(source, whole, {exchange(whole)}),
                             by_way_of(ParseLayout("x=2", "f32[8] [R]"))};
  for (const char* mesh : {"x=2@2", "x=2@1", "x=2:2", "y=2", "x=3"}) {
    const Layout elsewhere = ParseLayout(mesh, "f32[8] [R]");
    plans.push_back(Plan(source, elsewhere, {exchange(elsewhere)}));
    plans.push_back(by_way_of(elsewhere));
  }
  std::map<uint64_t, Plan> seen;
  for (const Plan& plan : plans) {
    EXPECT_TRUE(seen.emplace(plan.fingerprint(), plan).second)
        << plan << " like " << seen.at(plan.fingerprint());
  }
}

TEST(FingerprintTest, TellsKindsAxesAndLayoutsOfStepsApart) {
  const Layout start = ParseLayout("x=2,y=2", "f32[8,4] [S(0), S(0)]");
  const Layout reversed = start.With("[S(0)[1], S(0)[0]]").value();
  const Layout end = start.With("[R, R]").value();
  const Plan plans[] = {
      Plan(start, end, {MakeStep(StepKind::kAllGather, {0, 1}, start, end)}),
      Plan(start, end, {MakeStep(StepKind::kAllGather, {1, 0}, start, end)}),
      Plan(start, end, {MakeStep(StepKind::kAllGather, {1}, start, end)}),
      Plan(start, end, {MakeStep(StepKind::kAllReduce, {0, 1}, start, end)}),
      Plan(start, end,
           {MakeStep(StepKind::kAllToAll, {0, 1}, start, reversed),
            MakeStep(StepKind::kAllGather, {0, 1}, reversed, end)}),
      Plan(reversed, end,
           {MakeStep(StepKind::kAllGather, {0, 1}, reversed, end)}),
      Plan(start, reversed,
           {MakeStep(StepKind::kAllToAll, {0, 1}, start, reversed)}),
      Plan(start, start, {}),
      Plan(end, end, {}),
  };
  std::map<uint64_t, Plan> seen;
  for (const Plan& plan : plans) {
    EXPECT_TRUE(seen.emplace(plan.fingerprint(), plan).second)
        << plan << " like " << seen.at(plan.fingerprint());
  }
}

TEST(FingerprintTest, TellsAllPairsOfLayoutsApart) {
  const std::vector<Layout> layouts =
      AllLayouts(TensorMeta::Parse("f32[5,3]").value(),
                 DeviceMesh::Parse("x=2,y=2").value(), kAllReduceOps);
  std::map<uint64_t, Plan> seen;
  for (const Layout& source : layouts) {
    for (const Layout& target : layouts) {
      const Plan plan = MakePlan(source, target, Topology::Unit()).value();
      EXPECT_TRUE(seen.emplace(plan.fingerprint(), plan).second)
          << plan << " like " << seen.at(plan.fingerprint());
    }
  }
}

}  // namespace
}  // namespace tessera

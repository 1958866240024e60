#include "tessera/redistribute/alternatives.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/redistribute/verify.h"
#include "tests/redistribute/all_layouts.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::AllLayouts;
using ::tessera::testing::StatusIs;
using ::testing::IsEmpty;

Layout ParseLayout(const std::string& mesh, const std::string& text) {
  return Layout::Parse(text, DeviceMesh::Parse(mesh).value()).value();
}

Topology H100() { return Topology::Preset("h100-ib").value(); }

TEST(AlternativePlansTest, AreOtherWaysTheCheapestFirst) {
  const struct {
    const char* mesh;
    const char* from;
    const char* to_mesh;
    const char* to;
  } cases[] = {
      {"dp=2,tp=4", "bf16[4096,14336] [P, S(0)]", "dp=2,tp=4", "[R, S(1)]"},
      {"x=2,y=3", "f32[7,5] [S(0)[1], S(0)[0]]", "x=2,y=3", "[S(1), P]"},
      {"x=2,y=2,z=2", "f32[8,8] [P, S(0), R]", "x=2,y=2,z=2", "[S(1), R, R]"},
      {"x=4", "f32[16] [S(0)]", "y=2@4", "[S(0)]"},
      {"x=4", "f32[16] [P]", "x=4", "[Ragged(0,1,2,3,16)]"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.from);
    const Layout from = ParseLayout(c.mesh, c.from);
    const Layout to =
        ParseLayout(c.to_mesh, from.meta().ToString() + " " + c.to);
    const Plan best = MakePlan(from, to, H100()).value();
    ASSERT_OK_AND_ASSIGN(const std::vector<Plan> plans,
                         AlternativePlans(from, to, H100(), 100));
    EXPECT_FALSE(plans.empty());
    std::set<uint64_t> different = {best.fingerprint()};
    int64_t time = best.time_ps();
    for (const Plan& plan : plans) {
      EXPECT_EQ(plan.source(), from);
      EXPECT_EQ(plan.target(), to);
      EXPECT_OK(Verify(plan)) << plan;
      EXPECT_TRUE(different.insert(plan.fingerprint()).second) << plan;
      EXPECT_GE(plan.time_ps(), time) << plan;
      time = plan.time_ps();
    }
  }
}

TEST(AlternativePlansTest, NeverComePastALayoutTwice) {
  const std::vector<Layout> layouts =
      AllLayouts(TensorMeta::Parse("f32[8,8]").value(),
                 DeviceMesh::Parse("x=2,y=2").value(), {ReduceOp::kSum});
  for (const Layout& from : layouts) {
    for (const Layout& to : layouts) {
      ASSERT_OK_AND_ASSIGN(const std::vector<Plan> plans,
                           AlternativePlans(from, to, H100(), 1000));
      for (const Plan& plan : plans) {
        std::set<std::string> seen = {from.ToString()};
        for (const Step& step : plan.steps()) {
          EXPECT_TRUE(seen.insert(step.after.ToString()).second) << plan;
        }
      }
    }
  }
}

TEST(AlternativePlansTest, AreAsManyAsWanted) {
  const Layout from = ParseLayout("x=2,y=2", "f32[8,8] [P, S(0)]");
  const Layout to = from.With("[S(1), R]").value();
  const std::vector<Plan> all = AlternativePlans(from, to, H100(), 100).value();
  ASSERT_GT(all.size(), 3u);
  const std::vector<Plan> some = AlternativePlans(from, to, H100(), 3).value();
  EXPECT_EQ(some, std::vector<Plan>(all.begin(), all.begin() + 3));
  EXPECT_THAT(AlternativePlans(from, to, H100(), 0).value(), IsEmpty());
}

TEST(AlternativePlansTest, KeepToTheLimit) {
  const Layout from = ParseLayout("x=2,y=2", "f32[8,8] [P, S(0)]");
  const Layout to = from.With("[S(1), R]").value();
  const std::vector<Plan> all = AlternativePlans(from, to, H100(), 100).value();
  int64_t most = 0;
  for (const Plan& plan : all) most = std::max(most, plan.workspace_bytes());
  const PlanOptions options = {.max_workspace_bytes = most - 1};
  const std::vector<Plan> plans =
      AlternativePlans(from, to, H100(), 100, options).value();
  EXPECT_FALSE(plans.empty());
  EXPECT_LT(plans.size(), all.size());
  for (const Plan& plan : plans) EXPECT_LT(plan.workspace_bytes(), most);
}

TEST(AlternativePlansTest, FailAsPlanningDoes) {
  EXPECT_THAT(AlternativePlans(ParseLayout("x=2", "f32[8] [R]"),
                               ParseLayout("x=2", "f32[9] [R]"), H100(), 1),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

// Along axes of one rank there is nothing to choose.
TEST(AlternativePlansTest, TakeNoNoticeOfAxesOfOneRank) {
  std::string mesh = "a=2";
  std::string from = "[S(0)";
  std::string to = "[S(1)";
  for (int i = 0; i < 20; ++i) {
    absl::StrAppend(&mesh, ",u", i, "=1");
    absl::StrAppend(&from, ", S(0)");
    absl::StrAppend(&to, ", S(1)");
  }
  const Layout source = ParseLayout(mesh, "f32[8,8] " + from + "]");
  EXPECT_OK(AlternativePlans(source, source.With(to + "]").value(),
                             Topology::Unit(), 3));
}

// Of very many stops fewer are tried.
TEST(AlternativePlansTest, EndOnManyAxesAndDims) {
  const Layout from =
      ParseLayout("a=2,b=2,c=2,d=2", "f32[4,4,4,4,4,4,4,4] [S(0), R, R, R]");
  EXPECT_OK(AlternativePlans(from, from.With("[R, S(0), R, R]").value(),
                             Topology::Unit(), 1));
}

}  // namespace
}  // namespace tessera

// Plans that lead to another mesh, or that move a ragged cut.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/mesh/topology.h"
#include "tessera/redistribute/planner.h"
#include "tessera/redistribute/verify.h"
#include "tests/redistribute/all_layouts.h"
#include "tests/redistribute/run_plans.h"
#include "tests/redistribute/sampling.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::AllLayouts;
using ::tessera::testing::RunAndFindFault;
using ::tessera::testing::RunReferenceAndFindFault;
using ::tessera::testing::SeededRandom;
using ::tessera::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

Layout ParseLayout(const std::string& mesh, const std::string& text) {
  return Layout::Parse(text, DeviceMesh::Parse(mesh).value()).value();
}

Plan PlanOf(const Layout& source, const Layout& target,
            const Topology& topology = Topology::LocalCpu()) {
  return MakePlan(source, target, topology).value();
}

// Proved, and right on values, on ranks that run one by one and at once.
void CheckPlans(int num_ranks, const std::vector<Plan>& plans) {
  for (const Plan& plan : plans) {
    ASSERT_OK(Verify(plan)) << plan;
    ASSERT_EQ(RunReferenceAndFindFault(plan), "") << plan;
  }
  EXPECT_EQ(RunAndFindFault(num_ranks, plans), "");
}

struct TwoMeshes {
  const char* from;
  const char* to;
};

class CrossingMeshesTest : public ::testing::TestWithParam<TwoMeshes> {};

TEST_P(CrossingMeshesTest, AnyLayoutBecomesAnyOther) {
  constexpr int kPairs = 150;
  constexpr int kWorld = 8;
  SeededRandom random;
  for (const char* meta : {"f32[4,6]", "f32[5,3]", "f32[0,4]", "f32[]"}) {
    const auto layouts = [&](const char* mesh) {
      return AllLayouts(TensorMeta::Parse(meta).value(),
                        DeviceMesh::Parse(mesh).value(),
                        {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax});
    };
    const std::vector<Layout> sources = layouts(GetParam().from);
    const std::vector<Layout> targets = layouts(GetParam().to);
    std::vector<Plan> plans;
    for (int i = 0; i < kPairs; ++i) {
      plans.push_back(PlanOf(sources[random() % sources.size()],
                             targets[random() % targets.size()]));
    }
    CheckPlans(kWorld, plans);
  }
}

INSTANTIATE_TEST_SUITE_P(All, CrossingMeshesTest,
                         ::testing::Values(TwoMeshes{"x=2,y=2", "a=2,b=2@4"},
                                           TwoMeshes{"x=2,y=2", "a=3@5"},
                                           TwoMeshes{"x=4", "a=2,b=2"},
                                           TwoMeshes{"x=2,y=3", "x=3,y=2@2"},
                                           TwoMeshes{"one=1@3",
                                                     "a=2,one=1,b=2@4"},
                                           TwoMeshes{"x=8", "one=1"}));

TEST(CrossingTest, ReducesBeforeAndFillsBehind) {
  EXPECT_EQ(PlanOf(ParseLayout("x=2", "f32[8] [P(max)]"),
                   ParseLayout("y=2@2", "f32[8] [P(max)]"))
                .ToString(),
            "[P(max)] -AR(x)-> [R] -XC(x)-> [R] on 'y=2@2' -FI(y)-> [P(max)]");
}

// Replicas need not all come over the slow link.
TEST(CrossingTest, CrossesInShardsAndGathersBehind) {
  const Topology slow_between =
      Topology::LocalCpu().WithInterMeshLink({1'000'000, 100'000'000}).value();
  const Plan plan =
      PlanOf(ParseLayout("x=4", "f32[1024,1024] [R]"),
             ParseLayout("y=4@4", "f32[1024,1024] [R]"), slow_between);
  EXPECT_EQ(plan.ToString(), "[R] -XC(x)-> [S(0)] on 'y=4@4' -AG(y)-> [R]");
  EXPECT_EQ(plan.steps()[0].bytes_received, 1 << 20);
}

TEST(CrossingTest, CostsWhatItSays) {
  // 1 us of latency, 10 bytes a microsecond between meshes; 3 us to launch.
  const Topology topology = Topology::Create("test", {0, 1'000'000'000'000},
                                             3'000'000, 1'000'000'000'000)
                                .value()
                                .WithInterMeshLink({1'000'000, 10'000'000})
                                .value();
  const Plan plan = PlanOf(ParseLayout("x=4", "f32[100] [S(0)]"),
                           ParseLayout("y=2@4", "f32[100] [S(0)]"), topology);
  ASSERT_EQ(plan.steps().size(), 1u);
  EXPECT_EQ(plan.bytes_received(), 200);
  EXPECT_EQ(plan.steps()[0].messages, 2);
  EXPECT_EQ(plan.time_ps(), 3'000'000 + 2 * 1'000'000 + 20'000'000);
}

// A way that takes too long to count is better than none.
TEST(CrossingTest, TakesForEverWhereItMust) {
  const Topology slow = Topology::Create("slow", {INT64_MAX, 1}, 1, 1).value();
  const Layout source = ParseLayout("a=2", "f32[16777216] [S(0)]");
  const Layout target = ParseLayout("b=2@2", "f32[16777216] [S(0)]");
  for (std::optional<int64_t> limit :
       {std::optional<int64_t>(), std::optional<int64_t>(1 << 30)}) {
    ASSERT_OK_AND_ASSIGN(
        const Plan plan,
        MakePlan(source, target, slow, {.max_workspace_bytes = limit}));
    EXPECT_EQ(plan.time_ps(), INT64_MAX);
  }
}

TEST(CrossingTest, PlansForManyRanks) {
  const Plan plan =
      PlanOf(ParseLayout("x=256,y=256", "bf16[65536,65536] [P, S(0)]"),
             ParseLayout("a=256,b=256@65536", "bf16[65536,65536] [S(1), R]"),
             Topology::Preset("h100-ib").value());
  EXPECT_EQ(plan.target().mesh().offset(), 65536);
  EXPECT_LE(plan.launches(), 4) << plan;
}

TEST(CrossingTest, KeepsToALimitOnWorkspace) {
  const Layout source = ParseLayout("x=2", "f32[8,8] [P]");
  const Layout target = ParseLayout("y=2@2", "f32[8,8] [R]");
  const auto with_limit = [&](int64_t limit) {
    return MakePlan(source, target, Topology::LocalCpu(),
                    {.max_workspace_bytes = limit});
  };
  // Half of the tensor has to lie somewhere when it has been reduced.
  ASSERT_OK_AND_ASSIGN(const Plan plan, with_limit(128));
  EXPECT_EQ(plan.workspace_bytes(), 128);
  EXPECT_THAT(with_limit(127), StatusIs(absl::StatusCode::kResourceExhausted,
                                        AllOf(HasSubstr("at least 128 bytes"),
                                              HasSubstr("a limit of 127"))));
}

// --- Ragged cuts --------------------------------------------------------

TEST(CrossingTest, MovesRaggedCuts) {
  const std::vector<std::string> layouts = {
      "[R, R]",
      "[S(0), R]",
      "[S(1), S(0)]",
      "[P(sum), R]",
      "[P(sum), P(avg)]",
      "[R, Ragged(0,3,24)]",
      "[R, Ragged(-5+16)]",
      "[P(sum), Ragged(-5+16)]",
      "[Ragged(0,7,24), P(avg)]",
      "[Ragged(0,7,24), R]",
      "[S(0), Ragged(0,5,12)]",
      "[Ragged(0,5,12), S(1)]",
      "[Ragged(0,1,10,10,24)[0], Ragged(0,1,10,10,24)[1]]",
      "[Ragged(-2+9)[1], Ragged(-2+9)[0]]",
  };
  std::vector<Plan> plans;
  for (const std::string& from : layouts) {
    const Layout source = ParseLayout("x=2,y=2", "f32[4,6] " + from);
    for (const std::string& to : layouts) {
      plans.push_back(PlanOf(source, source.With(to).value()));
      const Layout there = ParseLayout("a=2,b=2@3", "f32[4,6] " + to);
      plans.push_back(PlanOf(source, there));
    }
  }
  CheckPlans(8, plans);
}

TEST(CrossingTest, MovesRaggedCutsOnMeshesOfAnySize) {
  const Layout shards = ParseLayout("x=1024,y=128", "f32[100000,64] [S(0), R]");
  const Layout ragged = shards.With("[R, Ragged(-1000+50008)]").value();
  const Plan there = PlanOf(shards, ragged);
  EXPECT_EQ(there.launches(), 1);
  EXPECT_EQ(there.bytes_received(), 4 * 50008);
  const Plan back = PlanOf(ragged, shards);
  EXPECT_EQ(back.launches(), 1);
  EXPECT_EQ(back.bytes_received(), 4 * 98 * 64);
  EXPECT_LE(back.steps()[0].messages, 128);
}

}  // namespace
}  // namespace tessera

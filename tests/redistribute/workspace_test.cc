// Plans keep within a workspace limit, and are still the cheapest that do.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/mesh/topology.h"
#include "tessera/redistribute/edges.h"
#include "tessera/redistribute/planner.h"
#include "tessera/redistribute/verify.h"
#include "tests/redistribute/all_layouts.h"
#include "tests/redistribute/least_workspace.h"
#include "tests/redistribute/sampling.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using internal::Edge;
using internal::LayoutGraph;
using ::tessera::testing::AllLayouts;
using ::tessera::testing::kSampleOnly;
using ::tessera::testing::LeastWorkspace;
using ::tessera::testing::SeededRandom;
using ::tessera::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Two tiers: hosts that x joins.
Topology TwoTiers() {
  return Topology::Preset("h100-ib")
      .value()
      .WithLink("x", {2'700'000, 50'000'000'000})
      .value();
}

absl::StatusOr<Plan> PlanWithin(const Layout& source, const Layout& target,
                                const Topology& topology,
                                std::optional<int64_t> limit) {
  return MakePlan(source, target, topology, {.max_workspace_bytes = limit});
}

// That MakePlan rejects the limit, with the least that it would take.
void ExpectRejected(const Layout& source, const Layout& target,
                    const Topology& topology, int64_t limit, int64_t least) {
  EXPECT_THAT(PlanWithin(source, target, topology, limit),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr(source.ToString()),
                             HasSubstr(target.PlacementsToString()),
                             HasSubstr(source.mesh().ToString()),
                             HasSubstr("want a workspace of at least " +
                                       std::to_string(least) +
                                       " bytes, found a limit of " +
                                       std::to_string(limit)))));
}

// What holds of every pair of layouts.
void CheckLimits(const Layout& source, const Layout& target,
                 const Topology& topology) {
  ASSERT_OK_AND_ASSIGN(const Plan free,
                       PlanWithin(source, target, topology, std::nullopt));
  ASSERT_OK_AND_ASSIGN(const int64_t least,
                       LeastWorkspace(source, target, topology));
  ASSERT_LE(least, free.workspace_bytes());
  ASSERT_OK_AND_ASSIGN(const Plan tight,
                       PlanWithin(source, target, topology, least));
  EXPECT_OK(Verify(tight));
  EXPECT_LE(tight.workspace_bytes(), least) << tight << tight.ToTable();
  EXPECT_GE(tight.time_ps(), free.time_ps()) << tight << free;
  if (least > 0) {
    ExpectRejected(source, target, topology, 0, least);
    ExpectRejected(source, target, topology, least - 1, least);
  }
  // Limits between the two cost something between.
  const int64_t middle = least + (free.workspace_bytes() - least) / 2;
  ASSERT_OK_AND_ASSIGN(const Plan between,
                       PlanWithin(source, target, topology, middle));
  EXPECT_LE(between.workspace_bytes(), middle) << between;
  EXPECT_LE(between.time_ps(), tight.time_ps()) << between << tight;
  EXPECT_GE(between.time_ps(), free.time_ps()) << between << free;
  for (int64_t more : {int64_t{0}, int64_t{1} << 40}) {
    ASSERT_OK_AND_ASSIGN(
        const Plan wide,
        PlanWithin(source, target, topology, free.workspace_bytes() + more));
    EXPECT_EQ(wide.time_ps(), free.time_ps()) << wide << free;
  }
}

class WorkspaceTest : public ::testing::TestWithParam<const char*> {};

TEST_P(WorkspaceTest, LimitsAreKeptAndTheLeastIsNamed) {
  constexpr int kPairs = kSampleOnly ? 10 : 80;
  const DeviceMesh mesh = DeviceMesh::Parse(GetParam()).value();
  SeededRandom random;
  for (const char* meta : {"f32[12,24]", "f32[5,3]", "f32[4096,3072]"}) {
    const std::vector<Layout> layouts =
        AllLayouts(TensorMeta::Parse(meta).value(), mesh,
                   {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax});
    for (const Topology& topology : {Topology::Unit(), TwoTiers()}) {
      for (int i = 0; i < kPairs; ++i) {
        const Layout& source = layouts[random() % layouts.size()];
        const Layout& target = layouts[random() % layouts.size()];
        SCOPED_TRACE(topology.name() + " " + source.ToString() + " -> " +
                     target.ToString());
        CheckLimits(source, target, topology);
        if (HasFailure()) return;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, WorkspaceTest,
                         ::testing::Values("x=4", "x=2,y=2", "x=2,y=3",
                                           "x=2,y=2,z=2"));

// All ways of up to three steps, one by one.
class ShortWays {
 public:
  ShortWays(const Layout& source, const Layout& target,
            const Topology& topology)
      : graph_(LayoutGraph::Create(source, target, topology).value()),
        source_(source),
        target_(target) {}

  void ForEach(absl::FunctionRef<void(const Plan&)> visit) {
    Extend(source_, {}, visit);
  }

 private:
  static constexpr size_t kMaxSteps = 3;

  std::vector<Edge> EdgesFrom(const Layout& at, bool is_first) const {
    const internal::PackedLayout from = graph_.Pack(at);
    std::vector<Edge> edges;
    graph_.EdgesFrom(from, edges);
    if (at.HasPartial()) return edges;
    for (const internal::PackedLayout& to :
         is_first ? graph_.AllExchangeable()
                  : graph_.FilledTo(graph_.Pack(target_))) {
      const auto exchange = graph_.Exchange(from, to);
      if (exchange.has_value()) edges.push_back(*exchange);
    }
    return edges;
  }

  void Extend(const Layout& at, std::vector<Step> steps,
              absl::FunctionRef<void(const Plan&)> visit) const {
    if (at == target_ && !steps.empty()) {
      visit(Plan(source_, target_, steps));
      return;
    }
    if (steps.size() == kMaxSteps) return;
    for (const Edge& edge : EdgesFrom(at, steps.empty())) {
      const Layout after = graph_.Unpack(edge.after);
      if (steps.size() + 1 == kMaxSteps && after != target_) continue;
      steps.push_back({.kind = edge.kind,
                       .axes = graph_.MeshAxes(edge.axes),
                       .before = at,
                       .after = after,
                       .bytes_received = edge.cost.bytes_received,
                       .messages = edge.cost.messages,
                       .time_ps = edge.cost.time_ps});
      Extend(after, steps, visit);
      steps.pop_back();
    }
  }

  const LayoutGraph graph_;
  const Layout source_;
  const Layout target_;
};

// No short way needs less workspace than the least, and within a limit none is
// cheaper than the plan.
TEST(WorkspaceWaysTest, NoShortWayNeedsLessOrCostsLess) {
  const DeviceMesh mesh = DeviceMesh::Parse("x=2,y=2").value();
  for (const char* meta : {"f32[8,12]", "f32[5,3]"}) {
    const std::vector<Layout> layouts =
        AllLayouts(TensorMeta::Parse(meta).value(), mesh, {ReduceOp::kSum});
    SeededRandom random;
    for (const Layout& source : layouts) {
      for (const Layout& target : layouts) {
        if (source == target) continue;
        if (random() % (kSampleOnly ? 20 : 3) != 0) continue;
        SCOPED_TRACE(source.ToString() + " -> " + target.ToString());
        const Topology topology = TwoTiers();
        const int64_t least = LeastWorkspace(source, target, topology).value();
        const int64_t middle = least + 4 * (random() % 20);
        const Plan plan = PlanWithin(source, target, topology, middle).value();
        ShortWays(source, target, topology).ForEach([&](const Plan& way) {
          EXPECT_GE(way.workspace_bytes(), least) << way;
          if (way.workspace_bytes() > middle) return;
          EXPECT_GE(way.time_ps(), plan.time_ps()) << way << "\n" << plan;
        });
        if (HasFailure()) return;
      }
    }
  }
}

std::string Line(const std::string& mesh, const std::string& source,
                 const std::string& target, std::optional<int64_t> limit) {
  const Layout from =
      Layout::Parse(source, DeviceMesh::Parse(mesh).value()).value();
  return PlanWithin(from, from.With(target).value(), Topology::Unit(), limit)
      .value()
      .ToString();
}

// Time for workspace: what ends in the target is reduced there, in place.
TEST(WorkspaceLimitTest, ChangesTheWay) {
  const std::string sums = "f32[64,64] [P(sum), S(0)]";
  EXPECT_EQ(Line("x=2,y=2", sums, "[R, S(1)]", std::nullopt),
            "[P(sum), S(0)] -RS(x)-> [S(0)[1], S(0)[0]] -XC(x,y)-> [R, S(1)]");
  EXPECT_EQ(Line("x=2,y=2", sums, "[R, S(1)]", 0),
            "[P(sum), S(0)] -A2A(y)-> [P(sum), S(1)] -AR(x)-> [R, S(1)]");
  EXPECT_EQ(Line("x=4", "f32[64,64] [P(max)]", "[P(sum)]", 4096),
            "[P(max)] -RS(x)-> [S(0)] -FI(x)-> [P(sum)]");
  EXPECT_EQ(Line("x=4", "f32[64,64] [P(max)]", "[P(sum)]", 4095),
            "[P(max)] -AR(x)-> [R] -FI(x)-> [P(sum)]");
}

TEST(WorkspaceLimitTest, RejectsNegativeLimits) {
  const Layout layout =
      Layout::Parse("f32[8] [R]", DeviceMesh::Parse("x=2").value()).value();
  EXPECT_THAT(
      PlanWithin(layout, layout.With("[S(0)]").value(), Topology::Unit(), -1),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("want a workspace limit of at least 0 bytes, "
                         "found -1")));
}

}  // namespace
}  // namespace tessera

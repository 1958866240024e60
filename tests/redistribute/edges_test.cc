#include "tessera/redistribute/edges.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/redistribute/all_layouts.h"
#include "tests/redistribute/step_rules.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using internal::AxisState;
using internal::Edge;
using internal::LayoutGraph;
using ::tessera::testing::AllLayouts;
using ::tessera::testing::LegalStep;
using ::tessera::testing::MakeStep;
using ::tessera::testing::NamedStep;
using ::tessera::testing::StatusIs;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

Layout ParseLayout(const std::string& layout, const std::string& mesh) {
  return Layout::Parse(layout, DeviceMesh::Parse(mesh).value()).value();
}

LayoutGraph GraphOf(const Layout& source, const Layout& target,
                    const Topology& topology) {
  return LayoutGraph::Create(source, target, topology).value();
}

// The edge of `kind` along `axis` to the layout `after`.
Edge FindEdge(const Topology& topology, const std::string& mesh,
              const std::string& before, const std::string& after) {
  const Layout from = ParseLayout(before, mesh);
  const Layout to = from.With(after).value();
  const LayoutGraph graph = GraphOf(from, to, topology);
  std::vector<Edge> edges;
  graph.EdgesFrom(graph.Pack(from), edges);
  for (const Edge& edge : edges) {
    if (edge.after == graph.Pack(to)) return edge;
  }
  ADD_FAILURE() << "no edge from " << before << " to " << after;
  return {};
}

TEST(AxisStateTest, HoldsAPlacementAndAPosition) {
  EXPECT_TRUE(AxisState().is_replicate());
  for (ReduceOp op : kAllReduceOps) {
    const AxisState state = AxisState::Partial(op);
    EXPECT_TRUE(state.is_partial());
    EXPECT_FALSE(state.is_shard());
    EXPECT_EQ(state.op(), op);
  }
  for (int dim = 0; dim < AxisState::kMaxDims; ++dim) {
    for (int at = 0; at < AxisState::kMaxPositions; ++at) {
      const AxisState state = AxisState::Shard(dim, at);
      EXPECT_TRUE(state.is_shard(dim));
      EXPECT_FALSE(state.is_partial());
      EXPECT_EQ(state.dim(), dim);
      EXPECT_EQ(state.position(), at);
    }
  }
}

TEST(LayoutGraphTest, UnpackIsTheInverseOfPack) {
  const TensorMeta meta = TensorMeta::Parse("f32[5,3]").value();
  const DeviceMesh mesh = DeviceMesh::Parse("x=2,y=1,z=2,w=3").value();
  for (const Layout& layout : AllLayouts(meta, mesh, {ReduceOp::kMax})) {
    if (!layout.placement(1).is_replicate()) continue;  // size 1 stays
    const LayoutGraph graph = GraphOf(layout, layout, Topology::Unit());
    EXPECT_EQ(graph.Unpack(graph.Pack(layout)), layout);
  }
}

// From every layout there is exactly one edge to each layout that the rules
// allow, of the kind that they say, and no other.
TEST(LayoutGraphTest, HasExactlyTheDocumentedEdges) {
  const TensorMeta meta = TensorMeta::Parse("f32[5,3]").value();
  const std::vector<ReduceOp> ops = {ReduceOp::kSum, ReduceOp::kAvg,
                                     ReduceOp::kMax};
  for (const char* mesh : {"x=4", "x=2,y=3", "x=2,y=2,z=2"}) {
    const std::vector<Layout> layouts =
        AllLayouts(meta, DeviceMesh::Parse(mesh).value(), ops);
    // Explored are the ops of source and target: all three.
    const auto all = [&](ReduceOp op) {
      return layouts[0]
          .With(Placements(layouts[0].placements().size(),
                           Placement::Partial(op)))
          .value();
    };
    const LayoutGraph sums =
        GraphOf(all(ReduceOp::kMax), all(ReduceOp::kAvg), Topology::Unit());
    std::vector<Edge> edges;
    for (const Layout& from : layouts) {
      std::map<std::string, int> edge_to;
      sums.EdgesFrom(sums.Pack(from), edges);
      const auto is_exchange = [](const Edge& edge) {
        return edge.kind == StepKind::kExchange;
      };
      edges.erase(std::remove_if(edges.begin(), edges.end(), is_exchange),
                  edges.end());
      for (size_t i = 0; i < edges.size(); ++i) {
        const std::string to = sums.Unpack(edges[i].after).ToString();
        EXPECT_TRUE(edge_to.emplace(to, i).second) << "twice " << to;
      }
      size_t legal = 0;
      for (const Layout& to : layouts) {
        const std::optional<NamedStep> step = LegalStep(from, to);
        const auto found = edge_to.find(to.ToString());
        ASSERT_EQ(step.has_value(), found != edge_to.end())
            << from << " -> " << to;
        if (!step.has_value()) continue;
        ++legal;
        EXPECT_EQ(edges[found->second].kind, step->kind) << from << to;
        EXPECT_THAT(sums.MeshAxes(edges[found->second].axes),
                    ElementsAreArray(step->axes))
            << from << to;
      }
      EXPECT_EQ(edges.size(), legal);
    }
  }
}

// The layout that is left when one axis is R and all else stays.
Layout WithoutAxis(const Layout& layout, int axis) {
  Placements placements(layout.placements().begin(), layout.placements().end());
  placements[axis] = Placement::Replicate();
  std::vector<Layout::DimOrder> order;
  for (int dim = 0; dim < layout.shape().num_dims(); ++dim) {
    order.push_back({dim, {}});
    for (int other : layout.ShardAxes(dim)) {
      if (other != axis) order.back().axes.push_back(other);
    }
  }
  return layout.With(placements, order).value();
}

// Between layouts that differ in the place of one axis there is an exchange,
// unless a collective or slice leads there or no rank needs anything.
TEST(LayoutGraphTest, MovesOneAxisAnywhere) {
  for (const char* mesh : {"x=4", "x=2,y=3", "x=2,y=2,z=2"}) {
    const std::vector<Layout> layouts =
        AllLayouts(TensorMeta::Parse("f32[5,3]").value(),
                   DeviceMesh::Parse(mesh).value(), {ReduceOp::kSum});
    for (const Layout& from : layouts) {
      const LayoutGraph graph = GraphOf(from, from, Topology::Unit());
      std::vector<Edge> edges;
      graph.EdgesFrom(graph.Pack(from), edges);
      std::vector<std::string> found;
      for (const Edge& edge : edges) {
        if (edge.kind != StepKind::kExchange) continue;
        found.push_back(graph.Unpack(edge.after).ToString());
        EXPECT_GT(edge.cost.messages, 0);
      }
      std::vector<std::string> wanted;
      for (const Layout& to : layouts) {
        if (from == to || from.HasPartial() || to.HasPartial()) continue;
        if (LegalStep(from, to).has_value()) continue;
        bool differ_in_one = false;
        for (int axis = 0; axis < from.mesh().num_axes(); ++axis) {
          differ_in_one =
              differ_in_one || WithoutAxis(from, axis) == WithoutAxis(to, axis);
        }
        const Step step = MakeStep(StepKind::kExchange, {}, from, to);
        if (differ_in_one && step.messages > 0) wanted.push_back(to.ToString());
      }
      // Two axes may have changed places, either of which may be said to have
      // moved.
      absl::c_sort(found);
      found.erase(std::unique(found.begin(), found.end()), found.end());
      absl::c_sort(wanted);
      EXPECT_EQ(found, wanted) << from;
    }
  }
}

TEST(LayoutGraphTest, ExploresOnlyTheOpsOfSourceAndTargetAndTheSumOfAnAvg) {
  const Layout replicated = ParseLayout("f32[4] [R]", "x=2");
  const auto ops_explored = [&](const char* target) {
    const LayoutGraph graph =
        GraphOf(replicated, replicated.With(target).value(), Topology::Unit());
    std::vector<Edge> edges;
    graph.EdgesFrom(graph.Pack(replicated), edges);
    std::string ops;
    for (const Edge& edge : edges) {
      if (!edge.after[0].is_partial()) continue;
      ops += std::string(ReduceOpName(edge.after[0].op())) + " ";
    }
    return ops;
  };
  EXPECT_EQ(ops_explored("[R]"), "");
  EXPECT_EQ(ops_explored("[P(min)]"), "min ");
  EXPECT_EQ(ops_explored("[P(sum)]"), "sum ");
  EXPECT_EQ(ops_explored("[P(avg)]"), "sum avg ");
}

TEST(LayoutGraphTest, LeavesAloneWhatLiesBesideARaggedCut) {
  const Layout from = ParseLayout(
      "f32[4,6] [P(sum), Ragged(0,5,12)[0], S(0), R]", "w=2,x=2,y=2,z=2");
  const LayoutGraph graph = GraphOf(from, from, Topology::Unit());
  std::vector<Edge> edges;
  graph.EdgesFrom(graph.Pack(from), edges);
  std::vector<std::string> targets;
  for (const Edge& edge : edges) {
    targets.push_back(graph.Unpack(edge.after).PlacementsToString());
  }
  EXPECT_THAT(targets, ::testing::ElementsAre(
                           "[R, Ragged(0,5,12)[0], S(0), R]",
                           "[P(sum), Ragged(0,5,12)[0], S(0), P(sum)]"));
  // The larger piece has 7 elements: 7 * 4 bytes are reduced over two ranks.
  EXPECT_EQ(edges[0].cost.bytes_received, 28);
}

TEST(LayoutGraphTest, TakesTheLargestPieceOfAnAffineRaggedCut) {
  const auto received = [](const char* cut) {
    return FindEdge(Topology::Unit(), "x=2,y=4",
                    "f32[10] [P(sum), Ragged(" + std::string(cut) + ")[0]]",
                    "[R, Ragged(" + std::string(cut) + ")[0]]")
        .cost.bytes_received;
  };
  EXPECT_EQ(received("-6+5"), 4 * 5);    // [) [0,4) [4,9) [9,10)
  EXPECT_EQ(received("-2+20"), 4 * 10);  // [0,10)
  EXPECT_EQ(received("0+4"), 4 * 4);     // [0,4) [4,8) [8,10)
  EXPECT_EQ(received("-1+10"), 4 * 9);   // [0,9) [9,10)
}

TEST(LayoutGraphTest, CostsAreThoseOfTheTable) {
  // 10 bytes a microsecond; a microsecond of latency; 3 to launch; 100 bytes a
  // microsecond in memory.
  const Topology topology =
      Topology::Create(
          "test", {.latency_ps = 1'000'000, .bytes_per_second = 10'000'000},
          3'000'000, 100'000'000)
          .value();
  const auto cost = [&](const char* before, const char* after) {
    return FindEdge(topology, "x=4", before, after).cost;
  };
  const auto us = [](int64_t microseconds) { return microseconds * 1'000'000; };
  using internal::Cost;
  EXPECT_EQ(cost("f32[100] [R]", "[S(0)]"), (Cost{.time_ps = us(1)}));
  EXPECT_EQ(cost("f32[100] [R]", "[P(sum)]"), (Cost{.time_ps = us(4)}));
  EXPECT_EQ(cost("f32[100] [S(0)]", "[P(sum)]"), (Cost{.time_ps = us(4)}));
  EXPECT_EQ(cost("f32[100] [P(sum)]", "[P(avg)]"), (Cost{.time_ps = us(4)}));
  EXPECT_EQ(cost("f32[100] [P(sum)]", "[R]"), (Cost{600, 3, us(3 + 6 + 60)}));
  EXPECT_EQ(cost("f32[100] [P(sum)]", "[S(0)]"),
            (Cost{300, 3, us(3 + 3 + 30)}));
  EXPECT_EQ(cost("f32[100] [S(0)]", "[R]"), (Cost{300, 3, us(3 + 3 + 30)}));
  EXPECT_EQ(cost("f32[10,10] [S(0)]", "[S(1)]"),
            (Cost{84, 3, 3'000'000 + 3'000'000 + 8'400'000}));
  // A part of a picosecond counts as one.
  EXPECT_EQ(
      FindEdge(Topology::Create("fast", {0, 3'000'000'000'000}, 0, 1).value(),
               "x=2", "bf16[2] [S(0)]", "[R]")
          .cost.time_ps,
      1);
}

// 7 in two parts of 4 and 3, in three parts each: 2, 2, 0 and 1, 1, 1.
TEST(LayoutGraphTest, TheLeastNestedPieceMayBePartOfALargerOne) {
  EXPECT_EQ(
      FindEdge(Topology::Unit(), "x=2,y=3", "f32[7] [S(0), S(0)]", "[R, R]")
          .cost.bytes_received,
      4 * 7);
}

// Cuts may leave whole parts, one that remains, and empty ones, of both dims.
TEST(LayoutGraphTest, AnAllToAllIsForTheRankThatReceivesTheMost) {
  for (const char* mesh : {"x=5", "x=2,y=3", "x=3,y=2", "x=4,y=4"}) {
    const bool two_axes = DeviceMesh::Parse(mesh).value().num_axes() == 2;
    for (int64_t rows = 1; rows <= 20; ++rows) {
      for (int64_t columns = 1; columns <= 20; ++columns) {
        const Layout before =
            ParseLayout(absl::StrCat("f32[", rows, ",", columns, "] ",
                                     two_axes ? "[S(0), S(0)]" : "[S(0)]"),
                        mesh);
        const char* const target = two_axes ? "[S(1), S(1)]" : "[S(1)]";
        const Layout after = before.With(target).value();
        int64_t most = 0;
        for (int rank = 0; rank < before.mesh().size(); ++rank) {
          const int64_t own = before.RegionOf(rank).LocalShape().extent(0);
          const int64_t cut = after.RegionOf(rank).LocalShape().extent(1);
          most = std::max(most, (rows - own) * cut);
        }
        const Edge edge =
            FindEdge(Topology::Unit(), mesh, before.ToString(), target);
        ASSERT_EQ(edge.kind, StepKind::kAllToAll);
        ASSERT_EQ(edge.cost.bytes_received, 4 * most)
            << before << " on " << mesh;
      }
    }
  }
}

TEST(LayoutGraphTest, CostsThatDoNotFitBecomeTheGreatestValue) {
  const std::string half_of_all = "[1152921504606846976]";  // 2^60
  const Topology slow = Topology::Create("slow", {kMax, 1}, kMax, 1).value();
  for (const char* after : {"[R]", "[S(0)]"}) {
    const Edge edge = FindEdge(slow, "x=2147483646",
                               "f32" + half_of_all + " [P(sum)]", after);
    EXPECT_EQ(edge.cost.time_ps, kMax) << after;
    EXPECT_GT(edge.cost.bytes_received, 0) << after;
  }
  // Every piece has an element, however many ranks there are.
  EXPECT_EQ(FindEdge(slow, "x=2147483646", "f32[1,288230376151711744] [P(sum)]",
                     "[S(0)]")
                .cost.bytes_received,
            kMax);
}

TEST(LayoutGraphTest, RejectsWhatDoesNotFitAPackedLayout) {
  const std::string mesh = "a=2,b=2,c=2,d=2,e=2,f=2,g=2,h=2,one=1";
  const Layout fits = ParseLayout("f32[4] [R, R, R, R, R, R, R, R, R]", mesh);
  EXPECT_OK(LayoutGraph::Create(fits, fits, Topology::Unit()));
  const Layout nine =
      ParseLayout("f32[4] [R, R, R, R, R, R, R, R, R, R]", mesh + ",i=2");
  EXPECT_THAT(
      LayoutGraph::Create(nine, nine, Topology::Unit()),
      StatusIs(absl::StatusCode::kUnimplemented,
               HasSubstr("want at most 8 mesh axes of size above 1, found 9")));
  const TensorMeta meta =
      TensorMeta::Create(DType::kF32, std::vector<int64_t>(27, 1)).value();
  const Layout many_dims =
      Layout::Create(meta, DeviceMesh::Parse("x=2").value(),
                     {Placement::Replicate()})
          .value();
  EXPECT_THAT(LayoutGraph::Create(many_dims, many_dims, Topology::Unit()),
              StatusIs(absl::StatusCode::kUnimplemented,
                       HasSubstr("want at most 26 tensor dims, found 27")));
}

}  // namespace
}  // namespace tessera

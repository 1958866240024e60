// Plans cost what the cheapest way costs, which is no less than the bound that
// the search for it goes by.

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "tessera/mesh/topology.h"
#include "tessera/redistribute/edges.h"
#include "tessera/redistribute/planner.h"
#include "tests/redistribute/all_layouts.h"
#include "tests/redistribute/brute_force.h"
#include "tests/redistribute/sampling.h"

namespace tessera {
namespace {

using internal::LayoutGraph;
using ::tessera::testing::AllLayouts;
using ::tessera::testing::CheapestCosts;
using ::tessera::testing::kSampleOnly;
using ::tessera::testing::Sampler;

// All links alike; a slow axis; three links of which none is the best in
// everything.
std::vector<Topology> Topologies() {
  const Topology h100 = Topology::Preset("h100-ib").value();
  const Topology cpu = Topology::LocalCpu();
  const Topology slow_x =
      h100.WithLink("x", {2'700'000, 50'000'000'000}).value();
  const Topology mixed = cpu.WithLink("x", {10, 1'000'000'000})
                             .value()
                             .WithLink("y", {5'000'000, 40'000'000'000})
                             .value();
  return {Topology::Unit(), cpu, slow_x, mixed};
}

bool HasPartial(const Layout& a, const Layout& b) {
  return a.HasPartial() || b.HasPartial();
}

int64_t LeastTime(const Layout& from, const Layout& to,
                  const Topology& topology) {
  const LayoutGraph graph = LayoutGraph::Create(from, to, topology).value();
  return graph.LeastTime(graph.Cut(graph.Pack(from)),
                         graph.Cut(graph.Pack(to)));
}

class CheapestTest
    : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {
 protected:
  void Check(const std::vector<ReduceOp>& ops) {
    const auto& [mesh, meta] = GetParam();
    const std::vector<Layout> layouts = AllLayouts(
        TensorMeta::Parse(meta).value(), DeviceMesh::Parse(mesh).value(), ops);
    std::vector<Topology> topologies = Topologies();
    if (kSampleOnly) topologies.erase(topologies.begin(), topologies.end() - 1);
    for (const Topology& topology : topologies) {
      SCOPED_TRACE(topology.ToJson());
      const auto cheapest = CheapestCosts(layouts, topology);
      Sampler sampler(5);
      for (size_t from = 0; from < layouts.size(); ++from) {
        for (size_t to = 0; to < layouts.size(); ++to) {
          // Without an op at either end none is explored.
          const bool is_explored =
              ops.empty() || HasPartial(layouts[from], layouts[to]);
          if (!is_explored || !sampler.Takes()) continue;
          const Plan plan =
              MakePlan(layouts[from], layouts[to], topology).value();
          ASSERT_EQ(plan.time_ps(), cheapest[from][to]) << plan << "\n"
                                                        << plan.ToTable();
          ASSERT_LE(LeastTime(layouts[from], layouts[to], topology),
                    cheapest[from][to])
              << plan;
        }
      }
    }
  }
};

TEST_P(CheapestTest, WithoutPartial) { Check({}); }
TEST_P(CheapestTest, WithSums) { Check({ReduceOp::kSum}); }

INSTANTIATE_TEST_SUITE_P(
    Sizes, CheapestTest,
    ::testing::Combine(
        ::testing::Values("x=2,y=2", "x=2,y=3", "x=3,y=2", "x=2,y=2,z=2"),
        ::testing::Values("f32[16,16]", "f32[1024,720]", "f32[16384,16384]",
                          "f32[5,3]", "f32[1,7]", "f32[0,4]")));

// More layouts than exchanges lead between any two of.
class CheapestOfManyTest : public CheapestTest {};

TEST_P(CheapestOfManyTest, WithoutPartial) { Check({}); }

INSTANTIATE_TEST_SUITE_P(Sizes, CheapestOfManyTest,
                         ::testing::Combine(::testing::Values("x=2,y=2,z=2"),
                                            ::testing::Values("f32[8,8,8]",
                                                              "f32[512,240,64]",
                                                              "f32[3,5,2]")));

}  // namespace
}  // namespace tessera

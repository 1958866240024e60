// No way takes less time than the bound that the search for it goes by.

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "tessera/mesh/topology.h"
#include "tessera/redistribute/edges.h"
#include "tessera/redistribute/planner.h"
#include "tests/redistribute/random_layouts.h"
#include "tests/redistribute/sampling.h"

namespace tessera {
namespace {

using internal::LayoutGraph;
using ::tessera::testing::kSampleOnly;
using ::tessera::testing::RandomLayout;
using ::tessera::testing::SeededRandom;

int64_t LeastTime(const LayoutGraph& graph, const Layout& from,
                  const Layout& to) {
  return graph.LeastTime(graph.Cut(graph.Pack(from)),
                         graph.Cut(graph.Pack(to)));
}

// Of the plan, and of each part of it.
void ExpectNoLess(const Plan& plan, const Topology& topology) {
  if (plan.steps().empty()) return;
  const LayoutGraph graph =
      LayoutGraph::Create(plan.source(), plan.target(), topology).value();
  for (size_t first = 0; first < plan.steps().size(); ++first) {
    int64_t time = 0;
    for (size_t last = first; last < plan.steps().size(); ++last) {
      const Step& step = plan.steps()[last];
      time += step.time_ps;
      EXPECT_LE(LeastTime(graph, plan.steps()[first].before, step.after), time)
          << plan.steps()[first].before << " to " << step.after << " of\n"
          << plan.ToTable();
    }
  }
}

Layout RandomLayoutWithoutRaggedCut(const TensorMeta& meta,
                                    const DeviceMesh& mesh,
                                    SeededRandom& random) {
  while (true) {
    const Layout layout =
        RandomLayout(meta, mesh, /*may_be_partial=*/true, random);
    if (layout.RaggedAxes().empty()) return layout;
  }
}

// All links alike, with slow memory and fast; two tiers; three links of which
// none is the best in everything.
std::vector<Topology> Topologies() {
  const Topology cpu = Topology::LocalCpu();
  const Topology h100 = Topology::Preset("h100-ib").value();
  const Topology mixed = cpu.WithLink("a", {10, 1'000'000'000})
                             .value()
                             .WithLink("b", {5'000'000, 40'000'000'000})
                             .value();
  return {Topology::Unit(), cpu, h100, mixed};
}

struct Size {
  const char* mesh;
  const char* meta;
  int pairs;
};

class LeastTimeTest : public ::testing::TestWithParam<Size> {};

TEST_P(LeastTimeTest, NoPlanTakesLess) {
  const DeviceMesh mesh = DeviceMesh::Parse(GetParam().mesh).value();
  const TensorMeta meta = TensorMeta::Parse(GetParam().meta).value();
  SeededRandom random;
  const int pairs = kSampleOnly ? GetParam().pairs / 10 : GetParam().pairs;
  for (const Topology& topology : Topologies()) {
    SCOPED_TRACE(topology.ToJson());
    for (int pair = 0; pair < pairs; ++pair) {
      const Layout source = RandomLayoutWithoutRaggedCut(meta, mesh, random);
      const Layout target = RandomLayoutWithoutRaggedCut(meta, mesh, random);
      ExpectNoLess(MakePlan(source, target, topology).value(), topology);
      if (HasFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, LeastTimeTest,
    ::testing::Values(Size{"a=4,b=8", "bf16[4096,1024]", 1000},
                      Size{"a=3,b=5", "f32[37,51]", 300},
                      Size{"a=2,b=8,c=4", "bf16[512,256,2048]", 500},
                      Size{"a=4,b=2,c=2", "f32[16,8,32]", 500},
                      Size{"a=3,b=2,c=4", "f32[13,30,7]", 200},
                      Size{"a=2,b=4,c=2,d=8", "bf16[1024,512,2048]", 200},
                      Size{"a=2,b=3,c=2,d=2", "f32[20,9,15]", 20},
                      Size{"a=2,b=2,c=2,d=2,e=4", "bf16[256,2048,512]", 30}));

}  // namespace
}  // namespace tessera

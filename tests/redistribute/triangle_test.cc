// A way round seldom costs less than the plan between its ends.
//
// Plans explore fewer exchanges than ways round may be composed of, so that the
// triangle inequality is no consequence of being cheapest; these are the cases
// for which it is known to hold.

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tessera/mesh/topology.h"
#include "tessera/redistribute/planner.h"
#include "tests/redistribute/all_layouts.h"

namespace tessera {
namespace {

using ::tessera::testing::AllLayouts;

// The plans between any two of some layouts.
class Plans {
 public:
  Plans(std::vector<Layout> layouts, const Topology& topology)
      : layouts_(std::move(layouts)), plans_(layouts_.size()) {
    for (size_t from = 0; from < layouts_.size(); ++from) {
      for (const Layout& to : layouts_) {
        plans_[from].push_back(MakePlan(layouts_[from], to, topology).value());
      }
    }
  }

  // Expects that no way round is cheaper than the plan.
  void ExpectNoShortCut() const {
    const size_t n = layouts_.size();
    for (size_t from = 0; from < n; ++from) {
      for (size_t via = 0; via < n; ++via) {
        for (size_t to = 0; to < n; ++to) {
          const Plan& direct = plans_[from][to];
          ASSERT_LE(direct.time_ps(),
                    plans_[from][via].time_ps() + plans_[via][to].time_ps())
              << direct << "\nround " << plans_[from][via] << "\nand "
              << plans_[via][to];
        }
      }
    }
  }

 private:
  const std::vector<Layout> layouts_;
  std::vector<std::vector<Plan>> plans_;
};

std::vector<Topology> Topologies() {
  const Topology h100 = Topology::Preset("h100-ib").value();
  const Topology slow_x =
      h100.WithLink("x", {2'700'000, 50'000'000'000}).value();
  return {Topology::Unit(), Topology::LocalCpu(), h100, slow_x};
}

// Mesh and tensor.
class TriangleTest
    : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(TriangleTest, HoldsForAllTriples) {
  const auto& [mesh, meta] = GetParam();
  for (const Topology& topology : Topologies()) {
    SCOPED_TRACE(topology.ToJson());
    const Plans plans(AllLayouts(TensorMeta::Parse(meta).value(),
                                 DeviceMesh::Parse(mesh).value(),
                                 {ReduceOp::kSum, ReduceOp::kAvg}),
                      topology);
    plans.ExpectNoShortCut();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, TriangleTest,
    ::testing::Combine(::testing::Values("x=2,y=2", "x=2,y=3", "x=4,y=2"),
                       ::testing::Values("f32[16,16]", "f32[5,51]",
                                         "f32[512,512]", "f32[513,511]",
                                         "f32[16384,16384]",
                                         "f32[16383,16385]")));

}  // namespace
}  // namespace tessera

// Every pair of layouts of small tensors on small meshes, on real ranks,
// against the reference. Expects exact values.

#include <cstdint>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/redistribute/planner.h"
#include "tests/redistribute/all_layouts.h"
#include "tests/redistribute/run_plans.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::AllLayouts;
using ::tessera::testing::RunAndFindFault;

std::vector<Plan> AllPlans(absl::string_view meta_text,
                           absl::string_view mesh_text,
                           absl::Span<const ReduceOp> ops) {
  const TensorMeta meta = TensorMeta::Parse(meta_text).value();
  const DeviceMesh mesh = DeviceMesh::Parse(mesh_text).value();
  const std::vector<Layout> layouts = AllLayouts(meta, mesh, ops);
  std::vector<Plan> plans;
  for (const Layout& source : layouts) {
    for (const Layout& target : layouts) {
      plans.push_back(MakePlan(source, target, Topology::LocalCpu()).value());
    }
  }
  return plans;
}

class ExecutePairsTest
    : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(ExecutePairsTest, SumAndAvgGiveTheReferenceValues) {
  const auto& [mesh, shape] = GetParam();
  const std::vector<Plan> plans = AllPlans(std::string("f32") + shape, mesh,
                                           {ReduceOp::kSum, ReduceOp::kAvg});
  RecordProperty("pairs", static_cast<int>(plans.size()));
  EXPECT_EQ(RunAndFindFault(plans[0].source().mesh().size(), plans), "");
}

INSTANTIATE_TEST_SUITE_P(
    All, ExecutePairsTest,
    ::testing::Combine(::testing::Values("x=4", "x=2,y=2", "x=2,y=3",
                                         "x=2,y=2,z=2"),
                       ::testing::Values("[4,6]", "[5,3]", "[1,7]", "[0,4]")));

}  // namespace
}  // namespace tessera

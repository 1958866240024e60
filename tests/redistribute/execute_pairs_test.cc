// Pairs of layouts of small tensors on small meshes, executed on real ranks and
// compared with the reference, exactly.

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/redistribute/planner.h"
#include "tests/redistribute/all_layouts.h"
#include "tests/redistribute/run_plans.h"
#include "tests/redistribute/sampling.h"

namespace tessera {
namespace {

using ::tessera::testing::AllLayouts;
using ::tessera::testing::kSampleOnly;
using ::tessera::testing::RunAndFindFault;
using ::tessera::testing::SeededRandom;

constexpr CpuStreams kBothStreams[] = {CpuStreams::kInline,
                                       CpuStreams::kWorker};

std::vector<Layout> LayoutsOf(const std::string& meta, const std::string& mesh,
                              absl::Span<const ReduceOp> ops) {
  return AllLayouts(TensorMeta::Parse(meta).value(),
                    DeviceMesh::Parse(mesh).value(), ops);
}

Plan PlanOf(const Layout& source, const Layout& target) {
  return MakePlan(source, target, Topology::LocalCpu()).value();
}

class ExecutePairsTest
    : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(ExecutePairsTest, SumAndAvgGiveTheReferenceValues) {
  const auto& [mesh, shape] = GetParam();
  const std::vector<Layout> layouts = LayoutsOf(
      std::string("f32") + shape, mesh, {ReduceOp::kSum, ReduceOp::kAvg});
  const uint32_t one_in = kSampleOnly && layouts.size() > 100 ? 29 : 1;
  SeededRandom random;
  std::vector<Plan> plans;
  for (const Layout& source : layouts) {
    for (const Layout& target : layouts) {
      if (random() % one_in == 0) plans.push_back(PlanOf(source, target));
    }
  }
  EXPECT_EQ(RunAndFindFault(layouts[0].mesh().size(), plans), "");
}

INSTANTIATE_TEST_SUITE_P(
    All, ExecutePairsTest,
    ::testing::Combine(::testing::Values("x=4", "x=2,y=2", "x=2,y=3",
                                         "x=2,y=2,z=2"),
                       ::testing::Values("[4,6]", "[5,3]", "[1,7]", "[0,4]")));

// Pairs drawn at random, on either kind of stream.
class ExecuteSampleTest : public ::testing::Test {
 protected:
  void Check(const std::string& meta, absl::Span<const ReduceOp> ops) {
    constexpr int kPairs = 100;
    for (const char* mesh : {"x=3", "x=2,y=2", "x=2,y=3", "x=2,y=2,z=2"}) {
      const std::vector<Layout> layouts = LayoutsOf(meta, mesh, ops);
      std::vector<Plan> plans;
      for (int i = 0; i < kPairs; ++i) {
        const Layout& source = layouts[random_() % layouts.size()];
        const Layout& target = layouts[random_() % layouts.size()];
        plans.push_back(PlanOf(source, target));
      }
      for (CpuStreams streams : kBothStreams) {
        EXPECT_EQ(RunAndFindFault(layouts[0].mesh().size(), plans, streams),
                  "");
      }
    }
  }

 private:
  SeededRandom random_;
};

TEST_F(ExecuteSampleTest, AllOps) {
  Check("f32[5,3]", kAllReduceOps);
  Check("f64[2,2,3]", {ReduceOp::kSum, ReduceOp::kMax});
}

TEST_F(ExecuteSampleTest, Integers) {
  const ReduceOp ops[] = {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax,
                          ReduceOp::kProduct};
  Check("i32[4,6]", ops);
  Check("i64[5,3]", ops);
}

TEST_F(ExecuteSampleTest, NarrowFloats) {
  const ReduceOp ops[] = {ReduceOp::kSum, ReduceOp::kAvg};
  Check("bf16[4,6]", ops);
  Check("bf16[1,7]", ops);
  Check("f16[5,3]", ops);
}

TEST_F(ExecuteSampleTest, SumAndAvgOnBothKindsOfStream) {
  Check("f32[4,6]", {ReduceOp::kSum, ReduceOp::kAvg});
}

// Meshes with axes of size 1, strides of their own, or in a part of the world.
TEST(ExecuteMeshesTest, GiveTheReferenceValues) {
  for (const char* mesh : {"x=1", "x=1,y=3,z=1", "x=2:1,y=2:2", "x=2,y=2@1"}) {
    const std::vector<Layout> layouts =
        LayoutsOf("f32[5,3]", mesh, {ReduceOp::kSum});
    std::vector<Plan> plans;
    for (const Layout& source : layouts) {
      for (const Layout& target : layouts) {
        plans.push_back(PlanOf(source, target));
      }
    }
    constexpr int kWorld = 6;
    EXPECT_EQ(RunAndFindFault(kWorld, plans), "");
  }
}

}  // namespace
}  // namespace tessera

// Plans, on real GPUs.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/redistribute/planner.h"
#include "tests/gpu/run_gpu_ranks.h"
#include "tests/redistribute/all_layouts.h"
#include "tests/redistribute/run_plans.h"
#include "tests/redistribute/sampling.h"

namespace tessera::testing {
namespace {

absl::Status RunOnGpus(int num_ranks,
                       absl::FunctionRef<absl::Status(ScheduledRank&)> program,
                       const ScheduledRunOptions&, ScheduledReport*) {
  return RunGpuRanks(num_ranks, program);
}

// Small whole numbers: sums in any order have the same bits.
TEST(GpuRedistributionTest, PlansGiveTheReferenceValues) {
  TESSERA_NEEDS_GPUS(1);
  const int gpus = FindGpus().count;
  const std::string mesh = gpus >= 4 ? "x=2,y=2" : absl::StrCat("x=", gpus);
  SeededRandom random;
  for (const char* meta : {"f32[5,3]", "bf16[4,6]"}) {
    const std::vector<Layout> layouts =
        AllLayouts(TensorMeta::Parse(meta).value(),
                   DeviceMesh::Parse(mesh).value(), {ReduceOp::kSum});
    std::vector<Plan> plans;
    for (int i = 0; i < 40; ++i) {
      plans.push_back(MakePlan(layouts[random() % layouts.size()],
                               layouts[random() % layouts.size()],
                               Topology::LocalCpu())
                          .value());
    }
    EXPECT_EQ(RunScheduledAndFindFault(layouts[0].mesh().size(), plans,
                                       /*seed=*/0, RunOnGpus),
              "")
        << mesh << " " << meta;
  }
}

}  // namespace
}  // namespace tessera::testing

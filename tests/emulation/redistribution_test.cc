// Plans and conversions of buffers on emulated GPUs.

#include <cstdint>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/redistribute/execute.h"
#include "tessera/redistribute/planner.h"
#include "tests/dbuffer/conversion_ways.h"
#include "tests/emulation/machine.h"
#include "tests/emulation/nccl_network.h"
#include "tests/emulation/run_as_scheduled.h"
#include "tests/emulation/run_emulated_ranks.h"
#include "tests/redistribute/all_layouts.h"
#include "tests/redistribute/run_plans.h"
#include "tests/redistribute/sampling.h"
#include "tests/sanitized.h"

namespace tessera::emulation {
namespace {

// Values, traffic and workspace of a sample of all pairs of layouts.
TEST(EmulatedRedistributionTest, PlansGiveTheReferenceValuesInAnyOrder) {
  testing::SeededRandom random;
  for (const char* mesh : {"x=3", "x=2,y=2", "x=2,y=3", "x=2,y=1,z=3"}) {
    for (const char* meta : {"f32[5,3]", "bf16[4,6]", "i32[7]"}) {
      const TensorMeta tensor = TensorMeta::Parse(meta).value();
      std::vector<ReduceOp> ops = {ReduceOp::kSum, ReduceOp::kMax};
      if (IsFloating(tensor.dtype())) ops.push_back(ReduceOp::kAvg);
      const std::vector<Layout> layouts =
          testing::AllLayouts(tensor, DeviceMesh::Parse(mesh).value(), ops);
      for (uint64_t seed = 0; seed < 2; ++seed) {
        std::vector<Plan> plans;
        for (int i = 0; i < (testing::kSanitized ? 5 : 25); ++i) {
          plans.push_back(MakePlan(layouts[random() % layouts.size()],
                                   layouts[random() % layouts.size()],
                                   Topology::LocalCpu())
                              .value());
        }
        EXPECT_EQ(testing::RunScheduledAndFindFault(
                      layouts[0].mesh().size(), plans, seed, RunAsScheduled),
                  "")
            << mesh << " " << meta << " seed " << seed;
      }
    }
  }
}

// Where all ranks of the world prepare a plan, NCCL splits it.
TEST(EmulatedRedistributionTest, GroupsOfAPlanNeedNoId) {
  const DeviceMesh mesh = DeviceMesh::Parse("x=2,y=2").value();
  const Layout source = Layout::Parse("f32[4,4] [S(0), R]", mesh).value();
  const auto plan = std::make_shared<const Plan>(
      MakePlan(source, source.With("[R, R]").value(), Topology::LocalCpu())
          .value());
  EXPECT_OK(RunEmulatedRanks(4, [&](EmulatedRank& rank) -> absl::Status {
    TESSERA_RETURN_IF_ERROR(Prepare(plan, rank.comms, rank.stream).status());
    EXPECT_GT(Machine::current()->nccl().num_splits(), 0);
    EXPECT_EQ(Machine::current()->nccl().num_ids(), 0);
    return absl::OkStatus();
  }));
}

TEST(EmulatedDBufferTest, ConversionsGiveTheBitsOfThreadsInAnyOrder) {
  testing::ExpectTheSameBitsInAnyOrder(RunAsScheduled, /*num_seeds=*/5);
}

}  // namespace
}  // namespace tessera::emulation

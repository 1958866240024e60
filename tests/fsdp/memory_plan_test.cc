#include "tessera/fsdp/memory_plan.h"

#include <map>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/fsdp/optimizer.h"
#include "tests/fsdp/toy_training.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::DefaultToyUnits;
using ::tessera::testing::OracleHistory;
using ::tessera::testing::ToyRank;
using ::tessera::testing::ToyRun;
using ::testing::ElementsAre;
using ::testing::Pair;

UnitMemory HsdpUnit(int depth, int64_t elements) {
  return {.depth = depth,
          .release = ReleaseWeights::kAfterForward,
          .groups = {{.elements = elements,
                      .parameter_parts = 2,
                      .gradient_parts = 2,
                      .optimizer_parts = 2}}};
}

TEST(MemoryPlanTest, AddsUpWorkedExample) {
  // A root of 64 elements, two blocks of 128 and 256, halved; f32.
  UnitMemory root = HsdpUnit(1, 64);
  root.release = ReleaseWeights::kAfterBackward;
  const std::vector<UnitMemory> units = {root, HsdpUnit(2, 128),
                                         HsdpUnit(2, 256)};
  EXPECT_THAT(PlanMemory(units),
              ElementsAre(Pair("main_grad", 4 * (64 + 128 + 256) / 2),
                          Pair("main_weight", 4 * (64 + 128 + 256) / 2),
                          Pair("model_weight", 0),
                          // One at the root's depth, two at the blocks'.
                          Pair("unreduced_grad", 4 * (64 + 2 * 256)),
                          // The root's own slot, and one for the larger block.
                          Pair("unsharded_weight", 4 * (64 + 256))));
}

TEST(MemoryPlanTest, CountsModelWeightsOnlyWhereTheyAreBuffersOfTheirOwn) {
  GroupMemory group{.elements = 256,
                    .parameter_parts = 1,
                    .gradient_parts = 1,
                    .optimizer_parts = 1};
  EXPECT_EQ(group.ModelWeightBytes(), 0);
  group.parameter = DType::kBF16;
  EXPECT_EQ(group.ModelWeightBytes(), 512);
  group.parameter = DType::kF32;
  group.optimizer_parts = 4;
  EXPECT_EQ(group.ModelWeightBytes(), 1024);
  EXPECT_EQ(group.MainWeightBytes(), 256);
  EXPECT_EQ(group.UnshardedWeightBytes(), 0);
  group.requires_grad = false;
  EXPECT_EQ(group.MainGradBytes(), 0);
  EXPECT_EQ(group.UnreducedGradBytes(), 0);
}

// What the allocator counts on every rank, by tag and in all, is the formula
// to the byte, and nothing is allocated once main gradients exist.
TEST(MemoryPlanTest, EqualsWhatTheAllocatorCounts) {
  for (const char* strategy :
       {"ddp", "zero1", "zero2", "fsdp", "hsdp", "hfsdp"}) {
    for (const char* mesh :
         {"dp_outer=2,dp_inner=2", "dp_outer=1,dp_inner=3", "a=2,b=1,c=2"}) {
      for (ZeroGrad zero_grad : {ZeroGrad::kRelease, ZeroGrad::kFill}) {
        for (DType dtype : {DType::kF32, DType::kBF16}) {
          ToyRun run;
          run.strategy = strategy;
          run.mesh = mesh;
          run.zero_grad = zero_grad;
          run.dtype = dtype;
          run.release = ReleaseWeights::kAfterBackward;
          run.units = DefaultToyUnits();
          SCOPED_TRACE(run.ToString());
          const auto expected = OracleHistory(run);
          EXPECT_OK(RunLocalRanks(
              DeviceMesh::Parse(mesh)->size(),
              [&](LocalRank& rank) -> absl::Status {
                TESSERA_ASSIGN_OR_RETURN(
                    auto toy, ToyRank::Create(run, rank.comms, rank.stream));
                SgdOptimizer optimizer(toy->context(), run.learning_rate);
                int64_t allocations = 0;
                for (int step = 0; step < run.steps; ++step) {
                  TESSERA_RETURN_IF_ERROR(toy->Forward(expected.weights[step]));
                  TESSERA_RETURN_IF_ERROR(toy->Backward(step, 0, false));
                  for (int m = 1; m < run.microbatches; ++m) {
                    TESSERA_RETURN_IF_ERROR(
                        toy->Forward(expected.weights[step]));
                    TESSERA_RETURN_IF_ERROR(
                        toy->Backward(step, m, m + 1 == run.microbatches));
                  }
                  TESSERA_RETURN_IF_ERROR(optimizer.Step());
                  TESSERA_RETURN_IF_ERROR(
                      toy->context().ZeroGradients(zero_grad));
                  const int64_t now = rank.device.memory().total.allocations;
                  if (zero_grad == ZeroGrad::kFill && step > 0) {
                    EXPECT_EQ(now, allocations);
                  }
                  allocations = now;
                }
                const auto planned = PlanMemory(toy->context().unit_memory());
                const MemoryReport report = rank.device.memory();
                int64_t total = 0;
                for (const auto& [tag, bytes] : planned) {
                  total += bytes;
                  const auto it = report.by_tag.find(tag);
                  EXPECT_EQ(
                      it == report.by_tag.end() ? 0 : it->second.peak_bytes,
                      bytes)
                      << tag << " on rank " << rank.rank;
                }
                EXPECT_EQ(report.total.peak_bytes, total);
                const int64_t held = zero_grad == ZeroGrad::kFill
                                         ? total
                                         : total - planned.at(kMainGradTag);
                EXPECT_EQ(report.total.current_bytes, held);
                return absl::OkStatus();
              }));
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera

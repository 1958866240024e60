#include "tessera/fsdp/memory_plan.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/fsdp/optimizer.h"
#include "tests/fsdp/toy_training.h"
#include "tests/heap.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::DeepToyUnits;
using ::tessera::testing::DefaultToyUnits;
using ::tessera::testing::LegalTriples;
using ::tessera::testing::OracleHistory;
using ::tessera::testing::ToyRank;
using ::tessera::testing::ToyRun;
using ::tessera::testing::ToyValues;
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
                          // The root's own slot, and two for the blocks.
                          Pair("unsharded_weight", 4 * (64 + 2 * 256))));
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

// What the allocator of every rank counts, by tag and in all, is the formula to
// the byte, and nothing is allocated once main gradients exist.
void ExpectPlannedMemory(const ToyRun& run) {
  SCOPED_TRACE(run.ToString());
  const auto expected = OracleHistory(run);
  EXPECT_OK(RunLocalRanks(
      DeviceMesh::Parse(run.mesh)->size(),
      [&](LocalRank& rank) -> absl::Status {
        TESSERA_ASSIGN_OR_RETURN(auto toy,
                                 ToyRank::Create(run, rank.comms, rank.stream));
        int64_t allocations = 0;
        int64_t system_allocations = 0;
        for (int step = 0; step < run.steps; ++step) {
          TESSERA_RETURN_IF_ERROR(toy->TrainStep(step, expected.weights[step]));
          const int64_t now = rank.device.memory().total.allocations;
          if (run.zero_grad == ZeroGrad::kFill && step > 0) {
            EXPECT_EQ(now, allocations);
          }
          allocations = now;
          // Not even what is released and allocated anew, however far the host
          // is ahead of its streams.
          const int64_t asked = rank.device.system_allocations();
          if (step >= 2) {
            EXPECT_EQ(asked, system_allocations);
          }
          system_allocations = asked;
        }
        const auto planned =
            PlanMemory(toy->context().unit_memory(), run.overlap);
        const MemoryReport report = rank.device.memory();
        int64_t total = 0;
        for (const auto& [tag, bytes] : planned) {
          total += bytes;
          const auto it = report.by_tag.find(tag);
          EXPECT_EQ(it == report.by_tag.end() ? 0 : it->second.peak_bytes,
                    bytes)
              << tag << " on rank " << rank.rank;
        }
        EXPECT_EQ(report.total.peak_bytes, total);
        const int64_t held = run.zero_grad == ZeroGrad::kFill
                                 ? total
                                 : total - planned.at(kMainGradTag);
        EXPECT_EQ(report.total.current_bytes, held);
        return absl::OkStatus();
      },
      {.device = {.streams = run.streams}}));
}

TEST(MemoryPlanTest, EqualsWhatTheAllocatorCountsForEveryTriple) {
  for (const char* mesh :
       {"dp=3", "outer=2,inner=2", "outer=1,inner=3", "a=2,b=1,c=2"}) {
    for (const UnitPlacements& triple :
         LegalTriples(DeviceMesh::Parse(mesh)->num_axes())) {
      for (ZeroGrad zero_grad : {ZeroGrad::kRelease, ZeroGrad::kFill}) {
        ToyRun run;
        run.placements = triple;
        run.mesh = mesh;
        run.zero_grad = zero_grad;
        run.dtype = zero_grad == ZeroGrad::kFill ? DType::kF32 : DType::kBF16;
        run.microbatches = 2;
        run.units = DefaultToyUnits();
        ExpectPlannedMemory(run);
      }
    }
  }
}

TEST(MemoryPlanTest, EqualsWhatTheAllocatorCountsForEveryReleasePolicy) {
  for (const char* strategy :
       {"ddp", "zero1", "zero2", "fsdp", "hsdp", "hfsdp"}) {
    for (ReleaseWeights release :
         {ReleaseWeights::kAfterForward, ReleaseWeights::kAfterBackward,
          ReleaseWeights::kNever}) {
      for (CpuStreams streams : {CpuStreams::kInline, CpuStreams::kWorker}) {
        ToyRun run;
        run.strategy = strategy;
        run.release = release;
        run.streams = streams;
        run.steps = 5;
        run.units = DefaultToyUnits();
        ExpectPlannedMemory(run);
      }
    }
  }
}

TEST(MemoryPlanTest, EqualsWhatTheAllocatorCountsForEveryOverlap) {
  for (int prefetch : {0, 1, 2, 3, 100}) {
    for (int in_flight : {1, 2, 3, 100}) {
      ToyRun run;
      run.strategy = prefetch % 2 == 0 ? "hsdp" : "hfsdp";
      run.overlap = {.prefetch = prefetch, .gradients_in_flight = in_flight};
      run.units = DeepToyUnits();
      ExpectPlannedMemory(run);
    }
  }
}

// With nothing said, transient memory is the weights of the unit at work and
// the next, and two unreduced gradients, plus those of the units that enclose
// them.
TEST(MemoryPlanTest, BoundsTransientMemoryByTheGreatestUnits) {
  const std::vector<UnitMemory> units = {HsdpUnit(1, 64), HsdpUnit(2, 128),
                                         HsdpUnit(2, 256), HsdpUnit(3, 512),
                                         HsdpUnit(3, 384)};
  const auto planned = PlanMemory(units);
  EXPECT_EQ(planned.at(kUnshardedWeightTag), 4 * (64 + 256 + 2 * 512));
  EXPECT_EQ(planned.at(kUnreducedGradTag), 4 * (64 + 256 + 2 * 512));
}

// Slots for running ahead serve all depths that have several units.
TEST(MemoryPlanTest, PlansAsManySlotsAsMayRunAhead) {
  const std::vector<UnitMemory> units = {HsdpUnit(1, 1024), HsdpUnit(2, 512),
                                         HsdpUnit(3, 64), HsdpUnit(2, 256),
                                         HsdpUnit(3, 128)};
  const auto bytes = [&](int prefetch, int in_flight) {
    const auto planned = PlanMemory(
        units, {.prefetch = prefetch, .gradients_in_flight = in_flight});
    return std::vector<int64_t>{planned.at(kUnshardedWeightTag) / 4,
                                planned.at(kUnreducedGradTag) / 4};
  };
  const int64_t least = 1024 + 512 + 128;
  EXPECT_THAT(bytes(0, 1), ElementsAre(least, least));
  EXPECT_THAT(bytes(1, 2), ElementsAre(least + 512, least + 512));
  // Two units have no slot of their depth: more would never be used.
  EXPECT_THAT(bytes(2, 5), ElementsAre(least + 1024, least + 1024));
  EXPECT_THAT(bytes(7, 1), ElementsAre(least + 1024, least));

  const SlotPlan plan = PlanWeightSlots(units, {.prefetch = 1});
  EXPECT_THAT(plan.bytes, ElementsAre(4096, 2048, 512, 2048));
  EXPECT_THAT(plan.slots_of_unit,
              ElementsAre(ElementsAre(0), ElementsAre(1, 3), ElementsAre(2, 3),
                          ElementsAre(1, 3), ElementsAre(2, 3)));
}

// A unit has no next one where it is alone.
TEST(MemoryPlanTest, PlansNoSecondSlotForOneUnit) {
  const std::vector<UnitMemory> units = {HsdpUnit(1, 64), HsdpUnit(2, 128)};
  const auto planned = PlanMemory(units);
  EXPECT_EQ(planned.at(kUnshardedWeightTag), 4 * (64 + 128));
  EXPECT_EQ(planned.at(kUnreducedGradTag), 4 * (64 + 128));
}

// A thousand steps leave the memory of device and host as they found it.
TEST(MemoryPlanTest, StaysFlatOverAThousandSteps) {
  for (const char* strategy : {"hsdp", "hfsdp"}) {
    for (ZeroGrad zero_grad : {ZeroGrad::kRelease, ZeroGrad::kFill}) {
      ToyRun run;
      run.strategy = strategy;
      run.zero_grad = zero_grad;
      run.microbatches = 1;
      run.learning_rate = 0;  // so that weights are known
      run.units = {{"root", -1, {{"w", {5}}}}, {"block", 0, {{"w", {3, 3}}}}};
      run.steps = 1;
      SCOPED_TRACE(run.ToString());
      const auto expected = OracleHistory(run);
      EXPECT_OK(RunLocalRanks(4, [&](LocalRank& rank) -> absl::Status {
        TESSERA_ASSIGN_OR_RETURN(auto toy,
                                 ToyRank::Create(run, rank.comms, rank.stream));
        MemoryReport early;
        int64_t early_heap = 0;
        for (int step = 0; step < 1000; ++step) {
          TESSERA_RETURN_IF_ERROR(toy->TrainStep(step, expected.weights[0]));
          if (step != 99 && step != 999) continue;
          // All ranks are at rest while the heap, which they share, is read.
          TESSERA_RETURN_IF_ERROR(
              rank.comms.world().HostAllGather("").status());
          const int64_t heap = testing::HeapBytesInUse();
          TESSERA_RETURN_IF_ERROR(
              rank.comms.world().HostAllGather("").status());
          const MemoryReport now = rank.device.memory();
          if (step == 99) {
            early = now;
            early_heap = heap;
            continue;
          }
          EXPECT_EQ(now.total.peak_bytes, early.total.peak_bytes);
          EXPECT_EQ(now.total.current_bytes, early.total.current_bytes);
          EXPECT_EQ(now.by_tag.size(), early.by_tag.size());
          // Allocators keep some; but 32 bytes, the least there is, from each
          // rank in each step would be over 100,000.
          EXPECT_LT(heap, early_heap + 65'536);
        }
        return absl::OkStatus();
      }));
    }
  }
}

}  // namespace
}  // namespace tessera

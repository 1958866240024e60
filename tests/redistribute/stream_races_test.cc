// Plans executed on streams that run in any order.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/redistribute/planner.h"
#include "tessera/redistribute/redistributor.h"
#include "tessera/testing/run_scheduled_ranks.h"
#include "tessera/testing/shards.h"
#include "tests/redistribute/all_layouts.h"
#include "tests/redistribute/run_plans.h"
#include "tests/redistribute/sampling.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::AllLayouts;
using ::tessera::testing::Arange;
using ::tessera::testing::HostTensor;
using ::tessera::testing::RunScheduledAndFindFault;
using ::tessera::testing::RunScheduledRanks;
using ::tessera::testing::ScheduledRank;
using ::tessera::testing::SeededRandom;
using ::tessera::testing::Shards;

TEST(ExecuteRacesTest, PlansSideBySideGiveTheReferenceValuesInAnyOrder) {
  SeededRandom random;
  for (const char* mesh : {"x=3", "x=2,y=2", "x=2,y=3"}) {
    for (const char* meta : {"f32[5,3]", "bf16[4,6]"}) {
      const std::vector<Layout> layouts = AllLayouts(
          TensorMeta::Parse(meta).value(), DeviceMesh::Parse(mesh).value(),
          {ReduceOp::kSum, ReduceOp::kAvg});
      for (uint64_t seed = 0; seed < 10; ++seed) {
        std::vector<Plan> plans;
        for (int i = 0; i < 40; ++i) {
          plans.push_back(MakePlan(layouts[random() % layouts.size()],
                                   layouts[random() % layouts.size()],
                                   Topology::LocalCpu())
                              .value());
        }
        EXPECT_EQ(
            RunScheduledAndFindFault(layouts[0].mesh().size(), plans, seed), "")
            << mesh << " " << meta << " seed " << seed;
      }
    }
  }
}

// Tensors that go from one stream's redistributor to another's and back, in
// memory that is freed on the way.
absl::Status MoveThereAndBack(const Layout& from, const Layout& to,
                              PlanCache& plans, const HostTensor& piece,
                              ScheduledRank& rank) {
  constexpr int kRounds = 3;
  Stream& there = rank.stream;
  TESSERA_ASSIGN_OR_RETURN(const auto back, rank.device.NewStream("back"));
  Redistributor first(plans, rank.comms, there);
  Redistributor second(plans, rank.comms, *back);
  Kernels& kernels = rank.device.kernels();
  std::vector<HostTensor> results;
  for (int i = 0; i < kRounds; ++i) results.emplace_back(piece.meta());
  for (HostTensor& result : results) {
    TESSERA_ASSIGN_OR_RETURN(
        ShardedTensor source,
        ShardedTensor::Allocate(from, rank.rank, rank.device, "source"));
    TESSERA_RETURN_IF_ERROR(
        kernels.CopyFromHost(there, source.local(), piece.bytes().data()));
    TESSERA_ASSIGN_OR_RETURN(ShardedTensor moved,
                             first.Redistribute(source, to));
    source.ResetAfter(there);
    TESSERA_RETURN_IF_ERROR(back->Wait(there.Record()));
    TESSERA_ASSIGN_OR_RETURN(ShardedTensor returned,
                             second.Redistribute(moved, from));
    moved.ResetAfter(*back);
    TESSERA_RETURN_IF_ERROR(
        kernels.CopyToHost(*back, result.view().data(), returned.local()));
    returned.ResetAfter(*back);
  }
  TESSERA_RETURN_IF_ERROR(back->Synchronize());
  for (const HostTensor& result : results) EXPECT_EQ(result, piece);
  return absl::OkStatus();
}

TEST(ExecuteRacesTest, RedistributorsHandTensorsOn) {
  const DeviceMesh mesh = DeviceMesh::Parse("x=2,y=2").value();
  const Layout from = Layout::Parse("f32[5,6] [S(0), R]", mesh).value();
  const HostTensor whole = Arange(from.meta());
  const std::vector<HostTensor> pieces = Shards(whole, from).value();
  for (const char* placements : {"[R, S(1)]", "[S(1), S(0)]", "[R, R]"}) {
    const Layout to = from.With(placements).value();
    for (uint64_t seed = 0; seed < 5; ++seed) {
      PlanCache plans(Topology::LocalCpu(), /*capacity=*/8);
      EXPECT_OK(RunScheduledRanks(
          4,
          [&](ScheduledRank& rank) {
            return MoveThereAndBack(from, to, plans, pieces[rank.rank], rank);
          },
          {.seed = seed}))
          << placements;
    }
  }
}

}  // namespace
}  // namespace tessera

// Redistributions that were met before allocate nothing.

#include <cstddef>
#include <cstdint>
#include <latch>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/run_ranks.h"
#include "tessera/redistribute/execute_many.h"
#include "tessera/redistribute/redistributor.h"
#include "tests/count_allocations.h"
#include "tests/cpu_streams.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::NumAllocations;

constexpr int kRanks = 4;
constexpr int kCalls = 3;

Redistribution Between(const std::string& source, const std::string& target) {
  const Layout from =
      Layout::Parse(source, DeviceMesh::Parse("x=2,y=2").value()).value();
  return {from, from.With(target).value()};
}

// Steps of every kind, several at a time, even and uneven, with a workspace.
std::vector<Redistribution> AllSorts() {
  return {
      Between("f32[8,6] [R, R]", "[S(0), S(1)]"),
      Between("f32[8,6] [S(0), S(0)]", "[R, R]"),
      Between("f32[5,3] [S(0)[1], S(0)[0]]", "[R, S(1)]"),
      Between("f32[8,6] [P(sum), P(sum)]", "[R, S(1)]"),
      Between("bf16[5,3] [P(avg), P(avg)]", "[R, R]"),
      Between("f32[4,6,2] [S(0), S(1)]", "[S(1), S(2)]"),
      Between("f32[7] [P(max), R]", "[P(sum), R]"),
      Between("f32[7,2] [S(0), R]", "[P(avg), S(1)]"),
      Between("f32[9] [Ragged(0,4,9), R]", "[R, S(0)]"),
      Between("f32[300,400] [S(0), S(1)]", "[S(1), S(0)]"),
  };
}

class ExecuteAllocations : public ::testing::TestWithParam<CpuStreams> {};

INSTANTIATE_TEST_SUITE_P(Streams, ExecuteAllocations, testing::BothStreams(),
                         testing::StreamsName);

// Calls `work` some times to warm up, a worker stream holding all of it back at
// first; then counts what it allocates. COLLECTIVE over the world.
template <typename Work>
absl::Status ExpectNoAllocations(LocalRank& rank, CpuStreams streams,
                                 const std::string& name, Work work) {
  const auto meet = [&] {
    absl::Status status = rank.comms.world().Barrier();
    status.Update(rank.stream.Synchronize());
    return status;
  };
  TESSERA_RETURN_IF_ERROR(meet());
  TESSERA_RETURN_IF_ERROR(work());  // ranks compare the plan
  absl::Status status;
  for (int round = 0; round < 2; ++round) {
    std::latch enqueued(streams == CpuStreams::kWorker ? 1 : 0);
    status.Update(rank.stream.Launch({.name = "hold"}, [&enqueued] {
      enqueued.wait();
      return absl::OkStatus();
    }));
    for (int i = 0; i < kCalls; ++i) status.Update(work());
    if (streams == CpuStreams::kWorker) enqueued.count_down();
    status.Update(meet());
  }
  const int64_t before = NumAllocations();
  status.Update(meet());
  for (int i = 0; i < kCalls; ++i) status.Update(work());
  status.Update(meet());
  const int64_t after = NumAllocations();
  status.Update(meet());
  EXPECT_EQ(after - before, 0) << name << " on rank " << rank.rank;
  return status;
}

TEST_P(ExecuteAllocations, OfARedistributorNoneOnceWarm) {
  PlanCache plans(Topology::LocalCpu(), 64);
  EXPECT_OK(RunLocalRanks(
      kRanks,
      [&](LocalRank& rank) -> absl::Status {
        Redistributor redistributor(plans, rank.comms, rank.stream);
        for (const Redistribution& ends : AllSorts()) {
          TESSERA_ASSIGN_OR_RETURN(
              const ShardedTensor source,
              ShardedTensor::Allocate(ends.source, rank.rank, rank.device));
          TESSERA_ASSIGN_OR_RETURN(
              const ShardedTensor target,
              ShardedTensor::Allocate(ends.target, rank.rank, rank.device));
          TESSERA_RETURN_IF_ERROR(rank.device.kernels().Fill(
              rank.stream, source.local(), /*value=*/1));
          TESSERA_RETURN_IF_ERROR(ExpectNoAllocations(
              rank, GetParam(), ends.source.ToString(),
              [&] { return redistributor.RedistributeInto(source, target); }));
        }
        return absl::OkStatus();
      },
      {.device = {.streams = GetParam()}}));
}

TEST_P(ExecuteAllocations, OfAPreparedListNoneOnceWarm) {
  const auto many = std::make_shared<const ManyPlan>(
      PlanMany(AllSorts(), Topology::LocalCpu()).value());
  EXPECT_OK(RunLocalRanks(
      kRanks,
      [&](LocalRank& rank) -> absl::Status {
        TESSERA_ASSIGN_OR_RETURN(PreparedManyPlan prepared,
                                 Prepare(many, rank.comms, rank.stream));
        std::vector<ShardedTensor> tensors;
        std::vector<TensorView> sources;
        std::vector<TensorView> targets;
        for (const Redistribution& ends : AllSorts()) {
          for (const Layout* layout : {&ends.source, &ends.target}) {
            TESSERA_ASSIGN_OR_RETURN(
                ShardedTensor tensor,
                ShardedTensor::Allocate(*layout, rank.rank, rank.device));
            tensors.push_back(std::move(tensor));
            auto& views = layout == &ends.source ? sources : targets;
            views.push_back(tensors.back().local());
            TESSERA_RETURN_IF_ERROR(rank.device.kernels().Fill(
                rank.stream, views.back(), /*value=*/1));
          }
        }
        std::vector<std::byte> memory(prepared.workspace_bytes());
        return ExpectNoAllocations(rank, GetParam(), "list", [&] {
          return prepared.Execute(sources, targets,
                                  {memory.data(), prepared.workspace_bytes()});
        });
      },
      {.device = {.streams = GetParam()}}));
}

}  // namespace
}  // namespace tessera

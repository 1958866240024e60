#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/run_ranks.h"
#include "tessera/redistribute/execute.h"
#include "tessera/redistribute/planner.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::StatusIs;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

std::shared_ptr<const Plan> PlanBetween(const std::string& mesh,
                                        const std::string& source,
                                        const std::string& target) {
  const Layout from =
      Layout::Parse(source, DeviceMesh::Parse(mesh).value()).value();
  return std::make_shared<const Plan>(
      MakePlan(from, from.With(target).value(), Topology::LocalCpu()).value());
}

LocalRunOptions SoonOver(CpuStreams streams = CpuStreams::kInline) {
  LocalRunOptions options;
  options.device.streams = streams;
  options.world.timeout = std::chrono::seconds(5);
  return options;
}

TEST(PreparedPlanTest, RunsAnyNumberOfTimes) {
  // Over a buffer in the workspace.
  const auto plan = PlanBetween("x=2", "f32[4] [P(max)]", "[P(sum)]");
  ASSERT_GT(plan->workspace_bytes(), 0);
  for (CpuStreams streams : {CpuStreams::kInline, CpuStreams::kWorker}) {
    EXPECT_OK(RunLocalRanks(
        2,
        [&](LocalRank& self) -> absl::Status {
          TESSERA_ASSIGN_OR_RETURN(PreparedPlan prepared,
                                   Prepare(plan, self.comms, self.stream));
          EXPECT_EQ(prepared.plan(), plan);
          EXPECT_LE(prepared.workspace_bytes(), plan->workspace_bytes());
          std::vector<std::byte> workspace(prepared.workspace_bytes());
          for (float start : {1.f, 5.f, -3.f}) {
            std::vector<float> source(4, start + self.rank);
            std::vector<float> target(4, -77);
            TESSERA_RETURN_IF_ERROR(prepared.Execute(
                TensorView::Flat(source.data(), DType::kF32, 4),
                TensorView::Flat(target.data(), DType::kF32, 4),
                {workspace.data(), prepared.workspace_bytes()}));
            TESSERA_RETURN_IF_ERROR(self.stream.Synchronize());
            const std::vector<float> half(2, start + 1);
            std::vector<float> wanted(4, -0.f);
            std::copy(half.begin(), half.end(), wanted.begin() + 2 * self.rank);
            EXPECT_EQ(target, wanted);
          }
          return absl::OkStatus();
        },
        SoonOver(streams)));
  }
}

TEST(PreparedPlanTest, AsksForItsWorkspace) {
  const auto plan = PlanBetween("x=2", "f32[4] [P(max)]", "[P(sum)]");
  EXPECT_OK(RunLocalRanks(2, [&](LocalRank& self) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(PreparedPlan prepared,
                             Prepare(plan, self.comms, self.stream));
    std::vector<float> memory(16);
    const auto at = [&](int i) {
      return TensorView::Flat(memory.data() + i, DType::kF32, 4);
    };
    EXPECT_EQ(prepared.workspace_bytes(), 8);
    EXPECT_THAT(prepared.Execute(at(0), at(4), {memory.data() + 8, 7}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("want a workspace of 8 bytes"),
                               HasSubstr("found 7"))));
    return prepared.Execute(at(0), at(4), {memory.data() + 8, 8});
  }));
}

// Each rank holds less than the first, and needs less.
TEST(PreparedPlanTest, NeedsNoMoreWorkspaceThanTheRankHolds) {
  const auto plan = PlanBetween("x=4", "f32[5] [P(max)]", "[P(sum)]");
  EXPECT_OK(RunLocalRanks(4, [&](LocalRank& self) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(PreparedPlan prepared,
                             Prepare(plan, self.comms, self.stream));
    const std::vector<int64_t> wanted = {8, 8, 4, 0};
    EXPECT_EQ(prepared.workspace_bytes(), wanted[self.rank]);
    return absl::OkStatus();
  }));
}

// What comes of rank r calling Execute with plans[r].
std::vector<absl::Status> ExecuteDifferent(
    const std::vector<std::shared_ptr<const Plan>>& plans,
    std::vector<std::vector<float>>* targets = nullptr) {
  std::vector<absl::Status> results(plans.size());
  EXPECT_OK(RunLocalRanks(
      static_cast<int>(plans.size()),
      [&](LocalRank& self) {
        const Plan& plan = *plans[self.rank];
        const TensorMeta before = plan.source().LocalMeta(self.rank);
        const TensorMeta after = plan.target().LocalMeta(self.rank);
        std::vector<float> source(before.num_elements());
        std::vector<float> target(after.num_elements(), -77);
        results[self.rank] =
            Execute(plan, {source.data(), before}, {target.data(), after},
                    self.comms, self.stream);
        results[self.rank].Update(self.stream.Synchronize());
        if (targets != nullptr) (*targets)[self.rank] = target;
        return absl::OkStatus();
      },
      SoonOver()));
  return results;
}

TEST(PreparedPlanTest, RanksWithDifferentPlansAllFail) {
  const auto gather = PlanBetween("x=3", "f32[6,3] [S(0)]", "[R]");
  const auto exchange = PlanBetween("x=3", "f32[6,3] [S(0)]", "[S(1)]");
  std::vector<std::vector<float>> targets(3);
  EXPECT_THAT(
      ExecuteDifferent({gather, exchange, gather}, &targets),
      Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                    AllOf(HasSubstr("ranks 0,2: plan "),
                          HasSubstr("f32[6,3] on mesh 'x=3': [S(0)] -AG(x)-> "
                                    "[R]"),
                          HasSubstr("rank 1: plan "),
                          HasSubstr("[S(0)] -A2A(x)-> [S(1)]")))));
  // Found before anything was sent.
  for (const std::vector<float>& target : targets) {
    EXPECT_THAT(target, Each(-77));
  }
}

// All ranks of the mesh, not only those that a step brings together.
TEST(PreparedPlanTest, ComparesOverTheWholeMesh) {
  const auto f32 = PlanBetween("x=2,y=2", "f32[4] [R, S(0)]", "[R, R]");
  const auto f64 = PlanBetween("x=2,y=2", "f64[4] [R, S(0)]", "[R, R]");
  EXPECT_THAT(
      ExecuteDifferent({f32, f32, f64, f64}),
      Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                    AllOf(HasSubstr("ranks 0,1"), HasSubstr("ranks 2,3")))));
}

TEST(PreparedPlanTest, PlansThatDoNotCommunicateAreNotCompared) {
  const auto slice = PlanBetween("x=2", "f32[4,2] [R]", "[S(0)]");
  const auto other = PlanBetween("x=2", "f32[4,2] [R]", "[S(1)]");
  EXPECT_THAT(ExecuteDifferent({slice, other}), Each(absl::OkStatus()));
}

// The second time no rank waits for another before it has enqueued its part.
TEST(PreparedPlanTest, AreComparedOnce) {
  const auto plan = PlanBetween("x=2", "f32[2] [S(0)]", "[R]");
  const auto same = PlanBetween("x=2", "f32[2] [S(0)]", "[R]");
  std::atomic<bool> first_is_done = false;
  EXPECT_OK(RunLocalRanks(
      2,
      [&](LocalRank& self) -> absl::Status {
        float source = 1;
        float target[2];
        const TensorView from = TensorView::Flat(&source, DType::kF32, 1);
        const TensorView to = TensorView::Flat(target, DType::kF32, 2);
        TESSERA_RETURN_IF_ERROR(
            Execute(*plan, from, to, self.comms, self.stream));
        while (self.rank == 1 && !first_is_done) std::this_thread::yield();
        TESSERA_RETURN_IF_ERROR(
            Execute(*same, from, to, self.comms, self.stream));
        first_is_done = true;
        return self.stream.Synchronize();
      },
      SoonOver(CpuStreams::kWorker)));
}

}  // namespace
}  // namespace tessera

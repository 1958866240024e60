#include "tessera/testing/communicators.h"

#include <chrono>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/mesh/topology.h"
#include "tessera/redistribute/execute.h"
#include "tessera/redistribute/planner.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/testing/shards.h"
#include "tests/status_matchers.h"

namespace tessera::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Plan TwoCollectives() {
  const Layout from = Layout::Parse("f32[8,12] [P, S(0)]",
                                    DeviceMesh::Parse("dp=2,tp=2").value())
                          .value();
  const Plan plan =
      MakePlan(from, from.With("[S(1), R]").value(), Topology::Unit()).value();
  EXPECT_EQ(plan.launches(), 2) << plan;
  return plan;
}

// Runs the plan on this rank through `world`, into `target`.
absl::Status RunPlan(const Plan& plan, Communicator& world, LocalRank& rank,
                     HostTensor& target) {
  CommSet comms(world);
  HostTensor source(plan.source().LocalMeta(rank.rank));
  TESSERA_RETURN_IF_ERROR(Fill(plan.source(), rank.rank, source.view(),
                               [](int64_t n) { return double(n); }));
  TESSERA_RETURN_IF_ERROR(
      Execute(plan, source.view(), target.view(), comms, rank.stream));
  return rank.stream.Synchronize();
}

std::vector<HostTensor> TargetsOf(const Plan& plan) {
  std::vector<HostTensor> targets;
  for (int rank = 0; rank < plan.target().mesh().size(); ++rank) {
    targets.emplace_back(plan.target().LocalMeta(rank));
  }
  return targets;
}

TEST(CountingCommunicatorTest, CountsWhatGoesThroughItAndItsGroups) {
  const Plan plan = TwoCollectives();
  std::vector<HostTensor> targets = TargetsOf(plan);
  EXPECT_OK(RunRanks(4, [&](LocalRank& rank) -> absl::Status {
    SCOPED_TRACE(rank.rank);
    CountingCommunicator world(rank.comms.world());
    TESSERA_RETURN_IF_ERROR(RunPlan(plan, world, rank, targets[rank.rank]));
    EXPECT_EQ(world.calls(), plan.launches());
    EXPECT_EQ(world.calls(CollectiveKind::kReduceScatter), 1);
    EXPECT_EQ(world.calls(CollectiveKind::kAllReduce), 0);
    EXPECT_EQ(world.bytes_received(), plan.bytes_received());
    // The inner communicator counts on as ever.
    EXPECT_EQ(rank.comms.log().counters(), world.log()->counters());
    return world.HostAllGather("").status();
  }));
  EXPECT_THAT(Reassemble(targets, plan.target()),
              IsOkAndHolds(Arange(plan.target().meta())));
}

TEST(CountingCommunicatorTest, CountsHostExchangesOfItsGroups) {
  EXPECT_OK(RunRanks(2, [](LocalRank& rank) -> absl::Status {
    CountingCommunicator world(rank.comms.world());
    TESSERA_ASSIGN_OR_RETURN(const auto group,
                             world.Subgroup({0, 1}, "both", rank.stream));
    TESSERA_RETURN_IF_ERROR(group->HostAllGather("").status());
    TESSERA_RETURN_IF_ERROR(world.HostAllGather("").status());
    EXPECT_EQ(world.host_all_gathers(), 2);
    const bool is_first = rank.rank == 0;
    TESSERA_ASSIGN_OR_RETURN(
        const auto part,
        world.Partition(is_first ? std::vector<int>{0} : std::vector<int>(),
                        "first", rank.stream));
    EXPECT_EQ(part != nullptr, is_first);
    if (is_first) TESSERA_RETURN_IF_ERROR(part->HostAllGather("").status());
    EXPECT_EQ(world.host_all_gathers(), is_first ? 3 : 2);
    EXPECT_EQ(world.calls(), 0);
    return absl::OkStatus();
  }));
}

TEST(FaultyCommunicatorTest, FailsOneCallOnEveryRankOfTheGroup) {
  const Plan plan = TwoCollectives();
  std::vector<HostTensor> targets = TargetsOf(plan);
  const absl::Status status = RunRanks(4, [&](LocalRank& rank) {
    Fault fault;
    fault.kind = CollectiveKind::kAllGather;
    fault.error = absl::UnavailableError("link down");
    if (rank.rank != 2) fault.error = absl::OkStatus();
    FaultyCommunicator world(rank.comms.world(), fault);
    return RunPlan(plan, world, rank, targets[rank.rank]);
  });
  // Whichever of the two ranks is first.
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("2 of 4 ranks failed"),
                    HasSubstr("rank 2: UNAVAILABLE: link down"),
                    HasSubstr("rank 3: ABORTED")));
}

// The others learn of it from the group, though no rank ends.
TEST(FaultyCommunicatorTest, AbortsTheGroupThatItHits) {
  std::vector<absl::Status> results(2);
  const auto run = [&](LocalRank& rank) -> absl::Status {
    Fault fault;
    if (rank.rank == 0) fault.error = absl::UnavailableError("link down");
    FaultyCommunicator world(rank.comms.world(), fault);
    TESSERA_ASSIGN_OR_RETURN(const auto stream, rank.device.NewStream("group"));
    TESSERA_ASSIGN_OR_RETURN(const auto group,
                             world.Subgroup({0, 1}, "both", *stream));
    results[rank.rank] = group->Barrier();
    return world.HostAllGather("").status();
  };
  LocalRunOptions options;
  options.world.timeout = std::chrono::seconds(10);
  EXPECT_OK(RunRanks(2, run, options));
  EXPECT_THAT(results[0], StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(results[1],
              StatusIs(absl::StatusCode::kAborted, HasSubstr("link down")));
}

TEST(FaultyCommunicatorTest, HitsTheCallOfItsNumberOnly) {
  for (int64_t call = 0; call < 4; ++call) {
    std::vector<int> done(2, 0);
    const absl::Status status = RunRanks(2, [&](LocalRank& rank) {
      Fault fault;
      fault.call = call;
      if (rank.rank == 0) fault.error = absl::UnavailableError("link down");
      FaultyCommunicator world(rank.comms.world(), fault);
      for (int i = 0; i < 3; ++i) {
        TESSERA_RETURN_IF_ERROR(world.Barrier());
        ++done[rank.rank];
      }
      return absl::OkStatus();
    });
    EXPECT_EQ(status.ok(), call == 3) << status;
    EXPECT_EQ(done[0], call);
    EXPECT_EQ(done[1], call);
  }
}

TEST(FaultyCommunicatorTest, DelaysOneCall) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kDelay = std::chrono::milliseconds(50);
  EXPECT_OK(RunRanks(2, [&](LocalRank& rank) {
    Fault fault;
    if (rank.rank == 1) fault.delay = kDelay;
    FaultyCommunicator world(rank.comms.world(), fault);
    const Clock::time_point start = Clock::now();
    const absl::Status status = world.Barrier();
    if (rank.rank == 1) {
      EXPECT_GE(Clock::now() - start, kDelay);
    }
    return status;
  }));
}

}  // namespace
}  // namespace tessera::testing

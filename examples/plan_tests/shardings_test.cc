// The plans of this project under GoogleTest.

#include "shardings.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/mesh/topology.h"
#include "tessera/redistribute/execute.h"
#include "tessera/redistribute/planner.h"
#include "tessera/testing/communicators.h"
#include "tessera/testing/matchers.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/testing/shards.h"

namespace plan_tests {
namespace {

using ::tessera::LocalRank;
using ::tessera::MakePlan;
using ::tessera::Plan;
using ::tessera::Topology;
using ::tessera::testing::Arange;
using ::tessera::testing::AtMost;
using ::tessera::testing::CountingCommunicator;
using ::tessera::testing::HostTensor;
using ::tessera::testing::IsOkAndHolds;
using ::tessera::testing::IsVerified;
using ::tessera::testing::Launches;
using ::tessera::testing::MatchesGolden;
using ::tessera::testing::NeverGathers;
using ::tessera::testing::PeaksBelow;
using ::tessera::testing::Reassemble;
using ::tessera::testing::RunRanks;
using ::tessera::testing::Sends;
using ::tessera::testing::Shards;
using ::tessera::testing::StepsAre;

TEST(ShardingsTest, GradientsAreReducedToShardsAtOnce) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const Move move, GradientToShards());
  TESSERA_ASSERT_OK_AND_ASSIGN(const Plan plan,
                               MakePlan(move.from, move.to, Topology::Unit()));
  EXPECT_THAT(plan, IsVerified());
  EXPECT_THAT(plan, StepsAre("RS(dp)"));
  EXPECT_THAT(plan, Sends(AtMost(512)));
  EXPECT_THAT(plan, NeverGathers("tp"));
  EXPECT_THAT(plan, MatchesGolden(PLANS_JSON));
}

TEST(ShardingsTest, ActivationsMoveWithoutBeingGathered) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const Move move, SequenceToHeads());
  TESSERA_ASSERT_OK_AND_ASSIGN(const Plan plan,
                               MakePlan(move.from, move.to, Topology::Unit()));
  EXPECT_THAT(plan, ::testing::AllOf(Launches(AtMost(1)), NeverGathers("tp"),
                                     PeaksBelow(1 << 10)));
  EXPECT_THAT(plan, MatchesGolden(PLANS_JSON));
}

// On eight ranks, which are threads, what the plan says happens.
TEST(ShardingsTest, ActivationsArriveAsTheyWere) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const Move move, SequenceToHeads());
  TESSERA_ASSERT_OK_AND_ASSIGN(const Plan plan,
                               MakePlan(move.from, move.to, Topology::Unit()));
  const HostTensor whole = Arange(move.from.meta());
  TESSERA_ASSERT_OK_AND_ASSIGN(std::vector<HostTensor> sources,
                               Shards(whole, move.from));
  TESSERA_ASSERT_OK_AND_ASSIGN(std::vector<HostTensor> targets,
                               Shards(HostTensor(whole.meta()), move.to));
  TESSERA_EXPECT_OK(RunRanks(8, [&](LocalRank& rank) -> absl::Status {
    SCOPED_TRACE(rank.rank);
    CountingCommunicator world(rank.comms.world());
    tessera::CommSet comms(world);
    TESSERA_RETURN_IF_ERROR(tessera::Execute(plan, sources[rank.rank].view(),
                                             targets[rank.rank].view(), comms,
                                             rank.stream));
    EXPECT_EQ(world.calls(), plan.launches());
    return absl::OkStatus();
  }));
  EXPECT_THAT(Reassemble(targets, move.to), IsOkAndHolds(whole));
}

}  // namespace
}  // namespace plan_tests

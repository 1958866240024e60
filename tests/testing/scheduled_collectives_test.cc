#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/testing/run_scheduled_ranks.h"
#include "tests/comm/collective_cases.h"
#include "tests/status_matchers.h"

namespace tessera::testing {
namespace {

// Each on one of two streams, which belong to a rank's two groups of all.
TEST(ScheduledCollectivesTest, GiveTheReferenceResultBitByBit) {
  for (int ranks : {1, 2, 3, 4}) {
    const std::vector<CollectiveCase> cases = AllCollectiveCases(ranks);
    std::vector<CollectiveRun> runs;
    for (size_t i = 0; i < cases.size(); i += 3) {
      runs.emplace_back(cases[i], 100 * i);
    }
    ASSERT_OK(RunScheduledRanks(
        ranks,
        [&](ScheduledRank& rank) -> absl::Status {
          TESSERA_ASSIGN_OR_RETURN(const auto side,
                                   rank.device.NewStream("side"));
          std::vector<int> all;
          for (int r = 0; r < ranks; ++r) all.push_back(r);
          TESSERA_ASSIGN_OR_RETURN(
              const auto comm, rank.comms.world().Subgroup(all, "side", *side));
          Communicator* comms[] = {&rank.comms.world(), comm.get()};
          for (size_t i = 0; i < runs.size(); ++i) {
            TESSERA_RETURN_IF_ERROR(runs[i].Issue(*comms[i % 2]));
          }
          return side->Synchronize();
        },
        {.seed = static_cast<uint64_t>(ranks)}));
    for (const CollectiveRun& run : runs) {
      for (int r = 0; r < ranks; ++r) ASSERT_EQ(run.Check(r), "");
    }
  }
}

// Any calls, up to seven at once.
TEST(ScheduledCollectivesTest, GiveTheSameBitsSeveralInOneLaunch) {
  constexpr int kRanks = 3;
  const std::vector<CollectiveCase> cases = AllCollectiveCases(kRanks);
  std::mt19937 random(1);
  std::vector<std::vector<CollectiveRun>> launches(30);
  for (std::vector<CollectiveRun>& launch : launches) {
    const size_t calls = 1 + random() % 7;
    while (launch.size() < calls) {
      launch.emplace_back(cases[random() % cases.size()], random());
    }
  }
  ASSERT_OK(RunScheduledRanks(kRanks, [&](ScheduledRank& rank) -> absl::Status {
    for (const std::vector<CollectiveRun>& launch : launches) {
      std::vector<Collective> calls;
      for (const CollectiveRun& run : launch) {
        calls.push_back(run.Call(rank.rank));
      }
      TESSERA_RETURN_IF_ERROR(rank.comms.world().Issue(calls));
    }
    return absl::OkStatus();
  }));
  for (const std::vector<CollectiveRun>& launch : launches) {
    for (const CollectiveRun& run : launch) {
      for (int r = 0; r < kRanks; ++r) ASSERT_EQ(run.Check(r), "");
    }
  }
}

}  // namespace
}  // namespace tessera::testing

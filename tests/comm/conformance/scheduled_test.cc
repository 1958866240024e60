#include "absl/strings/str_cat.h"
#include "tessera/testing/run_scheduled_ranks.h"
#include "tests/comm/conformance/conformance.h"

namespace tessera::testing {
namespace {

ConformanceWorld Scheduled(int ranks) {
  return {.name = absl::StrCat(ranks),
          .ranks = ranks,
          .run =
              [=](ConformanceProgram program) {
                return RunScheduledRanks(
                    ranks,
                    [&](ScheduledRank& rank) {
                      return RunConformance(program, rank);
                    },
                    {.seed = static_cast<uint64_t>(ranks)});
              },
          .every = 3};
}

INSTANTIATE_TEST_SUITE_P(Scheduled, CommConformance,
                         ::testing::Values(Scheduled(1), Scheduled(2),
                                           Scheduled(3), Scheduled(4),
                                           Scheduled(7), Scheduled(8)),
                         WorldName);

}  // namespace
}  // namespace tessera::testing

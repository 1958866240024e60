// What measures NCCL on GPUs, where there is nothing to measure: its calls are
// those that NCCL and the other ranks expect, and in order.

#include "tests/gpu/comm_speed.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tests/emulation/run_emulated_ranks.h"
#include "tests/status_matchers.h"

namespace tessera::emulation {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(CommSpeedTest, MeasuresEachCollectiveInBothWays) {
  for (int ranks : {2, 3}) {
    EXPECT_OK(
        RunEmulatedRanks(ranks, [ranks](EmulatedRank& rank) -> absl::Status {
          TESSERA_ASSIGN_OR_RETURN(
              const std::vector<testing::CommSpeed> speeds,
              testing::MeasureCommSpeed(
                  rank.device, rank.comms.world(),
                  {.sizes = {400, 4096}, .turns = 3, .calls = 2}));
          std::vector<std::string> names;
          for (const testing::CommSpeed& speed : speeds) {
            names.push_back(speed.collective);
            EXPECT_EQ(speed.bytes % (4 * ranks), 0);
            EXPECT_GT(speed.nccl_busbw, 0);
            EXPECT_GT(speed.tessera_busbw, 0);
            EXPECT_GT(speed.ratio, 0);
          }
          EXPECT_THAT(names,
                      ElementsAre("all_reduce", "reduce_scatter", "all_gather",
                                  "all_to_all", "all_reduce", "reduce_scatter",
                                  "all_gather", "all_to_all"));
          return absl::OkStatus();
        }));
  }
}

TEST(CommSpeedTest, PrintsALineForEach) {
  EXPECT_THAT(
      testing::ToTable(
          {testing::CommSpeed{"all_gather", 64 << 20, 4e11, 3e11, 0.75}}),
      HasSubstr("\nall_gather            65536        400.0        300.0    "
                "0.75\n"));
}

}  // namespace
}  // namespace tessera::emulation

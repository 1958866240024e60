#include "tessera/testing/run_ranks.h"

#include <atomic>
#include <chrono>
#include <stdexcept>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/status_matchers.h"

namespace tessera::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

using Clock = std::chrono::steady_clock;

TEST(RunRanksTest, RunsEveryRank) {
  std::atomic<int> sum = 0;
  EXPECT_OK(RunRanks(4, [&](LocalRank& rank) {
    sum += rank.rank;
    return rank.comms.world().Barrier();
  }));
  EXPECT_EQ(sum, 6);
}

TEST(RunRanksTest, ReportsEveryRankThatFailed) {
  const absl::Status status = RunRanks(4, [](LocalRank& rank) -> absl::Status {
    if (rank.rank == 3) return absl::OkStatus();
    TESSERA_RETURN_IF_ERROR(rank.comms.world().HostAllGather("").status());
    return absl::OkStatus();
  });
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kAborted,
                       AllOf(StartsWith("testing: 3 of 4 ranks failed, first "),
                             HasSubstr("\n  rank 0: ABORTED: "),
                             HasSubstr("\n  rank 1: ABORTED: "),
                             HasSubstr("\n  rank 2: ABORTED: "),
                             Not(HasSubstr("rank 3: ABORTED")))));
}

TEST(RunRanksTest, NamesTheFirstAndDoesNotHang) {
  const Clock::time_point start = Clock::now();
  const absl::Status status = RunRanks(3, [](LocalRank& rank) -> absl::Status {
    if (rank.rank == 1) return absl::NotFoundError("no such file");
    return rank.comms.world().Barrier();
  });
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(20));
  EXPECT_THAT(
      status,
      StatusIs(absl::StatusCode::kNotFound,
               AllOf(StartsWith("testing: 3 of 3 ranks failed, first rank 1: "
                                "no such file\n  rank 0: ABORTED: "),
                     HasSubstr("\n  rank 1: NOT_FOUND: no such file\n"))));
}

TEST(RunRanksTest, ReportsWhatTheStreamFoundLater) {
  LocalRunOptions options;
  options.device.streams = CpuStreams::kWorker;
  const auto launch = [](LocalRank& rank) {
    return rank.stream.Launch({.name = "work"}, [r = rank.rank] {
      return r == 1 ? absl::DataLossError("bad sector") : absl::OkStatus();
    });
  };
  EXPECT_THAT(RunRanks(2, launch, options),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("1 of 2 ranks failed"),
                             HasSubstr("\n  rank 1: DATA_LOSS: bad sector"))));
}

TEST(RunRanksTest, ReportsExceptions) {
  EXPECT_THAT(RunRanks(2,
                       [](LocalRank& rank) -> absl::Status {
                         if (rank.rank == 0) throw std::runtime_error("oops");
                         return absl::OkStatus();
                       }),
              StatusIs(absl::StatusCode::kInternal,
                       AllOf(HasSubstr("first rank 0: the program threw: oops"),
                             HasSubstr("\n  rank 0: INTERNAL: "))));
}

TEST(RunRanksTest, RejectsNoRanks) {
  for (int num_ranks : {0, -1}) {
    EXPECT_THAT(
        RunRanks(num_ranks, [](LocalRank&) { return absl::OkStatus(); }),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 HasSubstr("want at least 1 rank")));
  }
}

}  // namespace
}  // namespace tessera::testing

#include "tessera/sweep/turns.h"

#include <array>
#include <atomic>
#include <chrono>
#include <new>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/status_matchers.h"

namespace tessera::testing {
namespace {

using internal::CallsPerTurn;
using internal::Median;
using internal::MedianSeconds;
using internal::Turns;
using internal::Work;
using ::testing::HasSubstr;

TEST(CallsPerTurnTest, FillsTheTurn) {
  const Turns turns = {.count = 1, .seconds = 0.01};
  EXPECT_EQ(CallsPerTurn(turns, 1.0), 1);
  EXPECT_EQ(CallsPerTurn(turns, 0.002), 5);
  EXPECT_EQ(CallsPerTurn(turns, 1e-9), 10'000);
  EXPECT_EQ(CallsPerTurn(turns, 0), 10'000);
  EXPECT_EQ(CallsPerTurn({.count = 1, .seconds = 0}, 1e-9), 1);
  EXPECT_EQ(CallsPerTurn({.count = 1, .seconds = 0}, 0), 1);
}

TEST(MedianTest, IsTheMiddleOne) {
  EXPECT_EQ(Median({3}), 3);
  EXPECT_EQ(Median({9, 1, 2}), 2);
}

// Ranks differ in what the work takes them, and yet repeat it as often.
TEST(MedianSecondsTest, RankZeroDecidesHowOftenAllRepeat) {
  constexpr int kRanks = 3;
  std::array<std::atomic<int>, kRanks> calls = {};
  const auto medians = MedianSeconds(
      kRanks, {.count = 2, .seconds = 0.1},
      [&](LocalRank& rank) -> absl::StatusOr<std::vector<Work>> {
        return std::vector<Work>{[&calls, &rank] {
          if (rank.rank == 0) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
          ++calls[rank.rank];
          return absl::OkStatus();
        }};
      });
  ASSERT_OK(medians.status());
  EXPECT_GT(calls[0], 2 + 1);  // more than once a turn
  EXPECT_LE(calls[0], 2 * 100 + 1);
  EXPECT_EQ(calls[1], calls[0].load());
  EXPECT_EQ(calls[2], calls[0].load());
}

TEST(MedianSecondsTest, TakesAsLongAsTheSlowestRank) {
  const auto medians = MedianSeconds(
      2, {.count = 3},
      [&](LocalRank& rank) -> absl::StatusOr<std::vector<Work>> {
        return std::vector<Work>{[&rank] {
          if (rank.rank == 1) {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
          }
          return absl::OkStatus();
        }};
      });
  ASSERT_OK(medians.status());
  EXPECT_GE(medians->at(0), 0.02);
}

TEST(MedianSecondsTest, FailsWithoutHangingWhereARankFails) {
  for (int failing : {0, 1}) {
    const auto fails_to_prepare = MedianSeconds(
        2, {}, [&](LocalRank& rank) -> absl::StatusOr<std::vector<Work>> {
          if (rank.rank == failing) return absl::NotFoundError("no work");
          return std::vector<Work>{[] { return absl::OkStatus(); }};
        });
    EXPECT_THAT(fails_to_prepare.status(),
                StatusIs(absl::StatusCode::kNotFound, HasSubstr("no work")));
    const auto throws = MedianSeconds(
        2, {}, [&](LocalRank& rank) -> absl::StatusOr<std::vector<Work>> {
          if (rank.rank == failing) throw std::bad_alloc();
          return std::vector<Work>{[] { return absl::OkStatus(); }};
        });
    EXPECT_THAT(throws.status(),
                StatusIs(absl::StatusCode::kInternal, HasSubstr("bad_alloc")));
  }

  const auto fails_to_work =
      MedianSeconds(2, {.count = 3},
                    [&](LocalRank& rank) -> absl::StatusOr<std::vector<Work>> {
                      return std::vector<Work>{[&rank] {
                        return rank.rank == 0 ? absl::DataLossError("lost")
                                              : absl::OkStatus();
                      }};
                    });
  EXPECT_THAT(fails_to_work.status(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("lost")));
}

}  // namespace
}  // namespace tessera::testing

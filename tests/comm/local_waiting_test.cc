// What waiting for other ranks costs.

#include <sys/resource.h>

#include <chrono>
#include <latch>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tessera/comm/local/run_ranks.h"
#include "tests/cpu_streams.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;

// What all threads of the process have computed so far, on all cores.
std::chrono::microseconds CpuTime() {
  rusage usage;
  EXPECT_EQ(getrusage(RUSAGE_SELF, &usage), 0);
  const auto time = [](const timeval& value) {
    return std::chrono::seconds(value.tv_sec) +
           std::chrono::microseconds(value.tv_usec);
  };
  return time(usage.ru_utime) + time(usage.ru_stime);
}

class LocalWaiting : public ::testing::TestWithParam<CpuStreams> {};

INSTANTIATE_TEST_SUITE_P(Streams, LocalWaiting, testing::BothStreams(),
                         testing::StreamsName);

// Ranks outnumber cores: a rank that spins would keep the one that the others
// wait for from computing.
TEST_P(LocalWaiting, ForALateRankTakesHardlyAnyCpuTime) {
  constexpr int kRanks = 8;
  constexpr milliseconds kLate(300);
  constexpr milliseconds kAllowed(100);
  std::latch ready(kRanks);
  std::chrono::microseconds used(0);
  EXPECT_OK(RunLocalRanks(
      kRanks,
      [&](LocalRank& rank) {
        ready.arrive_and_wait();
        if (rank.rank == 0) {
          const std::chrono::microseconds before = CpuTime();
          std::this_thread::sleep_for(kLate);
          used = CpuTime() - before;
        }
        std::vector<float> values(64, static_cast<float>(rank.rank));
        const TensorView view =
            TensorView::Flat(values.data(), DType::kF32, 64);
        absl::Status status =
            rank.comms.world().AllReduce(ReduceOp::kSum, view, view);
        status.Update(rank.stream.Synchronize());
        EXPECT_EQ(values, std::vector<float>(64, 28.0f));
        return status;
      },
      {.device = {.streams = GetParam()}}));
  EXPECT_LT(used, kAllowed) << used.count() << " us";
}

// The end of such a timeout does not fit the clock.
TEST_P(LocalWaiting, AsLongAsThereIsTime) {
  EXPECT_OK(RunLocalRanks(2,
                          [](LocalRank& rank) {
                            if (rank.rank == 0)
                              std::this_thread::sleep_for(milliseconds(250));
                            absl::Status status = rank.comms.world().Barrier();
                            status.Update(rank.stream.Synchronize());
                            status.Update(
                                rank.comms.world().HostAllGather("").status());
                            return status;
                          },
                          {.device = {.streams = GetParam()},
                           .world = {.timeout = milliseconds::max()}}));
}

}  // namespace
}  // namespace tessera

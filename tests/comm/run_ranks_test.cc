#include "tessera/comm/local/run_ranks.h"

#ifdef __linux__
#include <sched.h>
#endif

#include <atomic>
#include <latch>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tests/cpu_streams.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::StatusIs;

class RunLocalRanksTest : public ::testing::TestWithParam<CpuStreams> {
 protected:
  LocalRunOptions options() const {
    LocalRunOptions options;
    options.device.streams = GetParam();
    return options;
  }
};

INSTANTIATE_TEST_SUITE_P(Streams, RunLocalRanksTest, testing::BothStreams(),
                         testing::StreamsName);

#ifdef __linux__
// The processors on which this thread may run.
std::vector<int> Processors() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  EXPECT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  std::vector<int> processors;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &allowed)) processors.push_back(i);
  }
  return processors;
}

TEST_P(RunLocalRanksTest, BindsRanksToProcessorsByTurns) {
  const std::vector<int> all = Processors();
  LocalRunOptions bound = options();
  bound.bind_to_processors = true;
  const auto check = [&](LocalRank& rank) {
    EXPECT_THAT(Processors(),
                ::testing::ElementsAre(all[rank.rank % all.size()]));
    std::vector<int> of_child;
    std::thread([&] { of_child = Processors(); }).join();
    EXPECT_EQ(of_child, Processors());
    return absl::OkStatus();
  };
  EXPECT_OK(RunLocalRanks(5, check, bound));
}

TEST_P(RunLocalRanksTest, LeavesRanksUnboundUnlessTold) {
  const std::vector<int> all = Processors();
  const auto check = [&](LocalRank&) {
    EXPECT_EQ(Processors(), all);
    return absl::OkStatus();
  };
  EXPECT_OK(RunLocalRanks(3, check, options()));
}
#endif

TEST_P(RunLocalRanksTest, GivesEachRankAThreadAndAWorld) {
  Mutex mutex;
  std::set<int> ranks;
  std::set<std::thread::id> threads;
  EXPECT_OK(RunLocalRanks(
      4,
      [&](LocalRank& rank) {
        EXPECT_EQ(rank.num_ranks, 4);
        EXPECT_EQ(rank.comms.rank(), rank.rank);
        EXPECT_EQ(rank.comms.world().size(), 4);
        EXPECT_EQ(rank.comms.world().name(), "world");
        EXPECT_EQ(&rank.comms.world().stream(), &rank.stream);
        EXPECT_EQ(&rank.stream.device(), &rank.device);
        MutexLock lock(mutex);
        ranks.insert(rank.rank);
        threads.insert(std::this_thread::get_id());
        return absl::OkStatus();
      },
      options()));
  EXPECT_EQ(ranks, (std::set<int>{0, 1, 2, 3}));
  EXPECT_EQ(threads.size(), 4);
}

TEST_P(RunLocalRanksTest, ReturnsTheFirstErrorAndFreesTheOthers) {
  std::atomic<int> aborted = 0;
  EXPECT_THAT(RunLocalRanks(
                  4,
                  [&](LocalRank& rank) {
                    if (rank.rank == 2) return absl::NotFoundError("no data");
                    absl::Status status = rank.comms.world().Barrier();
                    status.Update(rank.stream.Synchronize());
                    if (absl::IsAborted(status)) ++aborted;
                    return status;
                  },
                  options()),
              StatusIs(absl::StatusCode::kNotFound, "rank 2: no data"));
  EXPECT_EQ(aborted, 3);
}

TEST_P(RunLocalRanksTest, ReportsWhatTheStreamFailedWith) {
  EXPECT_THAT(RunLocalRanks(
                  2,
                  [&](LocalRank& rank) {
                    if (rank.rank == 1) {
                      // On a worker, only the stream knows of it.
                      (void)rank.stream.Launch({.name = "kernel"}, [] {
                        return absl::DataLossError("bad kernel");
                      });
                    }
                    return absl::OkStatus();
                  },
                  options()),
              StatusIs(absl::StatusCode::kDataLoss, "rank 1: bad kernel"));
}

TEST_P(RunLocalRanksTest, TurnsExceptionsIntoErrors) {
  const auto throws = [&](auto thrown) {
    return RunLocalRanks(
        3,
        [&](LocalRank& rank) -> absl::Status {
          if (rank.rank == 1) throw thrown;
          return rank.comms.world().HostAllGather("x").status();
        },
        options());
  };
  EXPECT_THAT(throws(std::runtime_error("surprise")),
              StatusIs(absl::StatusCode::kInternal,
                       "rank 1: the program threw: surprise"));
  EXPECT_THAT(throws(42), StatusIs(absl::StatusCode::kInternal,
                                   "rank 1: the program threw"));
}

TEST(LocalWorld, RejectsRanksOutside) {
  LocalWorld world(2);
  CpuDevice device;
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Stream> stream,
                       device.NewStream("compute"));
  EXPECT_THAT(world.Join(2, *stream),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "comm: rank 2 is not in a world of 2"));
  EXPECT_THAT(world.Join(-1, *stream),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(LocalWorld, MayGoBeforeItsCommunicators) {
  CpuDevice device;
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Stream> stream,
                       device.NewStream("compute"));
  std::unique_ptr<Communicator> communicator;
  auto log = std::make_shared<CommLog>();
  {
    LocalWorld world(1);
    ASSERT_OK_AND_ASSIGN(communicator, world.Join(0, *stream, log));
  }
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Communicator> subgroup,
                       communicator->Subgroup({0}, "sub", *stream));
  EXPECT_EQ(subgroup->log(), log);
  EXPECT_OK(subgroup->Barrier());
}

}  // namespace
}  // namespace tessera

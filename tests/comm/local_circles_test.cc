// Ranks that wait for each other, in several groups.

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/local_world.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tests/comm/local_failures.h"

namespace tessera {
namespace {

using ::tessera::testing::IsOk;
using ::tessera::testing::kLong;
using ::tessera::testing::StatusIs;
using ::testing::Each;
using ::testing::HasSubstr;

using std::chrono::milliseconds;

class LocalCircles : public testing::LocalFailures {};

INSTANTIATE_TEST_SUITE_P(Streams, LocalCircles, testing::BothStreams(),
                         testing::StreamsName);

TEST_P(LocalCircles, GroupsInCrossedOrderAreFoundAndNamed) {
  const std::vector<absl::Status> results =
      Results(2, [](LocalRank& rank) -> absl::Status {
        TESSERA_ASSIGN_OR_RETURN(
            const std::unique_ptr<Communicator> other,
            rank.comms.world().Subgroup({0, 1}, "tp", rank.stream));
        Communicator* first = other.get();
        Communicator* second = &rank.comms.world();
        EXPECT_OK(first->Barrier());
        if (rank.rank == 1) std::swap(first, second);
        absl::Status status = first->Barrier();
        status.Update(second->Barrier());
        status.Update(rank.stream.Synchronize());
        return status;
      });
  EXPECT_THAT(
      results,
      Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                    "comm: ranks wait for each other: rank 0 waits in barrier, "
                    "operation 1 of 'tp', for rank 1; rank 1 waits in barrier, "
                    "operation 0 of 'dp', for rank 0")));
}

// Ranks 1, 2 and 3 wait for the next one, rank 0 for one of them.
TEST_P(LocalCircles, CircleOfThreeGroupsIsFoundAmongMoreRanks) {
  const std::vector<absl::Status> results =
      Results(4, [](LocalRank& rank) -> absl::Status {
        Communicator& dp = rank.comms.world();
        std::vector<std::unique_ptr<Communicator>> pairs;
        const int all_pairs[][2] = {{1, 2}, {2, 3}, {1, 3}, {0, 1}};
        for (const auto& [a, b] : all_pairs) {
          if (rank.rank != a && rank.rank != b) continue;
          TESSERA_ASSIGN_OR_RETURN(
              pairs.emplace_back(),
              dp.Subgroup({a, b}, absl::StrCat(a, b), rank.stream));
        }
        // In this order, rank 1 waits in 12 for rank 2, in 23 for 3, in 13.
        if (rank.rank == 2) std::swap(pairs[0], pairs[1]);
        if (rank.rank == 3) std::swap(pairs[0], pairs[1]);
        absl::Status status;
        for (const auto& pair : pairs) status.Update(pair->Barrier());
        status.Update(rank.stream.Synchronize());
        return status;
      });
  for (int rank : {1, 2, 3}) {
    EXPECT_THAT(
        results[rank],
        StatusIs(absl::StatusCode::kFailedPrecondition,
                 "comm: ranks wait for each other: "
                 "rank 1 waits in barrier, operation 0 of '12', for rank 2; "
                 "rank 2 waits in barrier, operation 0 of '23', for rank 3; "
                 "rank 3 waits in barrier, operation 0 of '13', for rank 1"));
  }
  EXPECT_THAT(results[0], StatusIs(absl::StatusCode::kAborted,
                                   HasSubstr("ranks wait for each other")));
}

TEST_P(LocalCircles, HostGathersInCrossedOrderAreFoundAndNamed) {
  const std::vector<absl::Status> results =
      Results(2, [](LocalRank& rank) -> absl::Status {
        Communicator& dp = rank.comms.world();
        TESSERA_ASSIGN_OR_RETURN(const auto tp,
                                 dp.Subgroup({0, 1}, "tp", rank.stream));
        return (rank.rank == 0 ? *tp : dp).HostAllGather("x").status();
      });
  EXPECT_THAT(
      results,
      Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                    "comm: ranks wait for each other: rank 0 waits in "
                    "host_all_gather, operation 0 of 'tp', for rank 1; rank 1 "
                    "waits in host_all_gather, operation 0 of 'dp', for rank "
                    "0")));
}

// Each rank has a communicator on either of two streams, of which one waits for
// the other: for that of 'dp' on rank 0, for that of 'tp' on rank 1.
TEST(LocalWorkerCircles, CircleOverEventsBetweenStreamsIsFound) {
  std::vector<absl::Status> results(2);
  LocalRunOptions options;
  options.device.streams = CpuStreams::kWorker;
  options.world.timeout = kLong;
  EXPECT_OK(RunLocalRanks(
      2,
      [&](LocalRank& rank) -> absl::Status {
        std::unique_ptr<Stream> streams[2];
        std::unique_ptr<Communicator> comms[2];
        for (int i = 0; i < 2; ++i) {
          const std::string name = i == 0 ? "dp" : "tp";
          TESSERA_ASSIGN_OR_RETURN(streams[i], rank.device.NewStream(name));
          TESSERA_ASSIGN_OR_RETURN(
              comms[i], rank.comms.world().Subgroup({0, 1}, name, *streams[i]));
        }
        const int first = rank.rank;
        EXPECT_OK(comms[first]->Barrier());
        EXPECT_OK(streams[1 - first]->Wait(streams[first]->Record()));
        EXPECT_OK(comms[1 - first]->Barrier());
        absl::Status& result = results[rank.rank];
        result = streams[first]->Synchronize();
        (void)streams[1 - first]->Synchronize();
        return absl::OkStatus();
      },
      options));
  EXPECT_THAT(
      results,
      Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                    "comm: ranks wait for each other: rank 0 waits in barrier, "
                    "operation 0 of 'dp', for rank 1; rank 1 waits in barrier, "
                    "operation 0 of 'tp', for rank 0")));
}

// One thread of rank 0 waits for the stream on which rank 1 has not come yet,
// and rank 1 waits, for longer than it takes to look for circles, for what
// another thread of rank 0 is about to do.
TEST(LocalWorkerCircles, HostsThatSynchronizeAreNoPartOfACircle) {
  LocalRunOptions options;
  options.device.streams = CpuStreams::kWorker;
  options.world.timeout = kLong;
  EXPECT_OK(RunLocalRanks(
      2,
      [&](LocalRank& rank) -> absl::Status {
        Communicator& world = rank.comms.world();
        TESSERA_ASSIGN_OR_RETURN(const auto stream,
                                 rank.device.NewStream("dp"));
        TESSERA_ASSIGN_OR_RETURN(const auto dp,
                                 world.Subgroup({0, 1}, "dp", *stream));
        if (rank.rank == 1) {
          TESSERA_RETURN_IF_ERROR(world.HostAllGather("ready").status());
          TESSERA_RETURN_IF_ERROR(dp->Barrier());
          return stream->Synchronize();
        }
        TESSERA_RETURN_IF_ERROR(dp->Barrier());
        std::future<absl::Status> other =
            std::async(std::launch::async, [&world] {
              std::this_thread::sleep_for(milliseconds(350));
              return world.HostAllGather("ready").status();
            });
        absl::Status status = stream->Synchronize();
        status.Update(other.get());
        return status;
      },
      options));
}

// All wait for the last rank, in several groups, for longer than it takes them
// to look for circles.
TEST_P(LocalCircles, LongWaitsThatEndAreNoCircles) {
  const std::vector<absl::Status> results =
      Results(4, [](LocalRank& rank) -> absl::Status {
        Communicator& dp = rank.comms.world();
        std::unique_ptr<Communicator> pair;
        if (rank.rank >= 2) {
          TESSERA_ASSIGN_OR_RETURN(pair,
                                   dp.Subgroup({2, 3}, "tp", rank.stream));
        }
        for (int round = 0; round < 3; ++round) {
          if (rank.rank == 3) std::this_thread::sleep_for(milliseconds(250));
          if (pair != nullptr) TESSERA_RETURN_IF_ERROR(pair->Barrier());
          if (rank.rank == 2) std::this_thread::sleep_for(milliseconds(250));
          TESSERA_RETURN_IF_ERROR(dp.Barrier());
        }
        return absl::OkStatus();
      });
  EXPECT_THAT(results, Each(IsOk()));
}

// Rank 0 has waited for long in its program when rank 1 comes to the group,
// with a stream of its own: it is that which rank 0 waits for from then on, not
// the program of rank 1, which waits for rank 0.
TEST(LocalCirclesOfBothKinds, WhoComesLateComesFromItsStream) {
  LocalWorld world(2, {.timeout = kLong});
  std::vector<absl::Status> results(2);
  const auto body = [&](int rank) -> absl::Status {
    CpuDevice device(
        {.streams = rank == 0 ? CpuStreams::kInline : CpuStreams::kWorker});
    TESSERA_ASSIGN_OR_RETURN(const auto stream, device.NewStream("tested"));
    TESSERA_ASSIGN_OR_RETURN(const auto dp, world.Join(rank, *stream));
    if (rank == 1) std::this_thread::sleep_for(milliseconds(250));
    TESSERA_ASSIGN_OR_RETURN(const auto tp,
                             dp->Subgroup({0, 1}, "tp", *stream));
    if (rank == 1) {
      TESSERA_RETURN_IF_ERROR(stream->Launch({.name = "late"}, [] {
        std::this_thread::sleep_for(milliseconds(250));
        return absl::OkStatus();
      }));
    }
    TESSERA_RETURN_IF_ERROR(tp->Barrier());
    TESSERA_RETURN_IF_ERROR(dp->HostAllGather("x").status());
    return stream->Synchronize();
  };
  {
    std::jthread other([&] { results[1] = body(1); });
    results[0] = body(0);
  }
  EXPECT_THAT(results, Each(IsOk()));
}

}  // namespace
}  // namespace tessera

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/run_ranks.h"
#include "tests/cpu_streams.h"
#include "tests/heap.h"
#include "tests/sanitized.h"
#include "tests/status_matchers.h"

namespace tessera::testing {
namespace {

using ::testing::Each;

class LocalTeardown : public ::testing::TestWithParam<CpuStreams> {};

INSTANTIATE_TEST_SUITE_P(Streams, LocalTeardown, BothStreams(), StreamsName);

// What a rank makes, with a collective of each communicator under way.
struct Belongings {
  static constexpr int kCount = 4;

  absl::Status Make(LocalWorld& all, int rank, CpuDevice& device) {
    world.emplace(all);
    for (std::unique_ptr<Stream>& stream : streams) {
      TESSERA_ASSIGN_OR_RETURN(stream, device.NewStream("stream"));
    }
    TESSERA_ASSIGN_OR_RETURN(comm, all.Join(rank, *streams[0]));
    TESSERA_ASSIGN_OR_RETURN(dp, comm->Split(0, rank, "dp", *streams[1]));
    TESSERA_ASSIGN_OR_RETURN(tp, dp->Split(0, rank, "tp", *streams[2]));
    int64_t* next = values;
    for (Communicator* c : {comm.get(), dp.get(), tp.get()}) {
      *next = rank + 1;
      const TensorView view = TensorView::Flat(next++, DType::kI64, 1);
      TESSERA_RETURN_IF_ERROR(c->AllReduce(ReduceOp::kSum, view, view));
    }
    return absl::OkStatus();
  }
  void Destroy(int which) {
    if (which == 0) world.reset();
    if (which == 1) comm.reset();
    if (which == 2) dp.reset();
    if (which == 3) tp.reset();
  }

  int64_t values[3] = {};
  std::unique_ptr<Stream> streams[3];  // outlive the communicators
  std::optional<LocalWorld> world;
  std::unique_ptr<Communicator> comm;
  std::unique_ptr<Communicator> dp;
  std::unique_ptr<Communicator> tp;
};

// In an order of its own on every rank.
TEST_P(LocalTeardown, WorldsAndCommunicatorsGoInAnyOrder) {
  constexpr int kRanks = 3;
  for (int seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const LocalWorld all(kRanks, {.timeout = std::chrono::seconds(100)});
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        LocalWorld handle = all;
        CpuDevice device({.streams = GetParam()});
        Belongings mine;
        EXPECT_OK(mine.Make(handle, rank, device));
        std::vector<int> order(Belongings::kCount);
        for (int i = 0; i < Belongings::kCount; ++i) order[i] = i;
        std::mt19937 random(kRanks * seed + rank);
        std::shuffle(order.begin(), order.end(), random);
        for (int which : order) mine.Destroy(which);
        for (const auto& stream : mine.streams) {
          EXPECT_OK(stream->Synchronize());
        }
        EXPECT_THAT(mine.values, Each(1 + 2 + 3));
      });
    }
  }
}

// The threads of this process.
int64_t NumThreads() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                       std::filesystem::directory_iterator());
}

// One in ten fails: a rank leaves the others in the lurch.
TEST_P(LocalTeardown, AThousandWorldsLeaveNothingBehind) {
  LocalRunOptions options;
  options.device.streams = GetParam();
  options.world.timeout = std::chrono::seconds(100);
  int64_t bytes = 0;
  int64_t threads = 0;
  for (int i = 0; i < 1000; ++i) {
    const absl::Status status = RunLocalRanks(
        3,
        [&](LocalRank& rank) -> absl::Status {
          int64_t value = 1;
          const TensorView view = TensorView::Flat(&value, DType::kI64, 1);
          TESSERA_ASSIGN_OR_RETURN(const auto stream,
                                   rank.device.NewStream("side"));
          TESSERA_ASSIGN_OR_RETURN(
              const auto side,
              rank.comms.world().Split(0, rank.rank, "side", *stream));
          if (i % 10 == 9 && rank.rank == i % 3) {
            return absl::DataLossError("leaves");
          }
          absl::Status result = side->AllReduce(ReduceOp::kSum, view, view);
          result.Update(stream->Synchronize());
          return result;
        },
        options);
    ASSERT_EQ(status.code(), i % 10 == 9 ? absl::StatusCode::kDataLoss
                                         : absl::StatusCode::kOk);
    if (i == 100) {
      bytes = HeapBytesInUse();
      threads = NumThreads();
    }
  }
  EXPECT_EQ(NumThreads(), threads);
  // Sanitizers have accounts of their own, and look for leaks themselves.
  if (!kSanitized) {
    EXPECT_LT(HeapBytesInUse() - bytes, 50 << 10);
  }
}

}  // namespace
}  // namespace tessera::testing

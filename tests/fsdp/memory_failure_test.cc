#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/local_world.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tests/cpu_streams.h"
#include "tests/fsdp/toy_training.h"
#include "tests/status_matchers.h"

namespace tessera::testing {
namespace {

using ::testing::HasSubstr;

// The system's memory, which runs out at an allocation of choice.
class ScarceMemory final : public HostAllocator {
 public:
  // There is none from the n-th allocation on, counted from 0 and from now.
  void RunOutAt(int64_t n) { left_ = n; }
  void Restore() { left_ = std::numeric_limits<int64_t>::max(); }
  // Whether anybody was refused.
  bool has_run_out() const { return left_ < 0; }
  int64_t blocks_in_use() const { return in_use_; }

  void* Allocate(int64_t bytes) override {
    if (--left_ < 0) return nullptr;
    ++in_use_;
    return ::operator new(bytes, kAlignment);
  }
  void Free(void* data, int64_t) override {
    --in_use_;
    ::operator delete(data, kAlignment);
  }

 private:
  static constexpr std::align_val_t kAlignment{128};
  std::atomic<int64_t> left_ = std::numeric_limits<int64_t>::max();
  std::atomic<int64_t> in_use_ = 0;
};

// What a training leaves on one rank.
struct Life {
  absl::Status status;
  int64_t bytes_left = 0;  // allocated once all is destroyed
  int64_t blocks_left = 0;
};

// A rank that trains from the start, in a context and communicators of its own.
absl::Status TrainOnce(const ToyRun& run, const ToyHistory& expected,
                       LocalWorld& world, int rank, CpuDevice& device) {
  TESSERA_ASSIGN_OR_RETURN(const auto stream, device.NewStream("compute"));
  TESSERA_ASSIGN_OR_RETURN(const auto comm, world.Join(rank, *stream));
  CommSet comms(*comm);
  TESSERA_ASSIGN_OR_RETURN(const auto toy,
                           ToyRank::Create(run, comms, *stream));
  for (int step = 0; step < run.steps; ++step) {
    TESSERA_RETURN_IF_ERROR(toy->TrainStep(step, expected.weights[step]));
  }
  TESSERA_RETURN_IF_ERROR(toy->CheckWeights(expected.weights[run.steps]));
  return toy->context().Synchronize();
}

class MemoryFailure : public ::testing::TestWithParam<CpuStreams> {
 protected:
  // Trains twice on all ranks, in one world: first the memory of `victim` runs
  // out at allocation n, then it is back. False if it was enough.
  bool TrainTwice(const ToyRun& run, const ToyHistory& expected, int victim,
                  int64_t n) {
    constexpr int kRanks = 4;
    LocalWorld world(kRanks, {.timeout = std::chrono::seconds(100)});
    std::vector<Life> first(kRanks);
    std::vector<Life> second(kRanks);
    std::atomic<bool> has_run_out = false;
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        ScarceMemory memory;
        CpuDevice device({.streams = GetParam(), .allocator = &memory});
        const auto live = [&] {
          Life life;
          life.status = TrainOnce(run, expected, world, rank, device);
          life.bytes_left = device.memory().total.current_bytes;
          life.blocks_left = memory.blocks_in_use();
          return life;
        };
        if (rank == victim) memory.RunOutAt(n);
        first[rank] = live();
        if (memory.has_run_out()) has_run_out = true;
        memory.Restore();
        second[rank] = live();
      });
    }
    threads.clear();
    for (int rank = 0; rank < kRanks; ++rank) {
      SCOPED_TRACE(absl::StrCat("rank ", rank));
      if (!has_run_out) {
        EXPECT_OK(first[rank].status);
      } else if (rank == victim) {
        EXPECT_THAT(first[rank].status,
                    StatusIs(absl::StatusCode::kResourceExhausted,
                             HasSubstr("device: no memory for")));
      } else {
        EXPECT_THAT(first[rank].status,
                    StatusIs(absl::StatusCode::kAborted,
                             HasSubstr("device: no memory for")));
      }
      EXPECT_OK(second[rank].status);
      for (const Life& life : {first[rank], second[rank]}) {
        EXPECT_EQ(life.bytes_left, 0);
        EXPECT_EQ(life.blocks_left, 0);
      }
    }
    return has_run_out;
  }

  static ToyRun ShortRun() {
    ToyRun run;
    run.units = DefaultToyUnits();
    run.streams = GetParam();
    run.microbatches = 2;
    run.steps = 2;
    return run;
  }

  // Each allocation of a training in turn, on either of two ranks.
  void TryEveryAllocation(const ToyRun& run) {
    const ToyHistory expected = OracleHistory(run);
    int64_t n = 0;
    for (bool has_run_out = true; has_run_out; ++n) {
      SCOPED_TRACE(absl::StrCat("allocation ", n));
      has_run_out = TrainTwice(run, expected, n % 2 == 0 ? 0 : 3, n);
      ASSERT_FALSE(HasFailure());
    }
    EXPECT_GT(n, 10);
  }
};

INSTANTIATE_TEST_SUITE_P(Streams, MemoryFailure, BothStreams(), StreamsName);

TEST_P(MemoryFailure, EndsAnFsdpTrainingThatThenGoesOnRight) {
  ToyRun run = ShortRun();
  run.mesh = "dp=4";
  run.strategy = "fsdp";
  TryEveryAllocation(run);
}

// Ranks 0 and 3 share no group; optimizer state is allocated as well.
TEST_P(MemoryFailure, EndsAnHsdpTrainingThatThenGoesOnRight) {
  ToyRun run = ShortRun();
  run.precision.wire = DType::kBF16;
  run.optimizer = ToyOptimizer::kAdamW;
  TryEveryAllocation(run);
}

}  // namespace
}  // namespace tessera::testing

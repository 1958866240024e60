#include "tessera/fsdp/coalesced_all_reduce.h"

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/checked_math.h"
#include "tessera/base/mutex.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/run_ranks.h"
#include "tessera/comm/sim/sim_world.h"
#include "tessera/device/cpu/elementwise.h"
#include "tessera/device/sim/sim_device.h"
#include "tests/cpu_streams.h"
#include "tests/fsdp/coalesced_tensors.h"
#include "tests/fsdp/toy_training.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::AllReduces;
using ::tessera::testing::Append;
using ::tessera::testing::Coalesced;
using ::tessera::testing::kRanks;
using ::tessera::testing::Mesh;
using ::tessera::testing::NoLogger;
using ::tessera::testing::Reduced;
using ::tessera::testing::StatusIs;
using ::tessera::testing::Tensors;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

class CoalescedAllReduceTest : public ::testing::TestWithParam<CpuStreams> {};

INSTANTIATE_TEST_SUITE_P(Streams, CoalescedAllReduceTest,
                         testing::BothStreams(), testing::StreamsName);

// Mixed dtypes in both lists, tensors larger than a chunk and empty ones, with
// gaps and without.
TEST_P(CoalescedAllReduceTest, BitsDoNotDependOnTheChunkSize) {
  const std::vector<int64_t> sizes = {5, 0, 17, 1, 8, 0};
  const std::vector<int64_t> others = {3, 40};
  for (int64_t gap : {0, 1}) {
    for (int64_t chunk_bytes : {1, 4, 7, 8, 12, 20, 100, 1 << 30}) {
      SCOPED_TRACE(absl::StrCat(chunk_bytes, " bytes, gap ", gap));
      EXPECT_OK(RunLocalRanks(
          kRanks,
          [&](LocalRank& rank) -> absl::Status {
            Tensors f32(DType::kF32, sizes, gap);
            Tensors bf16(DType::kBF16, others, gap);
            Tensors i64(DType::kI64, others, gap);
            Tensors f64(DType::kF64, sizes, gap);
            Tensors f16(DType::kF16, sizes, gap);
            for (Tensors* tensors : {&f32, &bf16, &i64, &f64, &f16}) {
              tensors->Fill(rank.rank);
            }
            std::vector<CoalescedTensor> sums;
            for (const Tensors* tensors : {&f32, &bf16, &i64}) {
              Append(*tensors, sums);
            }
            std::vector<CoalescedTensor> averages;
            for (const Tensors* tensors : {&f64, &f16}) {
              Append(*tensors, averages);
            }
            TESSERA_ASSIGN_OR_RETURN(auto coalesced,
                                     Coalesced(rank.comms, chunk_bytes));
            TESSERA_RETURN_IF_ERROR(
                coalesced.Run("tp", sums, averages, rank.stream));
            TESSERA_RETURN_IF_ERROR(rank.stream.Synchronize());
            const auto sum = ReduceOp::kSum;
            EXPECT_TRUE(f32 == Reduced(sum, DType::kF32, sizes, gap));
            EXPECT_TRUE(bf16 == Reduced(sum, DType::kBF16, others, gap));
            EXPECT_TRUE(i64 == Reduced(sum, DType::kI64, others, gap));
            const auto avg = ReduceOp::kAvg;
            EXPECT_TRUE(f64 == Reduced(avg, DType::kF64, sizes, gap));
            EXPECT_TRUE(f16 == Reduced(avg, DType::kF16, sizes, gap));
            return absl::OkStatus();
          },
          {.device = {.streams = GetParam()}}));
    }
  }
}

TEST_P(CoalescedAllReduceTest, FourSixesInTensTakeThreeCalls) {
  EXPECT_OK(RunLocalRanks(kRanks,
                          [](LocalRank& rank) -> absl::Status {
                            Tensors tensors(DType::kF32, {6, 6, 6, 6});
                            tensors.Fill(rank.rank);
                            TESSERA_ASSIGN_OR_RETURN(auto coalesced,
                                                     Coalesced(rank.comms, 43));
                            TESSERA_RETURN_IF_ERROR(coalesced.Run(
                                "tp", tensors.list(), {}, rank.stream));
                            TESSERA_RETURN_IF_ERROR(rank.stream.Synchronize());
                            EXPECT_EQ(AllReduces(rank.comms).calls, 3);
                            return absl::OkStatus();
                          },
                          {.device = {.streams = GetParam()}}));
}

// Elements that divide by the ranks, so that no call rounds.
TEST(CoalescedAllReduceCountsTest, CallsAndBytesAreWhatTheChunksSay) {
  const std::vector<int64_t> f32_sizes = {30, 6, 90};
  const std::vector<int64_t> f64_sizes = {60};
  for (int64_t chunk_elements : {3, 12, 30, 48, 1000}) {
    SCOPED_TRACE(chunk_elements);
    EXPECT_OK(RunLocalRanks(kRanks, [&](LocalRank& rank) -> absl::Status {
      Tensors f32(DType::kF32, f32_sizes);
      Tensors f64(DType::kF64, f64_sizes);
      std::vector<CoalescedTensor> all = f32.list();
      Append(f64, all);
      TESSERA_ASSIGN_OR_RETURN(auto coalesced,
                               Coalesced(rank.comms, chunk_elements * 4 + 3));
      TESSERA_RETURN_IF_ERROR(coalesced.Run("tp", all, all, rank.stream));
      const CommCounter counter = AllReduces(rank.comms);
      const int64_t f64_chunk = (chunk_elements * 4 + 3) / 8;
      EXPECT_EQ(counter.calls,
                2 * (CeilDiv(126, chunk_elements) + CeilDiv(60, f64_chunk)));
      if (f64_chunk % kRanks == 0) {
        // Two lists; of each, a rank gets two thirds twice.
        EXPECT_EQ(counter.bytes_received, 2 * 4 * (126 * 4 + 60 * 8) / 3);
      }
      return absl::OkStatus();
    }));
  }
}

MemoryUsage ChunkMemory(const Device& device) {
  const MemoryReport report = device.memory();
  const auto found = report.by_tag.find(kCoalescedChunkTag);
  return found == report.by_tag.end() ? MemoryUsage() : found->second;
}

TEST(CoalescedAllReduceMemoryTest, PacksNoMoreThanTheLargestChunk) {
  struct Case {
    int64_t chunk_bytes;
    int64_t gap;
    int64_t peak;
  };
  const Case cases[] = {
      {40, 1, 40},       // ten elements of two or three tensors
      {24, 1, 0},        // a tensor each
      {8, 1, 0},         // a part of one
      {1 << 20, 1, 96},  // all of them
      {40, 0, 0},        // neighbours
      {1 << 20, 0, 0},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(absl::StrCat(c.chunk_bytes, " bytes, gap ", c.gap));
    EXPECT_OK(RunLocalRanks(kRanks, [&](LocalRank& rank) -> absl::Status {
      Tensors tensors(DType::kF32, {6, 6, 6, 6}, c.gap);
      TESSERA_ASSIGN_OR_RETURN(auto coalesced,
                               Coalesced(rank.comms, c.chunk_bytes));
      TESSERA_RETURN_IF_ERROR(
          coalesced.Run("tp", tensors.list(), {}, rank.stream));
      EXPECT_EQ(ChunkMemory(rank.device).peak_bytes, c.peak);
      EXPECT_EQ(ChunkMemory(rank.device).current_bytes, 0);
      return absl::OkStatus();
    }));
  }
}

TEST(CoalescedAllReduceMemoryTest, PacksInTheCallersWorkspace) {
  EXPECT_OK(RunLocalRanks(kRanks, [](LocalRank& rank) -> absl::Status {
    Tensors tensors(DType::kF32, {6, 6, 6, 6});
    tensors.Fill(rank.rank);
    alignas(8) char memory[40];
    TESSERA_ASSIGN_OR_RETURN(auto coalesced, Coalesced(rank.comms, 40));
    EXPECT_THAT(
        coalesced.Run("tp", tensors.list(), {}, rank.stream,
                      {.data = memory, .bytes = 39}),
        StatusIs(kInvalid,
                 absl::StrCat("coalesced all-reduce: on rank ", rank.rank,
                              " want a workspace of 40 "
                              "bytes, found 39")));
    EXPECT_EQ(AllReduces(rank.comms).calls, 0);
    TESSERA_RETURN_IF_ERROR(coalesced.Run("tp", tensors.list(), {}, rank.stream,
                                          {.data = memory, .bytes = 40}));
    EXPECT_EQ(ChunkMemory(rank.device).allocations, 0);
    EXPECT_TRUE(tensors ==
                Reduced(ReduceOp::kSum, DType::kF32, {6, 6, 6, 6}, 1));
    return absl::OkStatus();
  }));
}

TEST(CoalescedAllReduceTest, EmptyListsAndAxesOfOneCommunicateNothing) {
  EXPECT_OK(RunLocalRanks(2, [](LocalRank& rank) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(auto coalesced,
                             Coalesced(rank.comms, 40, "tp=2,one=1"));
    Tensors tensors(DType::kF32, {6, 6});
    tensors.Fill(rank.rank);
    TESSERA_RETURN_IF_ERROR(coalesced.Run("tp", {}, {}, rank.stream));
    TESSERA_RETURN_IF_ERROR(
        coalesced.Run("one", tensors.list(), tensors.list(), rank.stream));
    EXPECT_THAT(rank.comms.log().counters(), IsEmpty());
    EXPECT_EQ(rank.device.memory().total.allocations, 0);
    EXPECT_TRUE(tensors ==
                std::move(Tensors(DType::kF32, {6, 6}).Fill(rank.rank)));
    return absl::OkStatus();
  }));
}

// The chunk size, and what is logged.

using Lines = std::vector<std::pair<absl::LogSeverity, std::string>>;

// What is logged by two runs on two axes, with the variable set to `value`
// unless that is null; the chunk size in `chunk_bytes`.
Lines LinesWith(const char* value, std::optional<int64_t> option,
                int64_t& chunk_bytes) {
  if (value == nullptr) {
    unsetenv(kChunkBytesVariable);
  } else {
    setenv(kChunkBytesVariable, value, /*overwrite=*/1);
  }
  Lines lines;
  EXPECT_OK(RunLocalRanks(4, [&](LocalRank& rank) -> absl::Status {
    const Logger logger =
        rank.rank > 0
            ? NoLogger()
            : Logger(
                  [&lines](absl::LogSeverity severity, absl::string_view line) {
                    lines.emplace_back(severity, std::string(line));
                  },
                  absl::LogSeverity::kInfo);
    TESSERA_ASSIGN_OR_RETURN(
        auto coalesced, CoalescedAllReduce::Create(
                            Mesh("tp=2,cp=2"), rank.comms,
                            {.max_chunk_bytes = option, .logger = logger}));
    if (rank.rank == 0) chunk_bytes = coalesced.max_chunk_bytes();
    Tensors tensors(DType::kF32, {6});
    for (int turn = 0; turn < 2; ++turn) {
      TESSERA_RETURN_IF_ERROR(
          coalesced.Run("tp", tensors.list(), tensors.list(), rank.stream));
      TESSERA_RETURN_IF_ERROR(
          coalesced.Run("cp", {}, tensors.list(), rank.stream));
    }
    return absl::OkStatus();
  }));
  unsetenv(kChunkBytesVariable);
  return lines;
}

TEST(CoalescedAllReduceChunkTest, FirstUseOfAxisAndOpIsLogged) {
  constexpr auto kInfo = absl::LogSeverity::kInfo;
  int64_t bytes = 0;
  EXPECT_THAT(
      LinesWith(nullptr, std::nullopt, bytes),
      ElementsAre(
          Pair(kInfo, "coalesced all-reduce axis=tp op=sum chunk=1024 MiB"),
          Pair(kInfo, "coalesced all-reduce axis=tp op=avg chunk=1024 MiB"),
          Pair(kInfo, "coalesced all-reduce axis=cp op=avg chunk=1024 MiB")));
  EXPECT_EQ(bytes, int64_t{1} << 30);
}

// As it comes to stderr by default.
TEST(CoalescedAllReduceChunkTest, LineIsExact) {
  setenv("TESSERA_LOG", "info", /*overwrite=*/1);
  ::testing::internal::CaptureStderr();
  EXPECT_OK(RunLocalRanks(2, [](LocalRank& rank) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(
        auto coalesced,
        CoalescedAllReduce::Create(
            Mesh("tp=2"), rank.comms,
            {.logger = rank.rank == 0 ? Logger() : NoLogger()}));
    Tensors tensors(DType::kF32, {6});
    return coalesced.Run("tp", tensors.list(), {}, rank.stream);
  }));
  unsetenv("TESSERA_LOG");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "tessera: coalesced all-reduce axis=tp op=sum chunk=1024 MiB\n");
}

TEST(CoalescedAllReduceChunkTest, OptionComesBeforeTheVariable) {
  int64_t bytes = 0;
  EXPECT_THAT(LinesWith("4096", std::nullopt, bytes).front().second,
              HasSubstr("chunk=4096 bytes"));
  EXPECT_EQ(bytes, 4096);
  EXPECT_THAT(LinesWith("4096", 3 << 20, bytes).front().second,
              HasSubstr("chunk=3 MiB"));
  EXPECT_EQ(bytes, 3 << 20);
  // It is not looked at either.
  EXPECT_EQ(LinesWith("nonsense", 3 << 20, bytes).front().first,
            absl::LogSeverity::kInfo);
}

TEST(CoalescedAllReduceChunkTest, VariableThatIsNoSizeIsAWarning) {
  for (const char* value : {"nonsense", "", "1e9", "4 GiB", "0", "-5", "1.5",
                            "99999999999999999999"}) {
    int64_t bytes = 0;
    EXPECT_THAT(
        LinesWith(value, std::nullopt, bytes).front(),
        Pair(absl::LogSeverity::kWarning,
             absl::StrCat("coalesced all-reduce: want "
                          "TESSERA_GRAD_COALESCE_CHUNK_BYTES a positive number "
                          "of bytes, found '",
                          value, "', taken as 1073741824")));
    EXPECT_EQ(bytes, int64_t{1} << 30);
  }
}

TEST(CoalescedAllReduceChunkTest, OptionBelowOneIsAnError) {
  EXPECT_OK(RunLocalRanks(1, [](LocalRank& rank) -> absl::Status {
    for (int64_t bytes : {0, -1}) {
      EXPECT_THAT(Coalesced(rank.comms, bytes).status(),
                  StatusIs(kInvalid,
                           absl::StrCat("coalesced all-reduce: want at least 1 "
                                        "byte in a chunk, found ",
                                        bytes)));
    }
    return absl::OkStatus();
  }));
}

// Gradients of a context.

// Pieces that are ragged and, for the smallest parameters, empty on some ranks.
TEST(CoalescedAllReduceFsdpTest, ReducesFinalGradientsOfUnits) {
  for (const char* strategy : {"ddp", "zero1", "fsdp"}) {
    for (int64_t chunk_bytes : {4, 52, 1 << 20}) {
      testing::ToyRun run;
      run.mesh = "dp=3,tp=2";
      run.axes = {"dp"};
      run.strategy = strategy;
      run.steps = 1;
      run.units = testing::DefaultToyUnits();
      SCOPED_TRACE(absl::StrCat(run.ToString(), " ", chunk_bytes));
      const testing::ToyHistory history = OracleHistory(run);
      // Ranks along tp have equal gradients: their sum is twice as much.
      testing::ToyValues doubled = history.gradients[0];
      for (auto& unit : doubled) {
        for (auto& parameter : unit) {
          for (double& value : parameter) value *= 2;
        }
      }
      EXPECT_OK(RunLocalRanks(6, [&](LocalRank& rank) -> absl::Status {
        TESSERA_ASSIGN_OR_RETURN(
            const auto toy,
            testing::ToyRank::Create(run, rank.comms, rank.stream));
        for (int m = 0; m < run.microbatches; ++m) {
          TESSERA_RETURN_IF_ERROR(toy->Forward(history.weights[0]));
          TESSERA_RETURN_IF_ERROR(
              toy->Backward(0, m, m + 1 == run.microbatches));
        }
        std::vector<CoalescedTensor> sums;
        for (const auto& unit : toy->context().units()) {
          for (ParameterId p = 0; p < unit->num_parameters(); ++p) {
            TESSERA_ASSIGN_OR_RETURN(const ShardedTensor gradient,
                                     unit->main_grad(p));
            sums.emplace_back(gradient);
          }
        }
        TESSERA_ASSIGN_OR_RETURN(auto coalesced,
                                 Coalesced(rank.comms, chunk_bytes, run.mesh));
        TESSERA_RETURN_IF_ERROR(coalesced.Run("tp", sums, {}, rank.stream));
        return toy->CheckGradients(doubled);
      }));
    }
  }
}

// Where memory is in pieces.

// Has so much memory in all, but no more than `largest` in one piece.
class FragmentedAllocator final : public HostAllocator {
 public:
  FragmentedAllocator(int64_t total, int64_t largest)
      : free_(total), largest_(largest) {}

  int64_t free_bytes() {
    MutexLock lock(mutex_);
    return free_;
  }
  void* Allocate(int64_t bytes) override {
    MutexLock lock(mutex_);
    if (bytes > largest_ || bytes > free_) return nullptr;
    free_ -= bytes;
    return ::operator new(bytes, kAlignment);
  }
  void Free(void* data, int64_t bytes) override {
    ::operator delete(data, kAlignment);
    MutexLock lock(mutex_);
    free_ += bytes;
  }

 private:
  static constexpr std::align_val_t kAlignment{128};

  Mutex mutex_;
  int64_t free_ ABSL_GUARDED_BY(mutex_);
  const int64_t largest_;
};

// Sums 124 MB of gradients in 62 tensors along "tp", with 200 MB free in pieces
// of 20 MB, and compares one element of each.
absl::Status SumInFragments(LocalRank& rank, int64_t chunk_bytes) {
  constexpr int64_t kMB = 1'000'000;
  constexpr int kTensors = 62;
  FragmentedAllocator allocator(/*total=*/324 * kMB, /*largest=*/20 * kMB);
  CpuDevice device({.allocator = &allocator});
  TESSERA_ASSIGN_OR_RETURN(const auto stream, device.NewStream("compute"));
  CommSet comms(rank.comms.world());
  std::vector<Buffer> memory;
  std::vector<CoalescedTensor> sums;
  for (int i = 0; i < kTensors; ++i) {
    TESSERA_ASSIGN_OR_RETURN(Buffer buffer, device.Allocate(2 * kMB, "grads"));
    sums.emplace_back(
        TensorView::Flat(buffer.data(), DType::kF32, 2 * kMB / 4));
    FillElements(sums.back().local, i + 100 * rank.rank);
    memory.push_back(std::move(buffer));
  }
  EXPECT_EQ(allocator.free_bytes(), 200 * kMB);
  TESSERA_ASSIGN_OR_RETURN(auto coalesced,
                           Coalesced(comms, chunk_bytes, "tp=2"));
  TESSERA_RETURN_IF_ERROR(coalesced.Run("tp", sums, {}, *stream));
  TESSERA_RETURN_IF_ERROR(stream->Synchronize());
  for (int i = 0; i < kTensors; ++i) {
    EXPECT_EQ(sums[i].local.as<float>()[12345], 2 * i + 100) << i;
  }
  EXPECT_EQ(ChunkMemory(device).peak_bytes, chunk_bytes);
  EXPECT_EQ(AllReduces(rank.comms).calls, CeilDiv(124 * kMB, chunk_bytes));
  return absl::OkStatus();
}

TEST(CoalescedAllReduceMemoryTest, ChunksFitWhereOneBufferDoesNot) {
  EXPECT_OK(RunLocalRanks(2, [](LocalRank& rank) -> absl::Status {
    EXPECT_THAT(
        SumInFragments(rank, kDefaultChunkBytes),
        StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("124000000")));
    EXPECT_EQ(AllReduces(rank.comms).calls, 0);
    return SumInFragments(rank, 16'000'000);
  }));
}

// What the gradients of a model of 750 billion parameters take of a GPU: 12.43
// GiB, in f32.
TEST(CoalescedAllReduceSimTest, FullSizeTakesThirteenCallsAndOneGiB) {
  constexpr int64_t kGiB = int64_t{1} << 30;
  constexpr int64_t kElements = 1243 * kGiB / 400;
  constexpr int kTensors = 977;
  struct Case {
    int64_t chunk_bytes;
    int64_t calls;
    int64_t peak;
  };
  const Case cases[] = {
      {kGiB, 13, kGiB}, {1 << 28, 50, 1 << 28}, {100 * kGiB, 1, kElements * 4}};
  for (const Case& c : cases) {
    SimDevice device;
    ASSERT_OK_AND_ASSIGN(const auto stream, device.NewStream("compute"));
    ASSERT_OK_AND_ASSIGN(
        const SimWorld world,
        SimWorld::Create(Mesh("dp=512,tp=8"), Topology::LocalCpu()));
    ASSERT_OK_AND_ASSIGN(const auto comm, world.Join(9, *stream));
    CommSet comms(*comm);
    std::vector<Buffer> memory;
    std::vector<CoalescedTensor> sums;
    for (int i = 0; i < kTensors; ++i) {
      const int64_t elements = CeilSplit(kElements, kTensors, i).size();
      ASSERT_OK_AND_ASSIGN(Buffer buffer,
                           device.Allocate(elements * 4, "grads"));
      sums.emplace_back(TensorView::Flat(buffer.data(), DType::kF32, elements));
      memory.push_back(std::move(buffer));
    }
    ASSERT_OK_AND_ASSIGN(auto coalesced,
                         Coalesced(comms, c.chunk_bytes, "dp=512,tp=8"));
    ASSERT_OK(coalesced.Run("tp", sums, {}, *stream));
    EXPECT_EQ(AllReduces(comms).calls, c.calls);
    EXPECT_EQ(ChunkMemory(device).peak_bytes, c.peak);
    EXPECT_EQ(device.memory().total.peak_bytes, kElements * 4 + c.peak);
  }
}

}  // namespace
}  // namespace tessera

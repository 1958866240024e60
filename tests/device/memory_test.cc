#include "tessera/device/memory.h"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tests/device/recording_stream.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::RecordingStream;
using ::tessera::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

MemoryUsage Usage(int64_t current, int64_t peak, int64_t allocations) {
  return {
      .current_bytes = current, .peak_bytes = peak, .allocations = allocations};
}

TEST(MemoryAccountantTest, CountsInAllAndByTag) {
  MemoryAccountant accountant;
  accountant.Add("grad", 10);
  accountant.Add("weight", 5);
  accountant.Remove("grad", 10);
  accountant.Add("weight", 2);
  const MemoryReport report = accountant.Report();
  EXPECT_EQ(report.total, Usage(7, 15, 3));
  ASSERT_EQ(report.by_tag.size(), 2);
  EXPECT_EQ(report.by_tag.at("grad"), Usage(0, 10, 1));
  EXPECT_EQ(report.by_tag.at("weight"), Usage(7, 7, 2));
}

TEST(MemoryAccountantTest, CountsAllocationsWithoutBytes) {
  MemoryAccountant accountant;
  accountant.Add("empty", 0);
  EXPECT_EQ(accountant.Report().total, Usage(0, 0, 1));
  EXPECT_EQ(accountant.Report().by_tag.at("empty"), Usage(0, 0, 1));
}

TEST(MemoryAccountantTest, ResetPeaksKeepsWhatIsAllocated) {
  MemoryAccountant accountant;
  accountant.Add("a", 8);
  accountant.Add("b", 4);
  accountant.Remove("a", 8);
  accountant.ResetPeaks();
  EXPECT_EQ(accountant.Report().total, Usage(4, 4, 2));
  EXPECT_EQ(accountant.Report().by_tag.at("a"), Usage(0, 0, 1));
  EXPECT_EQ(accountant.Report().by_tag.at("b"), Usage(4, 4, 1));
}

TEST(MemoryAccountantTest, AddWithinStopsAboveTheLimit) {
  MemoryAccountant accountant;
  EXPECT_TRUE(accountant.AddWithin(10, "a", 6));
  EXPECT_FALSE(accountant.AddWithin(10, "b", 5));
  EXPECT_FALSE(accountant.AddWithin(10, "b", INT64_MAX));
  EXPECT_EQ(accountant.Report().total, Usage(6, 6, 1));
  EXPECT_EQ(accountant.Report().by_tag.count("b"), 0);
  EXPECT_TRUE(accountant.AddWithin(10, "b", 4));
  EXPECT_TRUE(accountant.AddWithin(10, "b", 0));
  EXPECT_EQ(accountant.Report().total, Usage(10, 10, 3));
}

TEST(MemoryAccountantTest, CountsFromManyThreads) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 500;
  MemoryAccountant accountant;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&accountant] {
      for (int i = 0; i < kRounds; ++i) {
        accountant.Add("x", 3);
        accountant.Remove("x", 2);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const MemoryUsage total = accountant.Report().total;
  EXPECT_EQ(total.current_bytes, kThreads * kRounds);
  EXPECT_EQ(total.allocations, kThreads * kRounds);
  EXPECT_LE(total.peak_bytes, kThreads * (kRounds + 2));
}

TEST(BufferTest, IsAlignedAndWritable) {
  CpuDevice device;
  for (int64_t bytes : {1, 2, 127, 128, 129, 4096, 100'001}) {
    ASSERT_OK_AND_ASSIGN(Buffer buffer, device.Allocate(bytes, "x"));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 128, 0);
    EXPECT_EQ(buffer.bytes(), bytes);
    EXPECT_EQ(buffer.tag(), "x");
    EXPECT_FALSE(buffer.empty());
    std::memset(buffer.data(), 0x5a, bytes);
  }
  EXPECT_EQ(device.memory().total.current_bytes, 0);
  EXPECT_EQ(device.memory().total.peak_bytes, 100'001);
}

TEST(BufferTest, FreedMemoryServesTheNextAllocationOfItsSize) {
  CpuDevice device;
  ASSERT_OK_AND_ASSIGN(Buffer kept, device.Allocate(1000, "kept"));
  const void* first = nullptr;
  for (int round = 0; round < 3; ++round) {
    ASSERT_OK_AND_ASSIGN(Buffer buffer, device.Allocate(100, "x"));
    if (round == 0) first = buffer.data();
    EXPECT_EQ(buffer.data(), first);
    std::memset(buffer.data(), 0x5a, 100);
  }
  EXPECT_EQ(device.system_allocations(), 2);
  ASSERT_OK_AND_ASSIGN(Buffer other, device.Allocate(99, "x"));
  EXPECT_NE(other.data(), first);
  EXPECT_EQ(device.system_allocations(), 3);
}

// Sizes that never come back do not pile up.
TEST(BufferTest, IdleMemoryStaysBelowWhatIsInUse) {
  CpuDevice device;
  ASSERT_OK_AND_ASSIGN(Buffer kept, device.Allocate(1000, "kept"));
  const auto allocate = [&](int64_t bytes) {
    ASSERT_OK_AND_ASSIGN(Buffer buffer, device.Allocate(bytes, "x"));
    std::memset(buffer.data(), 0x5a, bytes);
  };
  allocate(600);
  allocate(500);  // 1100 are idle then
  EXPECT_EQ(device.system_allocations(), 3);
  allocate(400);  // gives them back
  EXPECT_EQ(device.system_allocations(), 4);
  allocate(400);
  EXPECT_EQ(device.system_allocations(), 4);
  allocate(600);
  EXPECT_EQ(device.system_allocations(), 5);
}

TEST(BufferTest, MovesTheAllocation) {
  CpuDevice device;
  ASSERT_OK_AND_ASSIGN(Buffer a, device.Allocate(10, "a"));
  ASSERT_OK_AND_ASSIGN(Buffer b, device.Allocate(20, "b"));
  const void* data = a.data();
  b = std::move(a);
  EXPECT_TRUE(a.empty());  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(a.data(), nullptr);
  EXPECT_EQ(a.bytes(), 0);
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(b.bytes(), 10);
  EXPECT_EQ(b.tag(), "a");
  EXPECT_EQ(device.memory().by_tag.at("b").current_bytes, 0);

  const Buffer c(std::move(b));
  EXPECT_TRUE(b.empty());  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(c.data(), data);
  EXPECT_EQ(device.memory().total, Usage(10, 30, 2));
}

TEST(BufferTest, ResetsOnce) {
  CpuDevice device;
  ASSERT_OK_AND_ASSIGN(Buffer buffer, device.Allocate(10, "a"));
  buffer.Reset();
  EXPECT_TRUE(buffer.empty());
  buffer.Reset();
  Buffer().Reset();
  EXPECT_EQ(device.memory().total, Usage(0, 10, 1));
}

TEST(BufferTest, ResetAfterLaunchesTheFree) {
  CpuDevice device;
  RecordingStream stream(device);
  ASSERT_OK_AND_ASSIGN(Buffer buffer, device.Allocate(10, "a"));
  const void* data = buffer.data();
  buffer.ResetAfter(stream);
  EXPECT_TRUE(buffer.empty());
  EXPECT_EQ(device.memory().total, Usage(0, 10, 1));
  ASSERT_EQ(stream.launches.size(), 1);
  ASSERT_EQ(stream.launches[0].writes.size(), 1);
  EXPECT_EQ(stream.launches[0].writes[0].begin, data);
  EXPECT_EQ(stream.launches[0].writes[0].bytes, 10);
  static_cast<char*>(const_cast<void*>(data))[9] = 1;  // not yet freed
}

TEST(DeviceTest, AllocatesNoBytes) {
  CpuDevice device;
  ASSERT_OK_AND_ASSIGN(Buffer buffer, device.Allocate(0, "none"));
  EXPECT_FALSE(buffer.empty());
  EXPECT_EQ(buffer.bytes(), 0);
  EXPECT_EQ(device.memory().by_tag.at("none"), Usage(0, 0, 1));
}

TEST(DeviceTest, RejectsNegativeBytes) {
  CpuDevice device;
  EXPECT_THAT(device.Allocate(-1, "x"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "device: want at least 0 bytes for 'x', found -1"));
  EXPECT_EQ(device.memory().total, Usage(0, 0, 0));
}

TEST(DeviceTest, StopsAtTheLimit) {
  CpuDevice device({.memory_limit_bytes = 100});
  ASSERT_OK_AND_ASSIGN(Buffer buffer, device.Allocate(70, "weight"));
  EXPECT_THAT(device.Allocate(31, "main_grad"),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "device: no memory for 31 bytes of 'main_grad' on cpu: "
                       "70 bytes in use, limit 100"));
  EXPECT_EQ(device.memory().total, Usage(70, 70, 1));
  EXPECT_OK(device.Allocate(30, "main_grad"));
  buffer.Reset();
  EXPECT_OK(device.Allocate(100, "main_grad"));
}

TEST(DeviceTest, ResetMemoryPeaks) {
  CpuDevice device;
  EXPECT_OK(device.Allocate(30, "x"));
  device.ResetMemoryPeaks();
  EXPECT_EQ(device.memory().total, Usage(0, 0, 1));
}

// Has no memory at all.
class BareDevice final : public Device {
 public:
  std::string name() const override { return "bare"; }
  absl::StatusOr<std::unique_ptr<Stream>> NewStream(
      absl::string_view) override {
    return absl::UnimplementedError("no streams");
  }
  Kernels& kernels() override { std::abort(); }
  int64_t NowNanos() const override { return 0; }

 private:
  void* DoAllocate(int64_t, absl::string_view, Stream*) override {
    return nullptr;
  }
  void DoFree(void*, int64_t, absl::string_view, Stream*) override {
    std::abort();
  }
};

TEST(DeviceTest, SaysWhenTheSystemHasNoMemory) {
  BareDevice device;
  EXPECT_THAT(device.Allocate(5, "x"),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("5 bytes of 'x' on bare"),
                             HasSubstr("0 bytes in use, no limit"))));
  EXPECT_EQ(device.memory().total.current_bytes, 0);
  EXPECT_OK(device.Allocate(0, "x"));
}

// --- The caller's allocator --------------------------------------------------

// Lends out one block at a time, of at most so many bytes.
class OneBlock final : public HostAllocator {
 public:
  explicit OneBlock(int64_t most) : most_(most) {}
  ~OneBlock() override { EXPECT_EQ(lent_, 0); }

  void* Allocate(int64_t bytes) override {
    if (lent_ > 0 || bytes > most_) return nullptr;
    lent_ = bytes;
    return memory_;
  }
  void Free(void* data, int64_t bytes) override {
    EXPECT_EQ(data, memory_);
    EXPECT_EQ(bytes, lent_);
    lent_ = 0;
  }

  int64_t lent() const { return lent_; }

 private:
  const int64_t most_;
  std::atomic<int64_t> lent_ = 0;
  alignas(128) char memory_[1024];
};

TEST(CpuDeviceTest, TakesMemoryFromTheCallersAllocator) {
  OneBlock allocator(512);
  CpuDevice device({.allocator = &allocator});
  ASSERT_OK_AND_ASSIGN(Buffer buffer, device.Allocate(300, "grad"));
  EXPECT_EQ(allocator.lent(), 300);
  EXPECT_EQ(device.memory().by_tag["grad"].current_bytes, 300);
  EXPECT_THAT(device.Allocate(1, "more"),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("1 bytes of 'more'")));
  buffer.Reset();
  EXPECT_EQ(allocator.lent(), 0);
  EXPECT_THAT(device.Allocate(513, "large"),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(device.memory().total.current_bytes, 0);
}

TEST(CpuDeviceTest, GivesMemoryBackToTheAllocatorInStreamOrder) {
  OneBlock allocator(512);
  CpuDevice device({.streams = CpuStreams::kWorker, .allocator = &allocator});
  ASSERT_OK_AND_ASSIGN(const auto stream, device.NewStream("worker"));
  ASSERT_OK_AND_ASSIGN(Buffer buffer, device.Allocate(512, "grad"));
  int64_t lent_before = 0;
  ASSERT_OK(stream->Launch({.name = "use"}, [&] {
    lent_before = allocator.lent();
    return absl::OkStatus();
  }));
  buffer.ResetAfter(*stream);
  ASSERT_OK(stream->Synchronize());
  EXPECT_EQ(lent_before, 512);
  EXPECT_EQ(allocator.lent(), 0);
}

// Memory whose last user has not come yet goes to an allocation that says where
// it is used first, and that stream waits; nobody else gets it.
TEST(CpuDeviceTest, HandsOnWhatIsFreedInTheOrderOfAStream) {
  CpuDevice device({.streams = CpuStreams::kWorker});
  ASSERT_OK_AND_ASSIGN(const auto first, device.NewStream("first"));
  ASSERT_OK_AND_ASSIGN(const auto second, device.NewStream("second"));
  ASSERT_OK_AND_ASSIGN(Buffer buffer, device.Allocate(256, "grad"));
  void* const memory = buffer.data();
  std::atomic<bool> go = false;
  std::atomic<bool> used = false;
  ASSERT_OK(first->Launch({.name = "use"}, [&] {
    while (!go) std::this_thread::yield();
    used = true;
    return absl::OkStatus();
  }));
  buffer.ResetAfter(*first);

  ASSERT_OK_AND_ASSIGN(const Buffer anywhere, device.Allocate(256, "other"));
  EXPECT_NE(anywhere.data(), memory);
  ASSERT_OK_AND_ASSIGN(const Buffer larger,
                       device.Allocate(512, "other", second.get()));
  EXPECT_NE(larger.data(), memory);
  const int64_t asked = device.system_allocations();
  ASSERT_OK_AND_ASSIGN(Buffer handed_on,
                       device.Allocate(256, "grad", second.get()));
  EXPECT_EQ(handed_on.data(), memory);
  EXPECT_EQ(device.system_allocations(), asked);
  bool was_used = false;
  ASSERT_OK(second->Launch({.name = "use again"}, [&] {
    was_used = used;
    return absl::OkStatus();
  }));
  go = true;
  ASSERT_OK(second->Synchronize());
  ASSERT_OK(first->Synchronize());
  EXPECT_TRUE(was_used);

  // It is not given back twice, and can be freed in turn.
  handed_on.ResetAfter(*second);
  ASSERT_OK(second->Synchronize());
  ASSERT_OK_AND_ASSIGN(const Buffer again, device.Allocate(256, "grad"));
  EXPECT_EQ(again.data(), memory);
  EXPECT_EQ(device.system_allocations(), asked);
}

// A failed stream drops its work; memory goes back all the same.
TEST(CpuDeviceTest, GivesMemoryBackWhereTheStreamHasFailed) {
  for (CpuStreams streams : {CpuStreams::kInline, CpuStreams::kWorker}) {
    OneBlock allocator(512);
    CpuDevice device({.streams = streams, .allocator = &allocator});
    ASSERT_OK_AND_ASSIGN(const auto stream, device.NewStream("stream"));
    ASSERT_OK_AND_ASSIGN(Buffer buffer, device.Allocate(512, "grad"));
    stream
        ->Launch({.name = "fail"},
                 [] { return absl::InternalError("on purpose"); })
        .IgnoreError();
    buffer.ResetAfter(*stream);
    EXPECT_THAT(stream->Synchronize(), StatusIs(absl::StatusCode::kInternal));
    EXPECT_EQ(allocator.lent(), 0);
  }
}

}  // namespace
}  // namespace tessera

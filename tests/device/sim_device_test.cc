#include "tessera/device/sim/sim_device.h"

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A byte takes 2 ps, an operation 5, a launch 100.
constexpr SimDevice::Options kOptions = {
    .memory_bytes_per_second = 500'000'000'000,
    .flops_per_second = 200'000'000'000,
    .launch_ps = 100,
    .trace_memory = true};

class SimDeviceTest : public ::testing::Test {
 protected:
  std::unique_ptr<Stream> New(absl::string_view name) {
    return device_.NewStream(name).value();
  }

  // Begin and end of what the device did, in the order of issue.
  std::vector<std::pair<int64_t, int64_t>> Periods() const {
    std::vector<std::pair<int64_t, int64_t>> periods;
    for (const TracedOperation& operation : device_.trace().operations) {
      periods.emplace_back(operation.begin_ps, operation.end_ps);
    }
    return periods;
  }

  SimDevice device_{kOptions};
};

// Takes 100 + 2 * bytes.
absl::Status LaunchBytes(Stream& stream, int64_t bytes) {
  return stream.Launch({.name = "work", .bytes = bytes}, nullptr);
}

TEST_F(SimDeviceTest, TakesTheLongerOfBytesAndFlops) {
  const auto stream = New("s");
  ASSERT_OK(stream->Launch({.name = "a", .bytes = 50, .flops = 19}, nullptr));
  ASSERT_OK(stream->Launch({.name = "b", .bytes = 50, .flops = 21}, nullptr));
  EXPECT_THAT(
      device_.trace().operations,
      ElementsAre(
          TracedOperation{
              .name = "a", .stream = 0, .begin_ps = 0, .end_ps = 200},
          TracedOperation{
              .name = "b", .stream = 0, .begin_ps = 200, .end_ps = 405}));
}

TEST(SimDeviceDefaultsTest, WithoutPricesNothingTakesTime) {
  SimDevice device;
  const auto stream = device.NewStream("s").value();
  ASSERT_OK(stream->Launch({.name = "a", .bytes = 9, .flops = 9}, nullptr));
  ASSERT_OK(stream->Synchronize());
  EXPECT_EQ(device.trace().operations.front().end_ps, 0);
  EXPECT_EQ(device.NowNanos(), 0);
}

TEST_F(SimDeviceTest, StreamsRunSideBySide) {
  const auto a = New("a");
  const auto b = New("b");
  ASSERT_OK(LaunchBytes(*a, 50));
  ASSERT_OK(LaunchBytes(*b, 100));
  ASSERT_OK(LaunchBytes(*a, 50));
  EXPECT_THAT(Periods(), ElementsAre(std::pair(0, 200), std::pair(0, 300),
                                     std::pair(200, 400)));
}

TEST_F(SimDeviceTest, EventsOrderStreams) {
  const auto a = New("a");
  const auto b = New("b");
  ASSERT_OK(LaunchBytes(*a, 50));
  const Event early = a->Record();
  ASSERT_OK(LaunchBytes(*a, 50));
  ASSERT_OK(LaunchBytes(*b, 0));
  ASSERT_OK(b->Wait(early));
  ASSERT_OK(LaunchBytes(*b, 0));
  // b is beyond it already.
  ASSERT_OK(b->Wait(early));
  ASSERT_OK(b->Wait(Event()));
  ASSERT_OK(LaunchBytes(*b, 0));
  EXPECT_THAT(Periods(), ElementsAre(std::pair(0, 200), std::pair(200, 400),
                                     std::pair(0, 100), std::pair(200, 300),
                                     std::pair(300, 400)));
}

TEST_F(SimDeviceTest, AWaitBehindTheLastLaunchCountsForWhoWaitsForIt) {
  const auto a = New("a");
  const auto b = New("b");
  const auto c = New("c");
  ASSERT_OK(LaunchBytes(*a, 50));
  ASSERT_OK(b->Wait(a->Record()));
  ASSERT_OK(c->Wait(b->Record()));
  ASSERT_OK(LaunchBytes(*c, 0));
  EXPECT_THAT(Periods(), ElementsAre(std::pair(0, 200), std::pair(200, 300)));
}

TEST_F(SimDeviceTest, OnlyWaitingMovesTheHostOn) {
  const auto a = New("a");
  const auto b = New("b");
  ASSERT_OK(LaunchBytes(*a, 450));
  const Event event = a->Record();
  ASSERT_OK(LaunchBytes(*a, 950));
  EXPECT_EQ(device_.NowNanos(), 0);
  ASSERT_OK(event.Synchronize());
  EXPECT_EQ(device_.NowNanos(), 1);
  // Nothing starts before the host enqueues it.
  ASSERT_OK(LaunchBytes(*b, 0));
  EXPECT_THAT(Periods(), ElementsAre(std::pair(0, 1000), std::pair(1000, 3000),
                                     std::pair(1000, 1100)));
  ASSERT_OK(a->Synchronize());
  EXPECT_EQ(device_.NowNanos(), 3);
  // What has passed costs nothing.
  ASSERT_OK(b->Synchronize());
  ASSERT_OK(event.Synchronize());
  EXPECT_EQ(device_.NowNanos(), 3);
}

TEST_F(SimDeviceTest, EventsOutliveTheirStream) {
  auto stream = New("s");
  ASSERT_OK(LaunchBytes(*stream, 450));
  const Event event = stream->Record();
  stream.reset();
  ASSERT_OK(event.Synchronize());
  EXPECT_EQ(device_.NowNanos(), 1);
}

TEST_F(SimDeviceTest, TimesDoNotOverflow) {
  const auto stream = New("s");
  ASSERT_OK(LaunchBytes(*stream, INT64_MAX));
  ASSERT_OK(LaunchBytes(*stream, INT64_MAX));
  EXPECT_EQ(Periods().back(), std::pair(INT64_MAX, INT64_MAX));
}

TEST_F(SimDeviceTest, DestroysBodiesWithoutRunningThem) {
  const auto stream = New("s");
  bool ran = false;
  auto owned = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = owned;
  ASSERT_OK(stream->Launch({.name = "body"}, [&ran, owned = std::move(owned)] {
    ran = true;
    return absl::InternalError("ran");
  }));
  EXPECT_FALSE(ran);
  EXPECT_TRUE(watched.expired());
  EXPECT_OK(stream->Synchronize());
  EXPECT_OK(stream->status());
}

TEST_F(SimDeviceTest, KernelsTakeTheTimeOfTheirBytes) {
  const auto stream = New("s");
  ASSERT_OK_AND_ASSIGN(const Buffer buffer, device_.Allocate(4096, "x"));
  const TensorView a = TensorView::Flat(buffer.data(), DType::kF32, 100);
  const TensorView b = TensorView::Flat(static_cast<char*>(buffer.data()) + 512,
                                        DType::kF32, 100);
  std::vector<float> host(100, 7.0f);
  Kernels& kernels = device_.kernels();
  ASSERT_OK(kernels.Fill(*stream, a, 0.0));
  ASSERT_OK(kernels.Copy(*stream, a, b));
  ASSERT_OK(kernels.Cast(*stream, a, b));
  ASSERT_OK(kernels.Scale(*stream, a, 2.0));
  ASSERT_OK(kernels.Add(*stream, a, b));
  ASSERT_OK(kernels.AccumulateScaled(*stream, a, b, 2.0));
  ASSERT_OK(kernels.CopyFromHost(*stream, a, host.data()));
  ASSERT_OK(kernels.CopyToHost(*stream, host.data(), a));
  std::vector<std::pair<std::string, int64_t>> durations;
  for (const TracedOperation& operation : device_.trace().operations) {
    durations.emplace_back(operation.name,
                           operation.end_ps - operation.begin_ps);
  }
  EXPECT_THAT(durations,
              ElementsAre(std::pair("fill", 100 + 2 * 400),
                          std::pair("copy", 100 + 2 * 800),
                          std::pair("cast", 100 + 2 * 800),
                          std::pair("scale", 100 + 2 * 800),
                          std::pair("add", 100 + 2 * 1200),
                          std::pair("accumulate_scaled", 100 + 2 * 1200),
                          std::pair("copy_from_host", 100 + 2 * 400),
                          std::pair("copy_to_host", 100 + 2 * 400)));
  EXPECT_EQ(host, std::vector<float>(100, 7.0f));
  EXPECT_THAT(kernels.Copy(*stream, a, b.Slice(0, {0, 50})),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(SimDeviceTest, AddressesAreDistinctAndAligned) {
  std::vector<Buffer> buffers;
  const char* end = nullptr;
  for (int64_t bytes : {1, 128, 129, 1 << 20}) {
    buffers.push_back(device_.Allocate(bytes, "x").value());
    const char* begin = static_cast<const char*>(buffers.back().data());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(begin) % 128, 0u);
    EXPECT_GE(begin, end);
    end = begin + bytes;
  }
  EXPECT_EQ(device_.Allocate(0, "x")->data(), nullptr);
  // Also later: nothing is used twice.
  buffers.clear();
  ASSERT_OK_AND_ASSIGN(const Buffer next, device_.Allocate(1, "x"));
  EXPECT_GE(static_cast<const char*>(next.data()), end);
}

TEST_F(SimDeviceTest, MemoryIsNotThere) {
  ASSERT_OK_AND_ASSIGN(const Buffer buffer, device_.Allocate(64, "x"));
  EXPECT_DEATH(std::memset(buffer.data(), 0, 64), "");
}

TEST_F(SimDeviceTest, HoldsMoreThanAnyHost) {
  constexpr int64_t kPetabyte = int64_t{1} << 50;
  ASSERT_OK_AND_ASSIGN(const Buffer a, device_.Allocate(kPetabyte, "x"));
  ASSERT_OK_AND_ASSIGN(const Buffer b, device_.Allocate(kPetabyte, "x"));
  EXPECT_EQ(device_.memory().total.peak_bytes, 2 * kPetabyte);
  EXPECT_THAT(device_.Allocate(INT64_MAX / 2, "y"),
              StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST(SimDeviceLimitTest, KeepsToTheLimit) {
  SimDevice device({.memory_limit_bytes = 100, .trace_memory = true});
  ASSERT_OK_AND_ASSIGN(const Buffer held, device.Allocate(60, "a"));
  EXPECT_THAT(device.Allocate(41, "b"),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("41 bytes of 'b' on sim"),
                             HasSubstr("limit 100"))));
  EXPECT_THAT(device.trace().memory,
              ElementsAre(MemorySample{.time_ps = 0, .tag = "a", .bytes = 60}));
}

// Counts the same as the CPU device: in all, by tag, after every call.
TEST(SimDeviceAccountsTest, EqualThoseOfTheCpuDevice) {
  constexpr uint32_t kSeed = 20240611;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  const auto draw = [&](int n) { return static_cast<int>(random() % n); };
  CpuDevice cpu;
  SimDevice sim;
  struct Side {
    Device& device;
    std::unique_ptr<Stream> stream;
    std::vector<Buffer> buffers;
  };
  Side sides[] = {{cpu, cpu.NewStream("s").value(), {}},
                  {sim, sim.NewStream("s").value(), {}}};
  const std::string tags[] = {"a", "b", "c"};
  for (int i = 0; i < 2000; ++i) {
    const bool allocates = sides[0].buffers.empty() || draw(5) < 3;
    const int64_t bytes = draw(4) == 0 ? 0 : draw(5000);
    const std::string& tag = tags[draw(3)];
    const int victim = allocates ? 0 : draw(sides[0].buffers.size());
    const bool in_order = draw(2) == 0;
    const bool resets = draw(100) == 0;
    for (Side& side : sides) {
      if (resets) side.device.ResetMemoryPeaks();
      if (allocates) {
        side.buffers.push_back(side.device.Allocate(bytes, tag).value());
        continue;
      }
      Buffer buffer = std::move(side.buffers[victim]);
      side.buffers.erase(side.buffers.begin() + victim);
      if (in_order) buffer.ResetAfter(*side.stream);
    }
    ASSERT_EQ(sim.memory().total, cpu.memory().total) << "after call " << i;
    ASSERT_EQ(sim.memory().by_tag, cpu.memory().by_tag) << "after call " << i;
  }
  EXPECT_GT(sim.memory().total.peak_bytes, 100'000);
}

TEST_F(SimDeviceTest, GivesMemoryBackInTheOrderOfAStream) {
  const auto stream = New("s");
  Buffer early = device_.Allocate(10, "a").value();
  Buffer late = device_.Allocate(5, "a").value();
  Buffer other = device_.Allocate(1, "b").value();
  ASSERT_OK(LaunchBytes(*stream, 50));
  late.ResetAfter(*stream);
  early.Reset();
  // The accounts count at issue order.
  EXPECT_EQ(device_.memory().by_tag.at("a").current_bytes, 0);
  EXPECT_THAT(device_.trace().memory,
              ElementsAre(MemorySample{0, "a", 5}, MemorySample{0, "b", 1},
                          MemorySample{200, "a", 0}));
  ASSERT_OK(LaunchBytes(*stream, 50));
  ASSERT_OK(stream->Synchronize());
  // The stream has come to 400, and so has the host.
  other.ResetAfter(*stream);
  EXPECT_EQ(device_.trace().memory.back(), (MemorySample{400, "b", 0}));
}

TEST_F(SimDeviceTest, ANewTraceBeginsWithWhatIsAllocated) {
  const auto stream = New("s");
  const Buffer kept = device_.Allocate(10, "a").value();
  Buffer freed = device_.Allocate(5, "b").value();
  ASSERT_OK(LaunchBytes(*stream, 50));
  ASSERT_OK(stream->Synchronize());
  freed.Reset();
  device_.ClearTrace();
  ASSERT_OK(LaunchBytes(*stream, 0));
  const Trace trace = device_.trace();
  EXPECT_EQ(trace.begin_ps, 200);
  EXPECT_THAT(trace.streams, ElementsAre("s"));
  EXPECT_THAT(Periods(), ElementsAre(std::pair(200, 300)));
  EXPECT_THAT(trace.memory, ElementsAre(MemorySample{200, "a", 10}));
}

TEST(SimDeviceTraceTest, RecordsMemoryOnlyWhereAsked) {
  SimDevice device;
  const Buffer buffer = device.Allocate(10, "a").value();
  EXPECT_THAT(device.trace().memory, IsEmpty());
}

}  // namespace
}  // namespace tessera

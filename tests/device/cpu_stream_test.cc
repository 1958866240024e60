#include <chrono>
#include <cstdint>
#include <cstring>
#include <latch>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tests/cpu_streams.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::StatusIs;
using ::testing::ElementsAre;

constexpr auto kFirst = absl::StatusCode::kDataLoss;

absl::Status FirstError() { return absl::DataLossError("first"); }

// A launch that cannot fail.
template <typename F>
LaunchBody Do(F f) {
  return [f = std::move(f)]() mutable {
    f();
    return absl::OkStatus();
  };
}

class CpuStreamTestBase : public ::testing::Test {
 protected:
  explicit CpuStreamTestBase(CpuStreams kind) : device_({.streams = kind}) {}

  std::unique_ptr<Stream> New(absl::string_view name = "s") {
    return device_.NewStream(name).value();
  }

  CpuDevice device_;
};

class CpuStreamTest : public CpuStreamTestBase,
                      public ::testing::WithParamInterface<CpuStreams> {
 protected:
  CpuStreamTest() : CpuStreamTestBase(GetParam()) {}
};

INSTANTIATE_TEST_SUITE_P(Kinds, CpuStreamTest, testing::BothStreams(),
                         testing::StreamsName);

TEST_P(CpuStreamTest, HasANameAndADevice) {
  const auto stream = New("gather");
  EXPECT_EQ(stream->name(), "gather");
  EXPECT_EQ(&stream->device(), &device_);
  EXPECT_EQ(stream->native_handle(), nullptr);
}

TEST_P(CpuStreamTest, RunsInOrder) {
  const auto stream = New();
  std::vector<int> order;
  std::vector<int> expected;
  for (int i = 0; i < 100; ++i) {
    EXPECT_OK(stream->Launch({.name = "push"},
                             Do([&order, i] { order.push_back(i); })));
    expected.push_back(i);
  }
  EXPECT_OK(stream->Synchronize());
  EXPECT_EQ(order, expected);
}

TEST_P(CpuStreamTest, DestructionWaitsForWhatIsEnqueued) {
  auto stream = New();
  int done = 0;
  for (int i = 0; i < 100; ++i) {
    EXPECT_OK(stream->Launch({.name = "count"}, Do([&done] { ++done; })));
  }
  stream.reset();
  EXPECT_EQ(done, 100);
}

// What comes behind a wait never happens before the event, on a failed stream
// either: memory that another stream still uses is not freed early.
TEST_P(CpuStreamTest, AFailedStreamStillWaitsAndDropsInOrder) {
  const auto slow = New("slow");
  const auto failed = New("failed");
  failed->Launch({.name = "fail"}, FirstError).IgnoreError();
  std::vector<std::string> order;
  EXPECT_OK(slow->Launch({.name = "sleep"}, Do([&order] {
                           std::this_thread::sleep_for(
                               std::chrono::milliseconds(30));
                           order.push_back("slow");
                         })));
  failed->Wait(slow->Record()).IgnoreError();
  for (const char* name : {"first", "second"}) {
    failed
        ->Launch({.name = name}, [drop = absl::MakeCleanup([&order, name] {
                                    order.push_back(name);
                                  })]() mutable { return absl::OkStatus(); })
        .IgnoreError();
  }
  EXPECT_THAT(failed->Synchronize(), StatusIs(kFirst));
  EXPECT_THAT(order, ElementsAre("slow", "first", "second"));
}

TEST_P(CpuStreamTest, FirstErrorIsSticky) {
  const auto stream = New();
  bool ran = false;
  stream->Launch({.name = "fail"}, FirstError).IgnoreError();
  stream
      ->Launch({.name = "fail"},
               [&ran] {
                 ran = true;
                 return absl::InternalError("second");
               })
      .IgnoreError();
  EXPECT_THAT(stream->Synchronize(), StatusIs(kFirst, "first"));
  EXPECT_THAT(stream->Launch({.name = "late"}, Do([&ran] { ran = true; })),
              StatusIs(kFirst));
  EXPECT_THAT(stream->Wait(Event()), StatusIs(kFirst));
  EXPECT_THAT(stream->Synchronize(), StatusIs(kFirst));
  EXPECT_THAT(stream->status(), StatusIs(kFirst));
  EXPECT_FALSE(ran);
}

TEST_P(CpuStreamTest, DestroysBodiesInOrder) {
  const auto stream = New();
  std::vector<int> destroyed;
  const auto note = [&destroyed](int i) {
    return absl::MakeCleanup([&destroyed, i] { destroyed.push_back(i); });
  };
  EXPECT_OK(stream->Launch({.name = "run"},
                           [n = note(0)] { return absl::OkStatus(); }));
  stream->Launch({.name = "fail"}, [n = note(1)] { return FirstError(); })
      .IgnoreError();
  stream
      ->Launch({.name = "dropped"}, [n = note(2)] { return absl::OkStatus(); })
      .IgnoreError();
  EXPECT_THAT(stream->Synchronize(), StatusIs(kFirst));
  EXPECT_EQ(destroyed, (std::vector<int>{0, 1, 2}));
  EXPECT_THAT(stream->Launch({.name = "refused"},
                             [n = note(3)] { return absl::OkStatus(); }),
              StatusIs(kFirst));
  EXPECT_THAT(stream->Synchronize(), StatusIs(kFirst));
  EXPECT_EQ(destroyed, (std::vector<int>{0, 1, 2, 3}));
}

TEST_P(CpuStreamTest, DestructorsOfBodiesMayUseTheStream) {
  const auto stream = New();
  std::vector<absl::StatusCode> seen;
  const auto look = [&] {
    return absl::MakeCleanup([&seen, s = stream.get()] {
      s->Record();
      seen.push_back(s->status().code());
    });
  };
  stream->Launch({.name = "fail"}, [n = look()] { return FirstError(); })
      .IgnoreError();
  stream->Launch({.name = "dropped"}, [n = look()] { return absl::OkStatus(); })
      .IgnoreError();
  EXPECT_THAT(stream->Synchronize(), StatusIs(kFirst));
  EXPECT_EQ(seen, (std::vector{kFirst, kFirst}));
}

TEST_P(CpuStreamTest, IdleStreamRecordsPassedEvents) {
  const auto stream = New();
  const Event event = stream->Record();
  EXPECT_EQ(event.state(), nullptr);  // costs nothing
  EXPECT_OK(event.Synchronize());
}

TEST_P(CpuStreamTest, FailedStreamRecordsEventsThatPass) {
  const auto stream = New();
  stream->Launch({.name = "fail"}, FirstError).IgnoreError();
  EXPECT_THAT(stream->Record().Synchronize(), StatusIs(kFirst));
  EXPECT_THAT(stream->Record().Synchronize(), StatusIs(kFirst));
}

TEST_P(CpuStreamTest, EventInFrontOfTheErrorIsOk) {
  const auto stream = New();
  EXPECT_OK(stream->Launch({.name = "run"}, Do([] {})));
  const Event before = stream->Record();
  stream->Launch({.name = "fail"}, FirstError).IgnoreError();
  EXPECT_OK(before.Synchronize());
  EXPECT_THAT(stream->Synchronize(), StatusIs(kFirst));
  EXPECT_OK(before.Synchronize());

  const auto other = New();
  EXPECT_OK(other->Wait(before));
  EXPECT_OK(other->Synchronize());
}

TEST_P(CpuStreamTest, ErrorsTravelAlongEvents) {
  const auto a = New("a");
  const auto b = New("b");
  const auto c = New("c");
  bool ran = false;
  a->Launch({.name = "fail"}, FirstError).IgnoreError();
  b->Wait(a->Record()).IgnoreError();
  b->Launch({.name = "late"}, Do([&ran] { ran = true; })).IgnoreError();
  c->Wait(b->Record()).IgnoreError();
  EXPECT_THAT(c->Synchronize(), StatusIs(kFirst, "first"));
  EXPECT_THAT(b->Synchronize(), StatusIs(kFirst, "first"));
  EXPECT_FALSE(ran);
}

TEST_P(CpuStreamTest, EventsOutliveTheirStream) {
  Event good;
  Event bad;
  {
    const auto stream = New();
    EXPECT_OK(stream->Launch({.name = "run"}, Do([] {})));
    good = stream->Record();
    stream->Launch({.name = "fail"}, FirstError).IgnoreError();
    bad = stream->Record();
  }
  EXPECT_OK(good.Synchronize());
  EXPECT_THAT(bad.Synchronize(), StatusIs(kFirst));
  const auto other = New();
  EXPECT_OK(other->Wait(good));
  other->Wait(bad).IgnoreError();
  EXPECT_THAT(other->Synchronize(), StatusIs(kFirst));
}

TEST_P(CpuStreamTest, StreamsOutliveTheirEvents) {
  const auto stream = New();
  for (int i = 0; i < 100; ++i) {
    EXPECT_OK(stream->Launch({.name = "run"}, Do([] {})));
    stream->Record();
  }
  EXPECT_OK(stream->Synchronize());
}

TEST_P(CpuStreamTest, WaitsForAnEventOfItsOwn) {
  const auto stream = New();
  EXPECT_OK(stream->Launch({.name = "run"}, Do([] {})));
  EXPECT_OK(stream->Wait(stream->Record()));
  EXPECT_OK(stream->Synchronize());
}

TEST_P(CpuStreamTest, FreesInStreamOrder) {
  const auto stream = New();
  ASSERT_OK_AND_ASSIGN(Buffer buffer, device_.Allocate(64, "x"));
  char last = 0;
  for (int i = 0; i < 20; ++i) {
    EXPECT_OK(
        stream->Launch({.name = "write"}, Do([&last, data = buffer.data(), i] {
                         std::memset(data, i, 64);
                         last = static_cast<char*>(data)[63];
                       })));
  }
  buffer.ResetAfter(*stream);
  EXPECT_TRUE(buffer.empty());
  EXPECT_EQ(device_.memory().total.current_bytes, 0);
  EXPECT_OK(stream->Synchronize());
  EXPECT_EQ(last, 19);
}

// Leak checkers see whether it does.
TEST_P(CpuStreamTest, FreesOnAFailedStream) {
  const auto stream = New();
  ASSERT_OK_AND_ASSIGN(Buffer early, device_.Allocate(64, "x"));
  ASSERT_OK_AND_ASSIGN(Buffer late, device_.Allocate(64, "x"));
  stream->Launch({.name = "fail"}, FirstError).IgnoreError();
  early.ResetAfter(*stream);
  EXPECT_THAT(stream->Synchronize(), StatusIs(kFirst));
  late.ResetAfter(*stream);
  EXPECT_EQ(device_.memory().total.current_bytes, 0);
}

// Operations on shared cells, given to random streams, with the events that
// order conflicting ones: whoever reads a cell waits for its writer, whoever
// writes one for its readers and its writer.
TEST_P(CpuStreamTest, RandomDependenciesGiveTheSequentialResult) {
  constexpr int kStreams = 4;
  constexpr int kCells = 6;
  constexpr int kOperations = 120;
  for (uint32_t seed = 0; seed < 25; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 rng(seed);
    const auto pick = [&rng](int n) { return static_cast<int>(rng() % n); };

    std::vector<uint64_t> cells(kCells, 1);
    std::vector<uint64_t> expected = cells;
    struct Use {
      Event written;
      std::vector<Event> read;
    };
    std::vector<Use> uses(kCells);
    std::vector<std::unique_ptr<Stream>> streams;
    for (int s = 0; s < kStreams; ++s) streams.push_back(New());

    for (int i = 0; i < kOperations; ++i) {
      Stream& stream = *streams[pick(kStreams)];
      const int dst = pick(kCells);
      const int src = pick(kCells);
      const auto step = [dst, src, i](std::vector<uint64_t>& x) {
        x[dst] = x[dst] * 31 + x[src] * 7 + i;
      };
      step(expected);
      EXPECT_OK(stream.Wait(uses[src].written));
      EXPECT_OK(stream.Wait(uses[dst].written));
      for (const Event& event : uses[dst].read) EXPECT_OK(stream.Wait(event));
      EXPECT_OK(
          stream.Launch({.name = "step"}, Do([step, &cells] { step(cells); })));
      const Event done = stream.Record();
      uses[dst] = {.written = done, .read = {}};
      uses[src].read.push_back(done);
    }
    for (const auto& stream : streams) EXPECT_OK(stream->Synchronize());
    EXPECT_EQ(cells, expected);
  }
}

class InlineStreamTest : public CpuStreamTestBase {
 protected:
  InlineStreamTest() : CpuStreamTestBase(CpuStreams::kInline) {}
};

TEST_F(InlineStreamTest, RunsOnTheCallersThreadBeforeReturning) {
  const auto stream = New();
  std::thread::id thread;
  EXPECT_OK(stream->Launch(
      {.name = "run"}, Do([&thread] { thread = std::this_thread::get_id(); })));
  EXPECT_EQ(thread, std::this_thread::get_id());
  EXPECT_THAT(stream->Launch({.name = "fail"}, FirstError), StatusIs(kFirst));
}

TEST_F(InlineStreamTest, ErrorOfANestedLaunchIsSticky) {
  const auto stream = New();
  EXPECT_THAT(stream->Launch(
                  {.name = "outer"}, Do([&stream] {
                    stream->Launch({.name = "inner"}, FirstError).IgnoreError();
                  })),
              StatusIs(kFirst));
}

TEST_F(InlineStreamTest, WaitBlocksTheHost) {
  CpuDevice workers({.streams = CpuStreams::kWorker});
  ASSERT_OK_AND_ASSIGN(const auto worker, workers.NewStream("worker"));
  std::latch entered(1);
  bool done = false;
  EXPECT_OK(worker->Launch({.name = "slow"}, Do([&] {
                             entered.wait();
                             std::this_thread::yield();
                             done = true;
                           })));
  const Event event = worker->Record();
  entered.count_down();
  EXPECT_OK(New()->Wait(event));
  EXPECT_TRUE(done);
}

class WorkerStreamTest : public CpuStreamTestBase {
 protected:
  WorkerStreamTest() : CpuStreamTestBase(CpuStreams::kWorker) {}
};

TEST_F(WorkerStreamTest, RunsOnAThreadOfItsOwn) {
  const auto stream = New();
  std::latch open(1);
  std::thread::id thread;
  EXPECT_OK(stream->Launch({.name = "run"}, Do([&] {
                             open.wait();
                             thread = std::this_thread::get_id();
                           })));
  open.count_down();  // hangs before this if Launch runs the body
  EXPECT_OK(stream->Synchronize());
  EXPECT_NE(thread, std::this_thread::get_id());
}

TEST_F(WorkerStreamTest, StreamsRunSideBySide) {
  const auto a = New("a");
  const auto b = New("b");
  std::latch both(2);
  for (Stream* stream : {a.get(), b.get()}) {
    EXPECT_OK(stream->Launch({.name = "meet"},
                             Do([&both] { both.arrive_and_wait(); })));
  }
  EXPECT_OK(a->Synchronize());
  EXPECT_OK(b->Synchronize());
}

TEST_F(WorkerStreamTest, WaitHoldsTheStreamAndNotTheHost) {
  const auto a = New("a");
  const auto b = New("b");
  std::latch open(1);
  bool written = false;
  std::optional<bool> read;
  EXPECT_OK(a->Launch({.name = "write"}, Do([&] {
                        open.wait();
                        written = true;
                      })));
  EXPECT_OK(b->Wait(a->Record()));
  EXPECT_OK(b->Launch({.name = "read"}, Do([&] { read = written; })));
  open.count_down();
  EXPECT_OK(b->Synchronize());
  EXPECT_EQ(read, true);
}

TEST_F(WorkerStreamTest, EventPassesBeforeWhatComesBehindIt) {
  std::latch open(1);  // outlives the stream, on which something awaits it
  const auto stream = New();
  EXPECT_OK(stream->Launch({.name = "run"}, Do([] {})));
  const Event event = stream->Record();
  EXPECT_OK(stream->Launch({.name = "hold"}, Do([&open] { open.wait(); })));
  EXPECT_OK(event.Synchronize());
  open.count_down();
}

TEST_F(WorkerStreamTest, EventPassesForManyWaiters) {
  const auto stream = New();
  std::latch open(1);
  EXPECT_OK(stream->Launch({.name = "hold"}, Do([&open] { open.wait(); })));
  stream->Launch({.name = "fail"}, FirstError).IgnoreError();
  const Event event = stream->Record();
  std::vector<std::unique_ptr<Stream>> waiters;
  for (int i = 0; i < 3; ++i) {
    waiters.push_back(New());
    EXPECT_OK(waiters.back()->Wait(event));
  }
  open.count_down();
  EXPECT_THAT(event.Synchronize(), StatusIs(kFirst));
  for (const auto& waiter : waiters) {
    EXPECT_THAT(waiter->Synchronize(), StatusIs(kFirst));
  }
}

TEST_F(WorkerStreamTest, DestructionDropsBehindAnError) {
  auto stream = New();
  std::latch open(1);
  bool ran = false;
  EXPECT_OK(stream->Launch({.name = "fail"}, [&open] {
    open.wait();
    return FirstError();
  }));
  EXPECT_OK(stream->Launch({.name = "late"}, Do([&ran] { ran = true; })));
  const Event event = stream->Record();
  open.count_down();
  stream.reset();
  EXPECT_FALSE(ran);
  EXPECT_THAT(event.Synchronize(), StatusIs(kFirst));
}

TEST_F(WorkerStreamTest, BytesLeaveTheAccountsWhenIssued) {
  const auto stream = New();
  ASSERT_OK_AND_ASSIGN(Buffer buffer, device_.Allocate(64, "x"));
  std::latch open(1);
  EXPECT_OK(stream->Launch({.name = "hold"}, Do([&open, data = buffer.data()] {
                             open.wait();
                             std::memset(data, 1, 64);
                           })));
  buffer.ResetAfter(*stream);
  EXPECT_EQ(device_.memory().total.current_bytes, 0);
  ASSERT_OK_AND_ASSIGN(Buffer next, device_.Allocate(64, "x"));
  EXPECT_EQ(device_.memory().total.peak_bytes, 64);
  open.count_down();
  EXPECT_OK(stream->Synchronize());
}

TEST(CpuDeviceTest, TimeMovesForward) {
  const CpuDevice device;
  const int64_t before = device.NowNanos();
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_GE(device.NowNanos() - before, 2'000'000);
}

}  // namespace
}  // namespace tessera

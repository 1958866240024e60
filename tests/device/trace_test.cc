#include "tessera/device/trace.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tessera/device/cpu/cpu_device.h"
#include "tessera/device/trace_builder.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;
using Communication = TraceTimes::Communication;

constexpr int kCompute = 0;
constexpr int kGather = 1;
constexpr int kReduce = 2;

Trace TraceOf(std::vector<TracedOperation> operations, int64_t begin_ps = 0) {
  return {.begin_ps = begin_ps,
          .streams = {"compute", "gather", "reduce"},
          .operations = std::move(operations),
          .memory = {}};
}

TEST(TraceTimesTest, IsTheExampleOfTheHeader) {
  const TraceTimes times =
      TimesOf(TraceOf({{"all_gather", kGather, "dp", 2, 7},
                       {"a", kCompute, "", 0, 4},
                       {"reduce_scatter", kReduce, "dp", 8, 11},
                       {"b", kCompute, "", 6, 9}}),
              "compute");
  EXPECT_EQ(times.total_ps, 11);
  EXPECT_THAT(times.busy_ps, ElementsAre(7, 5, 3));
  EXPECT_EQ(times.communication, (Communication{8, 4}));
  EXPECT_THAT(times.communicators,
              UnorderedElementsAre(Pair("dp", Communication{8, 4})));
}

TEST(TraceTimesTest, CountsTogetherWhatRunsAtOnce) {
  const TraceTimes times =
      TimesOf(TraceOf({{"all_gather", kGather, "inner", 0, 10},
                       {"reduce_scatter", kReduce, "inner", 5, 15},
                       {"all_reduce", kGather, "outer", 12, 20}}),
              "compute");
  EXPECT_THAT(times.communicators,
              UnorderedElementsAre(Pair("inner", Communication{15, 15}),
                                   Pair("outer", Communication{8, 8})));
  EXPECT_EQ(times.communication, (Communication{20, 20}));
}

// Neither collectives on the compute stream nor kernels elsewhere hide any.
TEST(TraceTimesTest, OnlyComputationHidesCommunication) {
  const TraceTimes times =
      TimesOf(TraceOf({{"all_gather", kCompute, "dp", 0, 10},
                       {"reduce_scatter", kReduce, "dp", 0, 10},
                       {"accumulate", kGather, "", 0, 10}}),
              "compute");
  EXPECT_EQ(times.communicators.at("dp"), (Communication{10, 10}));
  EXPECT_THAT(times.busy_ps, ElementsAre(10, 10, 10));
}

TEST(TraceTimesTest, BeginsWithTheTrace) {
  const TraceTimes times =
      TimesOf(TraceOf({{"a", kCompute, "", 150, 170}}, 100), "compute");
  EXPECT_EQ(times.total_ps, 70);
  EXPECT_EQ(TimesOf(TraceOf({}, 100), "compute").total_ps, 0);
  EXPECT_EQ(TimesOf(TraceOf({}, 100), "compute").communication,
            Communication());
}

TEST(ChromeTraceTest, HasASlicePerOperation) {
  Trace trace = TraceOf({{"say \"hi\"", kCompute, "", 1'500'000, 4'000'001},
                         {"all_gather", kGather, "dp", 0, 250'000}});
  trace.memory = {{2'000'000, "grad", 64}};
  const auto json = nlohmann::json::parse(ToChromeTrace({{3, trace}}));
  std::vector<std::string> threads;
  std::vector<nlohmann::json> slices;
  std::vector<nlohmann::json> counters;
  for (const auto& event : json.at("traceEvents")) {
    EXPECT_EQ(event.at("pid"), 3);
    if (event.at("ph") == "X") slices.push_back(event);
    if (event.at("ph") == "C") counters.push_back(event);
    if (event.at("name") == "thread_name") {
      EXPECT_EQ(event.at("tid"), threads.size());
      threads.push_back(event.at("args").at("name"));
    }
    if (event.at("name") == "process_name") {
      EXPECT_EQ(event.at("args").at("name"), "rank 3");
    }
  }
  EXPECT_THAT(threads, ElementsAre("compute", "gather", "reduce"));
  ASSERT_EQ(slices.size(), 2u);
  EXPECT_EQ(slices[0].at("name"), "say \"hi\"");
  EXPECT_EQ(slices[0].at("tid"), kCompute);
  EXPECT_EQ(slices[0].at("ts"), 1.5);
  EXPECT_EQ(slices[0].at("dur"), 2.500001);
  EXPECT_FALSE(slices[0].contains("args"));
  EXPECT_EQ(slices[1].at("args").at("communicator"), "dp");
  ASSERT_EQ(counters.size(), 1u);
  EXPECT_EQ(counters[0].at("ts"), 2.0);
  EXPECT_EQ(counters[0].at("name"), "memory grad");
  EXPECT_EQ(counters[0].at("args").at("bytes"), 64);
}

// As in fsdp: a forward of a root around that of a block, which launches twice.
TEST(ChromeTraceTest, RangesSpanTheirOperations) {
  internal::TraceBuilder builder;
  builder.AddStream("compute");
  builder.BeginRange(0, "forward", "root");
  const int64_t embed = builder.AddOperation(0, "embed", "");
  builder.BeginRange(0, "forward", "block");
  const int64_t first = builder.AddOperation(0, "first", "");
  const int64_t second = builder.AddOperation(0, "second", "");
  builder.EndRange(0);
  builder.BeginRange(0, "nothing", "");
  builder.EndRange(0);
  const int64_t head = builder.AddOperation(0, "head", "");
  builder.EndRange(0);
  builder.EndRange(0);  // one too many does no harm
  const int64_t outside = builder.AddOperation(0, "outside", "");
  int64_t time = 0;
  for (int64_t number : {embed, first, second, head, outside}) {
    builder.SetTimes(number, time, time + 500'000);
    time += 1'000'000;
  }
  const auto json =
      nlohmann::json::parse(ToChromeTrace({{0, builder.trace()}}));
  std::vector<std::string> slices;
  for (const auto& event : json.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    slices.push_back(absl::StrCat(event.at("name").get<std::string>(), " ",
                                  event.at("ts").get<double>(), " for ",
                                  event.at("dur").get<double>()));
  }
  EXPECT_THAT(slices, ElementsAre("forward root 0 for 3.5",
                                  "forward block 1 for 1.5", "embed 0 for 0.5",
                                  "first 1 for 0.5", "second 2 for 0.5",
                                  "head 3 for 0.5", "outside 4 for 0.5"));
}

// Ranks share a clock, which counts from the first beginning.
TEST(ChromeTraceTest, HasAProcessPerRank) {
  const Trace early = TraceOf({{"a", kCompute, "", 7'000'000, 8'000'000}},
                              /*begin_ps=*/5'000'000);
  const Trace late = TraceOf({{"b", kCompute, "", 7'000'000, 9'000'000}},
                             /*begin_ps=*/6'000'000);
  const auto json =
      nlohmann::json::parse(ToChromeTrace({{4, late}, {2, early}}));
  std::vector<std::string> slices;
  for (const auto& event : json.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    slices.push_back(absl::StrCat("rank ", event.at("pid").get<int>(), " ",
                                  event.at("name").get<std::string>(), " ",
                                  event.at("ts").get<double>()));
  }
  EXPECT_THAT(slices, ElementsAre("rank 4 b 2", "rank 2 a 2"));
}

TEST(TraceBuilderTest, ClearingKeepsStreamsAndOpenRanges) {
  internal::TraceBuilder builder;
  builder.AddStream("compute");
  builder.AddStream("gather");
  builder.BeginRange(0, "forward", "root");
  builder.BeginRange(1, "gather", "block");
  const int64_t old = builder.AddOperation(1, "all_gather", "dp");
  builder.EndRange(1);
  builder.BeginRange(0, "forward", "block");
  builder.Clear(100);
  builder.SetTimes(old, 90, 110);
  builder.SetTimes(builder.AddOperation(0, "gemm", ""), 120, 130);
  const Trace& trace = builder.trace();
  EXPECT_EQ(trace.begin_ps, 100);
  EXPECT_THAT(trace.streams, ElementsAre("compute", "gather"));
  EXPECT_THAT(trace.operations,
              ElementsAre(TracedOperation{"gemm", 0, "", 120, 130, 1}));
  EXPECT_THAT(trace.ranges, ElementsAre(TracedRange{"forward root", -1},
                                        TracedRange{"forward block", 0}));
}

// Every launch that ran, with its range, in its stream's order and time.
TEST(CpuTraceTest, RecordsWhatStreamsRan) {
  for (CpuStreams streams : {CpuStreams::kInline, CpuStreams::kWorker}) {
    CpuDevice device({.streams = streams, .trace = true});
    const auto compute = *device.NewStream("compute");
    const auto other = *device.NewStream("other");
    const auto launch = [](Stream& stream, const char* name,
                           absl::Status status = absl::OkStatus()) {
      stream
          .Launch({.name = name, .communicator = "dp"},
                  [status] { return status; })
          .IgnoreError();
    };
    launch(*compute, "before");
    ASSERT_TRUE(compute->Synchronize().ok());
    device.ClearTrace();
    {
      const StreamRange range(*compute, "forward", "block");
      launch(*compute, "a");
      launch(*other, "b");
    }
    launch(*compute, "fails", absl::InternalError("on purpose"));
    launch(*compute, "dropped");
    compute->Synchronize().IgnoreError();
    other->Synchronize().IgnoreError();
    const Trace trace = device.trace();
    ASSERT_EQ(trace.operations.size(), 3u);
    EXPECT_THAT(trace.streams, ElementsAre("compute", "other"));
    std::vector<std::string> seen;
    for (const TracedOperation& operation : trace.operations) {
      seen.push_back(absl::StrCat(
          trace.streams[operation.stream], ": ", operation.name, " of ",
          operation.range < 0 ? "none" : trace.ranges[operation.range].name));
      EXPECT_EQ(operation.communicator, "dp");
      EXPECT_GE(operation.begin_ps, trace.begin_ps);
      EXPECT_GE(operation.end_ps, operation.begin_ps);
    }
    EXPECT_THAT(seen,
                ElementsAre("compute: a of forward block", "other: b of none",
                            "compute: fails of none"));
  }
  EXPECT_TRUE(CpuDevice().trace().operations.empty());
}

TEST(CpuTraceTest, BeginsWithTheDevice) {
  CpuDevice device({.trace = true});
  const auto stream = *device.NewStream("compute");
  ASSERT_TRUE(
      stream->Launch({.name = "a"}, [] { return absl::OkStatus(); }).ok());
  const Trace trace = device.trace();
  ASSERT_EQ(trace.operations.size(), 1u);
  EXPECT_LE(trace.begin_ps, trace.operations[0].begin_ps);
  constexpr int64_t kMinute = 60'000'000'000'000;
  EXPECT_LT(trace.operations[0].end_ps - trace.begin_ps, kMinute);
}

TEST(ChromeTraceTest, TakesNamesOfAnyBytes) {
  CpuDevice device({.trace = true});
  const auto stream = *device.NewStream("caf\xe9");
  ASSERT_TRUE(
      stream->Launch({.name = "\xff"}, [] { return absl::OkStatus(); }).ok());
  const std::string text = ToChromeTrace({{{0, device.trace()}}});
  EXPECT_TRUE(nlohmann::json::accept(text)) << text;
}

}  // namespace
}  // namespace tessera

#include "tessera/device/sim/sim_trace.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;
using Communication = SimTimes::Communication;

constexpr int kCompute = 0;
constexpr int kGather = 1;
constexpr int kReduce = 2;

SimTrace TraceOf(std::vector<SimOperation> operations, int64_t begin_ps = 0) {
  return {.begin_ps = begin_ps,
          .streams = {"compute", "gather", "reduce"},
          .operations = std::move(operations),
          .memory = {}};
}

TEST(SimTimesTest, IsTheExampleOfTheHeader) {
  const SimTimes times =
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

TEST(SimTimesTest, CountsTogetherWhatRunsAtOnce) {
  const SimTimes times =
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
TEST(SimTimesTest, OnlyComputationHidesCommunication) {
  const SimTimes times =
      TimesOf(TraceOf({{"all_gather", kCompute, "dp", 0, 10},
                       {"reduce_scatter", kReduce, "dp", 0, 10},
                       {"accumulate", kGather, "", 0, 10}}),
              "compute");
  EXPECT_EQ(times.communicators.at("dp"), (Communication{10, 10}));
  EXPECT_THAT(times.busy_ps, ElementsAre(10, 10, 10));
}

TEST(SimTimesTest, BeginsWithTheTrace) {
  const SimTimes times =
      TimesOf(TraceOf({{"a", kCompute, "", 150, 170}}, 100), "compute");
  EXPECT_EQ(times.total_ps, 70);
  EXPECT_EQ(TimesOf(TraceOf({}, 100), "compute").total_ps, 0);
  EXPECT_EQ(TimesOf(TraceOf({}, 100), "compute").communication,
            Communication());
}

TEST(ChromeTraceTest, HasASlicePerOperation) {
  SimTrace trace = TraceOf({{"say \"hi\"", kCompute, "", 1'500'000, 4'000'001},
                            {"all_gather", kGather, "dp", 0, 250'000}});
  trace.memory = {{2'000'000, "grad", 64}};
  const auto json = nlohmann::json::parse(ToChromeTrace(trace, 3));
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

}  // namespace
}  // namespace tessera

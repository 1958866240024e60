#include "tessera/comm/comm_log.h"

#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

CollectiveRecord Record(const std::string& communicator, CollectiveKind kind,
                        int64_t sequence, int64_t bytes) {
  CollectiveRecord record;
  record.communicator = communicator;
  record.kind = kind;
  record.sequence = sequence;
  record.bytes_received = bytes;
  return record;
}

std::vector<int64_t> Sequences(const CommLog& log) {
  std::vector<int64_t> sequences;
  for (const CollectiveRecord& r : log.recent()) {
    sequences.push_back(r.sequence);
  }
  return sequences;
}

TEST(CollectiveRecord, ToStringNamesTheOpOfReductions) {
  CollectiveRecord record =
      Record("dp_inner", CollectiveKind::kReduceScatter, 3, 0);
  record.elements = 96;
  EXPECT_EQ(record.ToString(), "dp_inner #3 reduce_scatter sum f32 96");
  record.kind = CollectiveKind::kAllGather;
  record.dtype = DType::kBF16;
  EXPECT_EQ(record.ToString(), "dp_inner #3 all_gather bf16 96");
}

TEST(CommLog, CountsPerCommunicatorAndKind) {
  CommLog log;
  log.Append(Record("dp", CollectiveKind::kAllReduce, 0, 10));
  log.Append(Record("tp", CollectiveKind::kAllReduce, 0, 1));
  log.Append(Record("dp", CollectiveKind::kAllReduce, 1, 20));
  log.Append(Record("dp", CollectiveKind::kBroadcast, 2, 0));
  EXPECT_THAT(log.counters(),
              ElementsAre(Pair(CommLog::Key("dp", CollectiveKind::kAllReduce),
                               CommCounter{2, 30}),
                          Pair(CommLog::Key("dp", CollectiveKind::kBroadcast),
                               CommCounter{1, 0}),
                          Pair(CommLog::Key("tp", CollectiveKind::kAllReduce),
                               CommCounter{1, 1})));
  log.Clear();
  EXPECT_THAT(log.counters(), IsEmpty());
  EXPECT_THAT(log.recent(), IsEmpty());
}

TEST(CommLog, KeepsTheLastRecords) {
  CommLog log(/*ring_size=*/3);
  for (int i = 0; i < 5; ++i) {
    log.Append(Record("dp", CollectiveKind::kAllGather, i, 1));
  }
  EXPECT_THAT(Sequences(log), ElementsAre(2, 3, 4));
  EXPECT_EQ(log.counters().begin()->second.calls, 5);
}

TEST(CommLog, TakesAppendsFromManyThreads) {
  CommLog log(/*ring_size=*/0);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&log] {
      for (int i = 0; i < 1000; ++i) {
        log.Append(Record("dp", CollectiveKind::kAllGather, i, 2));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(log.counters().begin()->second, (CommCounter{4000, 8000}));
  EXPECT_THAT(log.recent(), IsEmpty());
}

}  // namespace
}  // namespace tessera

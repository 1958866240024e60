#include "tessera/comm/comm_log.h"

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/file.h"
#include "tests/status_matchers.h"
#include "tests/temporary_folder.h"

namespace tessera {
namespace {

using ::tessera::testing::IsOkAndHolds;
using ::tessera::testing::StatusIs;
using ::tessera::testing::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
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
  CommLog log({.ring_size = 3});
  for (int i = 0; i < 5; ++i) {
    log.Append(Record("dp", CollectiveKind::kAllGather, i, 1));
  }
  EXPECT_THAT(Sequences(log), ElementsAre(2, 3, 4));
  EXPECT_EQ(log.counters().begin()->second.calls, 5);
}

TEST(CommLog, TakesAppendsFromManyThreads) {
  CommLog log({.ring_size = 0});
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

TEST(CommLog, TableShowsHowFarCommunicatorsHaveCome) {
  CommLog log;
  const auto dp = std::make_shared<CommProgress>();
  dp->started = 2;
  dp->done = 1;
  CollectiveRecord record =
      Record("dp", CollectiveKind::kReduceScatter, 0, 1536);
  record.elements = 1024;
  record.group_size = 4;
  log.Append(record, dp);
  record.sequence = 1;
  log.Append(record, dp);
  record.sequence = 2;
  record.kind = CollectiveKind::kBroadcast;
  log.Append(record, dp);
  const std::string table =
      "state     communicator  sequence  collective      op   dtype  elements  "
      "bytes received  ranks\n"
      "done      dp            0         reduce_scatter  sum  f32    1024      "
      "1536            4\n"
      "started   dp            1         reduce_scatter  sum  f32    1024      "
      "1536            4\n"
      "enqueued  dp            2         broadcast       -    f32    1024      "
      "1536            4\n";
  EXPECT_EQ(log.ToTable(), table);
  const TemporaryFolder folder;
  const std::string path = folder.File("requested.txt");
  ASSERT_OK(log.WriteTable(path));
  EXPECT_THAT(internal::ReadFile(path), IsOkAndHolds(table));
  EXPECT_THAT(log.WriteTable("/no/such/folder/table.txt"),
              StatusIs(absl::StatusCode::kPermissionDenied));
}

TEST(CommLog, FirstFailureLeavesATableInTheFolder) {
  std::vector<std::string> lines;
  const TemporaryFolder folder;
  CommLog log({.dump_folder = folder.path(),
               .logger = Logger(
                   [&](absl::LogSeverity, absl::string_view line) {
                     lines.emplace_back(line);
                   },
                   absl::LogSeverity::kInfo)});
  log.Append(Record("dp", CollectiveKind::kAllReduce, 7, 10));
  log.NoteFailure(3, absl::AbortedError("the first"));
  log.NoteFailure(3, absl::AbortedError("the second"));
  const std::string path = folder.File("tessera-rank3.txt");
  EXPECT_THAT(
      internal::ReadFile(path),
      IsOkAndHolds("The last collectives of rank 3, oldest first, when one of "
                   "them failed with\n\nABORTED: the first\n\n" +
                   log.ToTable()));
  EXPECT_THAT(lines, ElementsAre("comm: a collective failed on rank 3; the "
                                 "last ones are in " +
                                 path));
}

TEST(CommLog, EnvironmentNamesTheFolder) {
  const TemporaryFolder folder;
  setenv("TESSERA_COMM_DUMP", folder.path().c_str(), 1);
  CommLog log;
  unsetenv("TESSERA_COMM_DUMP");
  log.NoteFailure(0, absl::AbortedError("gone"));
  EXPECT_OK(internal::ReadFile(folder.File("tessera-rank0.txt")).status());
}

TEST(CommLog, SaysWhereATableCannotBeWritten) {
  std::vector<std::string> lines;
  CommLog log({.dump_folder = "/no/such/folder",
               .logger = Logger(
                   [&](absl::LogSeverity, absl::string_view line) {
                     lines.emplace_back(line);
                   },
                   absl::LogSeverity::kInfo)});
  log.NoteFailure(0, absl::AbortedError("gone"));
  EXPECT_THAT(lines, ElementsAre(HasSubstr("/no/such/folder")));
}

}  // namespace
}  // namespace tessera

#include "tessera/base/log.h"

#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::StartsWith;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

using Lines = std::vector<std::pair<absl::LogSeverity, std::string>>;

LogSink AppendTo(Lines& lines) {
  return [&lines](absl::LogSeverity severity, absl::string_view line) {
    lines.emplace_back(severity, std::string(line));
  };
}

// What a Logger writes to stderr for one line of each severity under a value
// of TESSERA_LOG; a null value unsets it.
std::string StderrAtLevel(const char* value) {
  if (value == nullptr) {
    unsetenv("TESSERA_LOG");
  } else {
    setenv("TESSERA_LOG", value, /*overwrite=*/1);
  }
  CaptureStderr();
  const Logger logger;
  logger.Info("i");
  logger.Warning("w");
  logger.Error("e");
  unsetenv("TESSERA_LOG");
  return GetCapturedStderr();
}

TEST(LoggerTest, PassesOnWhatIsSevereEnough) {
  Lines lines;
  const Logger logger(AppendTo(lines), absl::LogSeverity::kWarning);
  logger.Info("low");
  logger.Warning("middle");
  logger.Error("high");
  EXPECT_THAT(lines, ElementsAre(Pair(absl::LogSeverity::kWarning, "middle"),
                                 Pair(absl::LogSeverity::kError, "high")));
  EXPECT_FALSE(logger.enabled(absl::LogSeverity::kInfo));
  EXPECT_TRUE(logger.enabled(absl::LogSeverity::kWarning));
}

TEST(LoggerTest, DropsAllWithoutASink) {
  const Logger logger(nullptr, absl::LogSeverity::kInfo);
  EXPECT_FALSE(logger.enabled(absl::LogSeverity::kFatal));
  logger.Error("nowhere");
}

TEST(LoggerTest, CopiesShareOneSink) {
  Lines lines;
  const Logger logger(AppendTo(lines), absl::LogSeverity::kInfo);
  const Logger copy = logger;
  logger.Info("a");
  copy.Info("b");
  EXPECT_THAT(lines, ElementsAre(Pair(absl::LogSeverity::kInfo, "a"),
                                 Pair(absl::LogSeverity::kInfo, "b")));
}

TEST(LoggerTest, CallsTheSinkOneCallAtATime) {
  Lines lines;  // not thread-safe itself
  const Logger logger(AppendTo(lines), absl::LogSeverity::kInfo);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([logger] {
      for (int i = 0; i < 200; ++i) logger.Info("line");
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(lines.size(), 800u);
}

TEST(LoggerTest, TakesTheLevelFromTheEnvironment) {
  EXPECT_EQ(StderrAtLevel(nullptr), "tessera: w\ntessera: e\n");
  EXPECT_EQ(StderrAtLevel("info"), "tessera: i\ntessera: w\ntessera: e\n");
  EXPECT_EQ(StderrAtLevel("warning"), "tessera: w\ntessera: e\n");
  EXPECT_EQ(StderrAtLevel("error"), "tessera: e\n");
  EXPECT_EQ(StderrAtLevel("off"), "");
}

TEST(LoggerTest, SaysOnceThatAnUnknownLevelCountsAsWarning) {
  EXPECT_THAT(StderrAtLevel("verbose"),
              AllOf(StartsWith("tessera: "), HasSubstr("TESSERA_LOG"),
                    HasSubstr("'verbose', taken as warning\n"),
                    EndsWith("warning\ntessera: w\ntessera: e\n")));
}

}  // namespace
}  // namespace tessera

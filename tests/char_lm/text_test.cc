#include "char_lm/text.h"

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/temporary_folder.h"

namespace char_lm {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class LoadTextTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& bytes) const {
    const fs::path path = directory_ / name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path.string();
  }

  void ExpectError(const std::string& path, absl::StatusCode code,
                   const std::string& message) const {
    const absl::Status status = LoadText(path, 4).status();
    EXPECT_EQ(status.code(), code);
    EXPECT_THAT(status.message(), HasSubstr("'" + path + "'"));
    EXPECT_THAT(status.message(), HasSubstr(message));
    EXPECT_THAT(status.message(), Not(HasSubstr("\n")));
  }

  // Whoever opens it to read waits for a writer.
  std::string MakeFifo(const std::string& name) const {
    const fs::path path = directory_ / name;
    EXPECT_EQ(::mkfifo(path.c_str(), 0600), 0);
    return path;
  }

  // A file of zeros that takes no room on the disk.
  std::string MakeSparse(const std::string& name, int64_t size) const {
    const std::string path = Write(name, "");
    fs::resize_file(path, size);
    return path;
  }

  const tessera::testing::TemporaryFolder folder_;
  const fs::path directory_ = folder_.path();
};

std::string Decode(const Text& text) {
  std::string bytes;
  for (const int32_t token : text.tokens) bytes += text.vocabulary[token];
  return bytes;
}

TEST(EncodeText, SortsTheBytesThatOccur) {
  const Text text = EncodeText("ba\xff\na");
  EXPECT_EQ(text.vocabulary, "\nab\xff");
  EXPECT_EQ(text.vocab_size(), 4);
  EXPECT_THAT(text.tokens, ElementsAre(2, 1, 3, 0, 1));
}

TEST_F(LoadTextTest, ReadsAFile) {
  const std::string bytes("line\r\n\0line", 11);
  const auto text = LoadText(Write("a", bytes), 4);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(Decode(*text), bytes);
}

TEST_F(LoadTextTest, ReadsAFileOfManyChunks) {
  std::string bytes;
  for (int i = 0; bytes.size() < 300000; ++i) bytes += std::to_string(i);
  const auto text = LoadText(Write("a", bytes), 4);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(Decode(*text), bytes);
}

TEST_F(LoadTextTest, ReadsTheRegularFilesOfADirectoryByName) {
  const std::string second = Write("b", "second");
  Write("c", "third");
  Write("a", "first ");
  fs::create_symlink(second, directory_ / "0-link");
  fs::create_directory(directory_ / "bb");
  const auto text = LoadText(directory_, 4);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(Decode(*text), "first secondthird");
}

TEST_F(LoadTextTest, FollowsALinkThatIsNamed) {
  fs::create_symlink(Write("a", "letters"), directory_ / "link");
  const auto text = LoadText(directory_ / "link", 4);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(Decode(*text), "letters");
}

TEST_F(LoadTextTest, RejectsWhatIsMissing) {
  ExpectError(directory_ / "none", absl::StatusCode::kNotFound,
              "No such file or directory");
}

TEST_F(LoadTextTest, RejectsWhatIsEmpty) {
  const std::string hint = "is empty";
  ExpectError(directory_, absl::StatusCode::kInvalidArgument, hint);
  ExpectError(Write("a", ""), absl::StatusCode::kInvalidArgument, hint);
}

TEST_F(LoadTextTest, RejectsWhatCannotBeRead) {
  const fs::path loop = directory_ / "loop";
  fs::create_symlink(loop, loop);
  ExpectError(loop, absl::StatusCode::kUnknown, "cannot read");
}

TEST_F(LoadTextTest, RejectsWhatIsNeitherFileNorDirectory) {
  const std::string hint = "is neither a file nor a directory";
  ExpectError("/dev/zero", absl::StatusCode::kInvalidArgument, hint);
  ExpectError(MakeFifo("fifo"), absl::StatusCode::kInvalidArgument, hint);
}

TEST_F(LoadTextTest, PassesOverFifosInADirectory) {
  MakeFifo("a");
  Write("b", "letters");
  const auto text = LoadText(directory_, 4);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(Decode(*text), "letters");
}

// Reading one of them blocks, another one's size is that of all addresses.
TEST_F(LoadTextTest, EndsOnTheSystemsOwnFiles) {
  ExpectError("/proc/self/maps", absl::StatusCode::kInvalidArgument,
              "is empty");
  const absl::Status status = LoadText("/proc", 4).status();
  EXPECT_THAT(status.message(), Not(HasSubstr("\n")));
}

TEST_F(LoadTextTest, RejectsWhatIsTooLong) {
  const std::string hint = "has more than 64 MiB";
  const int64_t half = kMostTextBytes / 2;
  ExpectError(MakeSparse("a", kMostTextBytes + 1),
              absl::StatusCode::kInvalidArgument, hint);
  MakeSparse("a", half);
  MakeSparse("b", half + 1);
  ExpectError(directory_, absl::StatusCode::kInvalidArgument, hint);
  // At the limit it is read, and found to be all zeros.
  MakeSparse("b", half);
  ExpectError(directory_, absl::StatusCode::kInvalidArgument,
              "repeats a single character");
}

TEST_F(LoadTextTest, RejectsWhatIsTooShort) {
  ExpectError(Write("a", "abcd"), absl::StatusCode::kInvalidArgument,
              "has 4 characters, want more than the context of 4");
  EXPECT_TRUE(LoadText(Write("b", "abcde"), 4).ok());
}

TEST_F(LoadTextTest, RejectsASingleRepeatedCharacter) {
  ExpectError(Write("a", "aaaaaaaa"), absl::StatusCode::kInvalidArgument,
              "repeats a single character");
}

Text Alphabet() { return EncodeText("abcdefghijklmnopqrstuvwxyz"); }

TEST(SampleBatch, CutsPiecesOfTheText) {
  const Text text = Alphabet();
  const Batch batch = SampleBatch(text, {.seed = 1}, 300, 5);
  ASSERT_EQ(batch.tokens.size(), 1500u);
  ASSERT_EQ(batch.targets.size(), 1500u);
  std::set<int32_t> firsts;
  for (int s = 0; s < 300; ++s) {
    firsts.insert(batch.tokens[s * 5]);
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(batch.tokens[s * 5 + i], batch.tokens[s * 5] + i);
      EXPECT_EQ(batch.targets[s * 5 + i], batch.tokens[s * 5 + i] + 1);
    }
  }
  // Every place, from the first to the last that leaves room for a target.
  EXPECT_EQ(firsts.size(), 26u - 5);
  EXPECT_EQ(*firsts.rbegin(), 26 - 5 - 1);
}

TEST(SampleBatch, FitsTheShortestText) {
  const Batch batch = SampleBatch(EncodeText("abc"), {}, 1, 2);
  EXPECT_THAT(batch.tokens, ElementsAre(0, 1));
  EXPECT_THAT(batch.targets, ElementsAre(1, 2));
}

TEST(SampleBatch, DiffersByStepMicrobatchRankAndSeed) {
  const Text text = Alphabet();
  std::set<std::vector<int32_t>> seen;
  int ids = 0;
  for (const uint64_t seed : {0, 1}) {
    for (int64_t step = 0; step < 4; ++step) {
      for (int microbatch = 0; microbatch < 4; ++microbatch) {
        for (int rank = 0; rank < 4; ++rank, ++ids) {
          const BatchId id{seed, step, microbatch, rank};
          const Batch batch = SampleBatch(text, id, 8, 2);
          EXPECT_EQ(batch.tokens, SampleBatch(text, id, 8, 2).tokens);
          seen.insert(batch.tokens);
        }
      }
    }
  }
  EXPECT_EQ(seen.size(), static_cast<size_t>(ids));
}

}  // namespace
}  // namespace char_lm

// docs/tool.md: its commands print what stands below them and draw its
// pictures.

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/file.h"
#include "tests/run_program.h"
#include "tests/status_matchers.h"
#include "tests/temporary_folder.h"
#include "tests/tools/run_tessera.h"

namespace tessera::testing {
namespace {

// The blocks of a page that are fenced with ```language.
std::vector<std::string> BlocksOf(const std::string& page,
                                  const std::string& language) {
  std::vector<std::string> blocks;
  const std::string fence = "```" + language + "\n";
  for (size_t at = 0; (at = page.find(fence, at)) != std::string::npos;) {
    const size_t begin = at + fence.size();
    at = page.find("```", begin);
    blocks.push_back(page.substr(begin, at - begin));
  }
  return blocks;
}

class ToolPageTest : public ::testing::Test {
 protected:
  ToolPageTest() {
    std::filesystem::create_directory(folder_.File("pictures"));
    const std::vector<std::string> json = BlocksOf(page_, "json");
    EXPECT_EQ(json.size(), 1u);
    EXPECT_OK(internal::WriteFile(folder_.File("plans.json"), json.at(0)));
  }

  // A block with the output of its commands, which stand behind "$ ", in place
  // of what is there.
  std::string RunAll(const std::string& block) {
    std::string text;
    for (absl::string_view line : absl::StrSplit(block, '\n')) {
      if (!absl::ConsumePrefix(&line, "$ ")) continue;
      const ProgramResult result = RunProgram(absl::StrCat(
          "cd '", folder_.File(""),
          "'; tessera() { '" TESSERA_PROGRAM "' \"$@\"; }; ", line));
      absl::StrAppend(&text, "$ ", line, "\n", result.output);
    }
    return text;
  }

  const std::string page_ = internal::ReadFile(DOCS "/tool.md").value();
  const TemporaryFolder folder_;
};

TEST_F(ToolPageTest, ShowsWhatTheProgramPrintsAndDraws) {
  const std::vector<std::string> blocks = BlocksOf(page_, "console");
  EXPECT_GE(blocks.size(), 5u);
  for (const std::string& block : blocks) EXPECT_EQ(RunAll(block), block);

  int pictures = 0;
  for (const auto& drawn :
       std::filesystem::directory_iterator(folder_.File("pictures"))) {
    const std::string name = drawn.path().filename();
    EXPECT_TRUE(internal::ReadFile(drawn.path()).value() ==
                internal::ReadFile(DOCS "/pictures/" + name).value())
        << name << " is not what the program draws";
    EXPECT_THAT(page_, ::testing::HasSubstr("(pictures/" + name + ")"));
    ++pictures;
  }
  EXPECT_GE(pictures, 3);
}

}  // namespace
}  // namespace tessera::testing

#include <fstream>
#include <sstream>
#include <string>

#include "gtest/gtest.h"
#include "tests/run_program.h"

namespace tessera::testing {
namespace {

// The first block of the README fenced with ```language.
std::string Block(const std::string& language) {
  std::stringstream readme;
  readme << std::ifstream(README_PATH).rdbuf();
  const std::string text = readme.str();
  const std::string fence = "```" + language + "\n";
  const size_t begin = text.find(fence);
  if (begin == std::string::npos) return "no block of " + language;
  const size_t end = text.find("```", begin + fence.size());
  return text.substr(begin + fence.size(), end - begin - fence.size());
}

TEST(ReadmeTest, ExamplePrintsWhatTheReadmeShows) {
  const ProgramResult result = RunProgram("'" README_EXAMPLE "' 2>&1");
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_EQ(result.output, Block("text"));
}

}  // namespace
}  // namespace tessera::testing

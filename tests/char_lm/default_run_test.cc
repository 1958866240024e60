// The program without any arguments, as the documentation runs it first.

#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/run_program.h"

namespace char_lm {
namespace {

using ::tessera::testing::ProgramResult;
using ::tessera::testing::RunProgram;
using ::testing::HasSubstr;

ProgramResult RunCharLm(const std::string& arguments) {
  return RunProgram(absl::StrCat("'" CHAR_LM_PROGRAM "' ", arguments, " 2>&1"));
}

// The losses in lines such as "step   12  loss 2.5071     30718 tokens/s".
std::vector<double> Losses(const std::string& output) {
  std::vector<double> losses;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    const size_t at = line.find("  loss ");
    if (!absl::StartsWith(line, "step ") || at == std::string::npos) continue;
    losses.push_back(std::strtod(line.c_str() + at + 7, nullptr));
  }
  return losses;
}

double Mean(const std::vector<double>& losses, size_t first, size_t count) {
  double sum = 0;
  for (size_t i = first; i < first + count; ++i) sum += losses[i];
  return sum / count;
}

TEST(DefaultRunTest, LearnsAndPassesItsChecks) {
  const ProgramResult result = RunCharLm("");
  EXPECT_EQ(result.exit_status, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("all checks passed"));
  const std::vector<double> losses = Losses(result.output);
  ASSERT_EQ(losses.size(), 60u) << result.output;
  EXPECT_LT(Mean(losses, 55, 5), Mean(losses, 0, 5) - 0.5);
}

TEST(DefaultRunTest, LossesDependOnTheSeedAlone) {
  const std::vector<double> losses =
      Losses(RunCharLm("--no-reference --steps 10").output);
  ASSERT_EQ(losses.size(), 10u);
  EXPECT_EQ(losses,
            Losses(RunCharLm("--no-reference --steps 10 --seed 1").output));
  EXPECT_NE(losses,
            Losses(RunCharLm("--no-reference --steps 10 --seed 2").output));
}

}  // namespace
}  // namespace char_lm

// The program tessera-bench, run as users do.

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/run_program.h"

namespace tessera::testing {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::SizeIs;
using ::testing::StartsWith;

// Keeps both stdout and stderr.
ProgramResult RunBench(const std::string& arguments) {
  return RunProgram("'" TESSERA_BENCH_PROGRAM "' " + arguments + " 2>&1");
}

TEST(TesseraBenchTest, SweepsAllFactorizationsInATableOf100Columns) {
  const ProgramResult result = RunBench(
      "--world 8 --factorizations --tensors '64x64;5x3' --from 'P;S(0)' "
      "--to 'R;S(1);[S(0)]' --turns 1");
  EXPECT_EQ(result.exit_status, 0);
  for (const char* mesh :
       {"'a=8'", "'a=2,b=4'", "'a=4,b=2'", "'a=2,b=2,c=2'"}) {
    EXPECT_THAT(result.output, HasSubstr("f32[64,64] on " + std::string(mesh)));
    EXPECT_THAT(result.output, HasSubstr("f32[5,3] on " + std::string(mesh)));
  }
  EXPECT_THAT(
      result.output,
      HasSubstr(
          "skipped 4: layout: want one placement for each of the 3 axes "));
  for (const auto line : absl::StrSplit(result.output, '\n')) {
    EXPECT_THAT(line, SizeIs(Le(100u)));
  }
}

TEST(TesseraBenchTest, SweepsAllPairsAndSizesAsJson) {
  const ProgramResult result = RunBench(
      "--meshes '2;x=2' --all-pairs --bytes 1KiB:4KiB --tensors 8x16 "
      "--dtype bf16 --turns 1 --backend local --json");
  EXPECT_EQ(result.exit_status, 0);
  const auto json = nlohmann::json::parse(result.output);
  ASSERT_THAT(json["rows"], SizeIs(2 * 2 * 12));
  EXPECT_EQ(json["rows"][0]["tensor"], "bf16[32,16]");
  EXPECT_EQ(json["rows"][12]["tensor"], "bf16[128,16]");
  EXPECT_EQ(json["rows"][24]["mesh"], "x=2");
}

TEST(TesseraBenchTest, PrintsCsv) {
  const ProgramResult result =
      RunBench("--meshes 2 --from P --to R --turns 1 --tensors 4 --csv");
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_THAT(result.output, StartsWith("mesh,tensor,from,to,skipped,"));
  EXPECT_THAT(result.output, HasSubstr("\na=2,f32[4],[P(sum)],[R],,"));
}

// Thousands of meshes, of which none is planned for.
TEST(TesseraBenchTest, SkipsWorldsThatAreTooLargeAtOnce) {
  const ProgramResult result = RunBench(
      "--world 4096 --factorizations --from P --to R --tensors 4 --csv");
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_EQ(std::count(result.output.begin(), result.output.end(), '\n'),
            1 + 2048);
  EXPECT_THAT(result.output, HasSubstr("n at most 256, found 4096 ranks"));
}

TEST(TesseraBenchTest, HelpHasExamples) {
  const ProgramResult result = RunBench("--help");
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_THAT(result.output,
              HasSubstr("  tessera-bench --world 8 --factorizations"));
}

// One line on stderr, nothing on stdout, exit status 2.
TEST(TesseraBenchTest, ComplainsInOneLine) {
  const std::string pair = "--from R --to 'S(0)' ";
  const struct {
    std::string arguments;
    const char* message;
  } cases[] = {
      {"", "--meshes: want either this or --factorizations"},
      {pair + "--meshes 2 --factorizations --world 2", "--meshes: want either"},
      {pair + "--factorizations", "--world: sweep: want a world of 1 to"},
      {pair + "--meshes 2 --world 2", "--world: want --factorizations"},
      {pair + "--meshes 2x", "--meshes: mesh: "},
      {pair + "--meshes ';'", "sweep: want at least one mesh"},
      {pair + "--meshes 2 --tensors 4y4", "--tensors: "},
      {pair + "--meshes 2 --dtype f8", "--dtype: "},
      {pair + "--meshes 2 --bytes 4MB", "--bytes: want bytes"},
      {pair + "--meshes 2 --bytes 4MiB:1MiB", "--bytes: want a size above 0"},
      {pair + "--meshes 2 --bytes 0", "--bytes: want a size above 0"},
      {pair + "--meshes 2 --bytes 1:2:3", "--bytes: want a size above 0"},
      {pair + "--meshes 2 --topology moon", "--topology: "},
      {pair + "--meshes 2 --backend nccl", "local"},
      {pair + "--meshes 2 --turns 0", "1 to 1000"},
      {pair + "--meshes 2 --all-pairs", "--from: want this and --to, or else"},
      {"--meshes 2", "--from: want this and --to, or else --all-pairs"},
      {"--meshes 2 --from R", "sweep: want layouts to go from and to"},
      {pair + "--meshes 2 --csv --json", "excludes"},
      {"--fast", "--fast"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.arguments);
    const ProgramResult all = RunBench(c.arguments);
    EXPECT_EQ(all.exit_status, 2);
    EXPECT_THAT(all.output, AllOf(StartsWith("tessera-bench: "),
                                  HasSubstr(c.message), EndsWith("\n")));
    EXPECT_EQ(all.output.find('\n'), all.output.size() - 1) << all.output;
    const ProgramResult out = RunProgram("'" TESSERA_BENCH_PROGRAM "' " +
                                         c.arguments + " 2>/dev/null");
    EXPECT_EQ(out.output, "");
  }
}

TEST(TesseraBenchTest, ComplainsWhereItCannotPrint) {
  const ProgramResult result =
      RunProgram("'" TESSERA_BENCH_PROGRAM "' --help 2>&1 >/dev/full");
  EXPECT_EQ(result.exit_status, 2);
  EXPECT_EQ(result.output, "tessera-bench: cannot write to stdout\n");
}

}  // namespace
}  // namespace tessera::testing

// The program as a user runs it.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/run_program.h"
#include "tests/temporary_folder.h"

namespace char_lm {
namespace {

using ::tessera::testing::ProgramResult;
using ::tessera::testing::RunProgram;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

constexpr char kProgram[] = "'" CHAR_LM_PROGRAM "' ";
constexpr char kTiny[] =
    "--steps 3 --batch 2 --context 16 --width 16 --heads 2 --layers 2 "
    "--mlp-width 32 ";

ProgramResult RunCharLm(const std::string& arguments) {
  return RunProgram(kProgram + arguments + " 2>&1");
}

// A file with `content` that goes with this object.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& content) {
    std::ofstream(path()) << content;
  }
  std::string path() const { return folder_.File("text"); }

 private:
  const tessera::testing::TemporaryFolder folder_;
};

TEST(ProgramTest, TrainsAndChecksItself) {
  for (const char* arguments :
       {"", "--mesh dp=3 --strategy fsdp --microbatches 1",
        "--mesh dp=2 --strategy ddp --zero-grad fill",
        "--mesh dp_outer=1,dp_inner=1", "--streams worker",
        "--strategy zero1 --microbatches 2", "--mesh dp=3 --strategy zero2",
        "--strategy hfsdp --zero-grad fill",
        "--mesh a=1,b=2,c=2 --strategy hfsdp",
        "--placements 'param=[R,Flat] grad=[P,Flat] optim=[Flat,Flat]'",
        "--placements 'param=[R,R] grad=[P,Flat] optim=[Flat,Flat]'",
        "--optimizer adamw --dtype bf16",
        "--optimizer muon --strategy hfsdp --streams worker",
        "--optimizer muon --dtype bf16 --mesh dp=2 --strategy fsdp"}) {
    SCOPED_TRACE(arguments);
    const ProgramResult result = RunCharLm(std::string(kTiny) + arguments);
    EXPECT_EQ(result.exit_status, 0) << result.output;
    EXPECT_THAT(result.output,
                AllOf(HasSubstr("oracle: bitwise equal"),
                      HasSubstr("all checks passed"), Not(HasSubstr("\r"))));
  }
}

// Sums in another order than the oracle's.
TEST(ProgramTest, ChecksItselfWithinATolerance) {
  for (const char* arguments :
       {"--clip 0.5", "--mesh dp_outer=2,dp_inner=2,tp=2",
        "--mesh tp=2,dp=2 --strategy fsdp --optimizer muon --dtype bf16 "
        "--clip 1 --chunk-bytes 100"}) {
    SCOPED_TRACE(arguments);
    const ProgramResult result = RunCharLm(std::string(kTiny) + arguments);
    EXPECT_EQ(result.exit_status, 0) << result.output;
    EXPECT_THAT(result.output, HasSubstr("all checks passed"));
  }
}

TEST(ProgramTest, ShowsTheNormOfEachStep) {
  EXPECT_THAT(RunCharLm(kTiny).output,
              AllOf(ContainsRegex("step    2  loss [0-9.]+  norm [0-9.]+ "),
                    ContainsRegex("difference +norm\n +0  .* [0-9.]+\n")));
}

TEST(ProgramTest, ShowsWhatTheRunConsistsOf) {
  const ProgramResult result = RunCharLm(std::string(kTiny) + "--no-reference");
  EXPECT_EQ(result.exit_status, 0) << result.output;
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("mesh: dp_outer=2,dp_inner=2"),
                    HasSubstr("-AR(dp_outer)->"),
                    HasSubstr("unit block1  param=[R, Flat]"),
                    HasSubstr("padding"), HasSubstr("step    2  loss"),
                    ContainsRegex("\ndp_outer +all_reduce"),
                    HasSubstr("main_grad"), Not(HasSubstr("oracle"))));
}

TEST(ProgramTest, HoldsMemoryAndTrafficAgainstAnotherStrategy) {
  const ProgramResult result = RunCharLm(std::string(kTiny) + "--no-reference");
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("== hsdp against hfsdp =="),
                    // Reduced in parts and gathered again, not as a whole.
                    ContainsRegex("dp_outer all_gather +0 +[1-9]"),
                    ContainsRegex("dp_outer all_reduce +[1-9][0-9]* +0\n"),
                    ContainsRegex("dp_outer reduce_scatter +0 +[1-9]")));
  const ProgramResult ddp =
      RunCharLm(std::string(kTiny) + "--no-reference --against ddp");
  EXPECT_THAT(ddp.output, HasSubstr("== hsdp against ddp =="));
  for (const char* arguments : {"--against none", "--strategy hfsdp"}) {
    EXPECT_THAT(
        RunCharLm(absl::StrCat(kTiny, "--no-reference ", arguments)).output,
        AllOf(HasSubstr("all checks passed"), Not(HasSubstr("against"))));
  }
}

// Of every rank, each stream with what it did in the last step.
TEST(ProgramTest, WritesATraceOfTheLastStep) {
  for (const char* streams : {"inline", "worker"}) {
    const TemporaryFile file("");
    const ProgramResult result = RunCharLm(
        absl::StrCat(kTiny, "--no-reference --microbatches 2 --streams ",
                     streams, " --trace ", file.path()));
    ASSERT_EQ(result.exit_status, 0) << result.output;
    std::ifstream stream(file.path());
    const auto trace = nlohmann::json::parse(stream);
    struct Slice {
      double begin;
      double end;
    };
    std::map<std::pair<int, int>, std::vector<Slice>> tracks;
    std::map<std::string, int> of_rank_0;  // slices by name
    std::set<std::string> names;           // of processes and threads
    for (const auto& event : trace.at("traceEvents")) {
      if (event.at("ph") == "M") {
        names.insert(event.at("args").at("name").get<std::string>());
        continue;
      }
      ASSERT_EQ(event.at("ph"), "X");
      const double begin = event.at("ts");
      tracks[{event.at("pid"), event.at("tid")}].push_back(
          {begin, begin + event.at("dur").get<double>()});
      if (event.at("pid") == 0) ++of_rank_0[event.at("name")];
    }
    EXPECT_THAT(
        names, UnorderedElementsAre("rank 0", "rank 1", "rank 2", "rank 3",
                                    "compute", "gather", "reduce", "finalize"));
    EXPECT_EQ(tracks.size(), 16u);
    // Two microbatches of root and two blocks; the root's weights stay.
    EXPECT_EQ(of_rank_0["forward block1"], 2);
    EXPECT_EQ(of_rank_0["backward root"], 2);
    EXPECT_EQ(of_rank_0["gather block0"], 4);
    EXPECT_EQ(of_rank_0["gather root"], 2);
    EXPECT_EQ(of_rank_0["reduce block0"], 2);
    EXPECT_EQ(of_rank_0["finalize block0"], 1);
    // Each collective once: 10 gathers, 6 reductions, 3 outer ones, that of the
    // norm and that of the loss.
    EXPECT_EQ(of_rank_0["all_gather"], 10);
    EXPECT_EQ(of_rank_0["reduce_scatter"], 6);
    EXPECT_EQ(of_rank_0["all_reduce"], 5);
    for (const auto& [track, slices] : tracks) {
      // Two slices of a track nest or do not meet.
      for (size_t i = 0; i < slices.size(); ++i) {
        EXPECT_GE(slices[i].begin, 0);
        for (size_t j = 0; j < i; ++j) {
          constexpr double kNothing = 1e-6;
          const Slice& a = slices[j];
          const Slice& b = slices[i];
          EXPECT_TRUE(
              a.end <= b.begin + kNothing || b.end <= a.begin + kNothing ||
              (a.begin <= b.begin + kNothing && b.end <= a.end + kNothing) ||
              (b.begin <= a.begin + kNothing && a.end <= b.end + kNothing))
              << a.begin << " to " << a.end << ", " << b.begin << " to "
              << b.end;
        }
      }
    }
  }
}

// One line on stderr, nothing on stdout, exit status 2.
TEST(ProgramTest, ComplainsInOneLine) {
  const TemporaryFile empty("");
  const TemporaryFile brief("abc");
  const struct {
    std::string arguments;
    const char* message;
  } cases[] = {
      {"--no-such-flag", "--no-such-flag"},
      {"--steps many", "--steps"},
      {"--steps 0", "--steps"},
      {"--mesh dp=0", "dp"},
      {"--mesh nonsense", "nonsense"},
      {"--mesh dp=1000", "1000"},
      {"--mesh dp=2@4", "@4"},
      {"--strategy magic", "magic"},
      {"--against magic", "magic"},
      {"--placements 'param=[R,R]'", "'grad=[...]'"},
      {"--placements 'param=[R] grad=[P] optim=[R]'", "2 data-parallel axes"},
      {"--placements 'param=[Flat,R] grad=[P,P] optim=[R,R]'",
       "parameter placements [Flat, R] have Flat on axis 'dp_outer'"},
      {"--placements 'param=[R,R] grad=[P,P] optim=[R,R]' --strategy ddp",
       "--strategy"},
      {"--mesh tp=2", "no data-parallel axis beside 'tp'"},
      {"--optimizer adam", "--optimizer"},
      {"--dtype f16", "--dtype"},
      {"--clip 0", "--clip: norm is '0', want a finite number above 0"},
      {"--clip none", "'none'"},
      {"--chunk-bytes 0", "--chunk-bytes"},
      {"--zero-grad never", "--zero-grad"},
      {"--zero-grad 7", "--zero-grad"},
      {"--zero-grad 1", "--zero-grad"},
      {"--streams 9", "--streams"},
      {"--streams 0", "--streams"},
      {"--heads 5", "heads"},
      {"--backend nccl --mesh dp=2,tp=2", "--backend nccl has no axis 'tp'"},
      {"--backend nccl --trace trace.json", "--backend nccl has no --trace"},
      {"--lr -1", "--lr: rate is '-1', want a finite number above 0"},
      {"--lr 0", "'0'"},
      {"--lr nan", "'nan'"},
      {"--lr inf", "'inf'"},
      {"--lr 1e999", "'1e999'"},
      {"--lr 1e-999", "'1e-999'"},
      {"--lr fast", "'fast'"},
      {"--seed -1",
       "--seed: want a whole number from 0 to 18446744073709551615, found "
       "'-1'"},
      {"--seed 18446744073709551616", "'18446744073709551616'"},
      {"--seed 1.5", "'1.5'"},
      {"--steps 0x2", "want a whole number from 1 to 1000000, found '0x2'"},
      {"--width 0x2", "--width: want a whole number"},
      {"--text /no/such/file", "/no/such/file"},
      {"--text '" + empty.path() + "'", "empty"},
      {"--text '" + brief.path() + "'", "3 characters"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.arguments);
    const ProgramResult all = RunCharLm(c.arguments);
    EXPECT_EQ(all.exit_status, 2);
    EXPECT_THAT(all.output,
                AllOf(StartsWith("char_lm: "), HasSubstr(c.message)));
    EXPECT_EQ(std::count(all.output.begin(), all.output.end(), '\n'), 1)
        << all.output;
    EXPECT_EQ(RunProgram(kProgram + c.arguments + " 2>/dev/null").output, "");
  }
}

// Before anything else is done, whatever a launcher has set.
TEST(ProgramTest, SaysThatThereIsNoGpu) {
  for (const char* launcher : {"", "RANK=0 "}) {
    const ProgramResult result = RunProgram(absl::StrCat(
        "CUDA_VISIBLE_DEVICES= ", launcher, kProgram, "--backend nccl 2>&1"));
    EXPECT_EQ(result.exit_status, 1);
    EXPECT_THAT(result.output, StartsWith("char_lm: cuda: "));
    EXPECT_EQ(std::count(result.output.begin(), result.output.end(), '\n'), 1)
        << result.output;
  }
}

// On a terminal the line of one step is written over that of the step before.
TEST(ProgramTest, UpdatesOneLineOnATerminal) {
  if (RunProgram("script --version").exit_status != 0) {
    GTEST_SKIP() << "needs the program script, for a pseudo terminal";
  }
  const ProgramResult result =
      RunProgram(absl::StrCat("script -qec \"", kProgram, kTiny,
                              "--no-reference\" /dev/null </dev/null"));
  EXPECT_EQ(result.exit_status, 0) << result.output;
  EXPECT_THAT(result.output, ContainsRegex("\n\rstep +0 [^\r\n]*"
                                           "\rstep +1 [^\r\n]*"
                                           "\rstep +2 [^\r\n]*\r\n"));
}

TEST(ProgramTest, FailsWhereItsOutputCannotBeWritten) {
  for (const char* where : {">/dev/full", ">&-"}) {
    for (const char* arguments : {"--help", "--no-reference"}) {
      SCOPED_TRACE(absl::StrCat(arguments, " ", where));
      const ProgramResult result =
          RunProgram(absl::StrCat(kProgram, kTiny, arguments, " 2>&1 ", where));
      EXPECT_EQ(result.exit_status, 1);
      EXPECT_EQ(result.output, "char_lm: cannot write to stdout\n");
    }
  }
}

TEST(ProgramTest, HelpListsFlagsWithDefaults) {
  const ProgramResult result = RunCharLm("--help");
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("--mesh"), HasSubstr("dp_outer=2,dp_inner=2"),
                    HasSubstr("--no-reference"), HasSubstr("Examples:")));
}

}  // namespace
}  // namespace char_lm

// The program's errors, help and exit status.

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/temporary_folder.h"
#include "tests/tools/run_tessera.h"

namespace tessera::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kPlan[] =
    "plan --mesh x=2 --shape 4 --from '[R]' --to '[S(0)]' ";
constexpr char kShow[] = "show --mesh x=2 --shape 4 --layout '[R]' ";

// One line on stderr, nothing on stdout, exit status 2.
TEST(TesseraProgramTest, ComplainsInOneLineAndSaysWhatIsAllowed) {
  const std::string plan = kPlan;
  const std::string layout = "layout --model gpt2-124m ";
  const std::string simulate =
      "simulate --model gpt2-124m --mesh dp=4 --tokens 64 ";
  const std::string fsdp = simulate + "--strategy fsdp ";
  const struct {
    std::string arguments;
    const char* message;
  } cases[] = {
      {"",
       "tessera: want a command, plan, show, check, layout or simulate, found "
       "none"},
      {"fly",
       "tessera: want a command, plan, show, check, layout or simulate, found "
       "'fly'"},
      {"--fast", "found '--fast'"},
      {"plan", "tessera plan: --mesh is required"},
      {"check", "tessera check: FILE is required"},
      {plan + "--no-such-flag", "tessera plan: "},
      {plan + "--topology moon", "tessera plan: --topology: "},
      {plan + "--topology moon", "h100-ib"},
      {plan + "--dtype f8", "bf16"},
      {plan + "--alternatives -1",
       "want a whole number from 0 to 1000, found '-1'"},
      {plan + "--alternatives many", "tessera plan: --alternatives: "},
      {plan + "--alternatives 0x10", "found '0x10'"},
      {plan + "--max-workspace 64MB",
       "tessera plan: --max-workspace: want bytes, as 1000, 512KiB, 64MiB or "
       "2GiB, below 2^63, found '64MB'"},
      {plan + "--svg /no/such/folder/a.svg",
       "tessera plan: /no/such/folder/a.svg: want a file to write, found: No "
       "such file or directory"},
      {"plan --mesh x=0 --shape 4 --from '[R]' --to '[R]'", "--mesh: mesh: "},
      {"plan --mesh x=2 --shape 4,y --from '[R]' --to '[R]'", "--shape: "},
      {"plan --mesh x=2 --shape 4 --from '[Q]' --to '[R]'", "--from: layout: "},
      {"plan --mesh x=2 --shape 4 --from '[R]' --to '[S(1)]'",
       "--to: layout: "},
      {plan + "--to-mesh y", "--to-mesh: mesh: "},
      {"show --mesh x=2000 --shape 4 --layout '[R]'", "at most 1024 ranks"},
      {"show --mesh x=2 --shape 4 --layout '[R, R]'", "--layout: layout: "},
      {"show --mesh x=65 --shape 4 --layout '[R]' --svg /dev/null",
       "tessera show: --svg: a picture shows at most 64 ranks"},
      {"check x.json --topology moon", "tessera check: --topology: "},
      {"layout --ranks 2", "tessera layout: --model is required"},
      {"layout --model gpt2-124m", "tessera layout: --ranks is required"},
      {"layout --model gpt5 --ranks 2",
       "tessera layout: --model: model: no built-in model 'gpt5', want one of "
       "deepseek-v3, gpt-oss-120b, gpt2-124m, "},
      {"layout --model none.json --ranks 2",
       "tessera layout: --model: none.json: want a file"},
      {layout + "--ranks 0",
       "tessera layout: --ranks: want a whole number from 1 to 1000000, "
       "found '0'"},
      {layout + "--ranks 2 --granularity rows",
       "tessera layout: --granularity: dbuffer: want a granularity of "
       "'element', 'inner-row', 'row' or 'rows:K', found 'rows'"},
      {layout + "--ranks 2 --granularity rows:0",
       "tessera layout: --granularity: dbuffer: want blocks of at least one "
       "row, found 0"},
      {layout + "--ranks 2 --dtype f8", "tessera layout: --dtype: "},
      {layout + "--ranks 2 --unit head", "tessera layout: --unit requires "},
      {layout + "--ranks 2 --svg /dev/null --unit tail",
       "tessera layout: --unit: want one of embed, layer, head, found 'tail'"},
      {layout + "--ranks 2 --svg /no/such/folder/a.svg",
       "tessera layout: /no/such/folder/a.svg: want a file to write"},
      {"simulate --mesh dp=2 --tokens 1 --strategy fsdp",
       "tessera simulate: --model is required"},
      {"simulate --model gpt2-124m --tokens 1 --strategy fsdp",
       "tessera simulate: --mesh is required"},
      {"simulate --model gpt2-124m --mesh dp=2 --strategy fsdp",
       "tessera simulate: --tokens is required"},
      {"simulate --model gpt2-124m --mesh dp=4@8 --tokens 1 --strategy fsdp",
       "tessera simulate: comm: a simulated world wants a mesh of the ranks "
       "[0,4), found 'dp=4@8'"},
      {simulate,
       "tessera simulate: want --strategy or --placements, found neither"},
      {simulate + "--strategy zero4",
       "tessera simulate: --strategy: fsdp: unknown strategy 'zero4', want one "
       "of ddp, zero1, "},
      {fsdp + "--placements 'param=[R] grad=[P] optim=[R]'",
       " excludes --placements"},
      {simulate + "--placements 'param=[R]'",
       "tessera simulate: --placements: fsdp: "},
      {simulate + "--placements 'param=[S(0)] grad=[P] optim=[R]'",
       "tessera simulate: --placements: dbuffer: want a placement: R, Flat or "
       "P(op), found 'S(0)"},
      {simulate + "--placements 'param=[R] grad=[P] optim=[R] lr=1'",
       "tessera simulate: --placements: fsdp: "},
      {simulate + "--placements 'param=[R] grad=[R] optim=[R]'",
       "tessera simulate: fsdp: unit 'embed': fsdp: gradient placements [R] "},
      {simulate + "--placements 'param=[R,R] grad=[P,P] optim=[R,R]'",
       "tessera simulate: fsdp: unit 'embed': fsdp: parameter placements [R, "
       "R] "
       "have 2 entries"},
      {fsdp + "--topology moon", "tessera simulate: --topology: "},
      {fsdp + "--tokens 0", "tessera simulate: --tokens: "},
      {fsdp + "--microbatches 0",
       "tessera simulate: --microbatches: want a whole number from 1 to 50000, "
       "found '0'"},
      {fsdp + "--microbatches 50000",
       "tessera simulate: simulate: model 'gpt2-124m' has 14 units, which "
       "makes "
       "more than 50000 forwards"},
      {fsdp + "--tflops 0",
       "tessera simulate: --tflops: want a number from 0.001 to "},
      {fsdp + "--tflops nan", "found 'nan'"},
      {fsdp + "--memory-bandwidth inf", "found 'inf'"},
      {fsdp + "--active 101",
       "tessera simulate: --active: want a number from 0 to 100, found '101'"},
      {fsdp + "--trace /no/such/folder/a.json",
       "tessera simulate: /no/such/folder/a.json: want a file to write"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.arguments);
    const ProgramResult all = RunTessera(c.arguments);
    EXPECT_EQ(all.exit_status, 2);
    EXPECT_THAT(all.output, AllOf(StartsWith("tessera"), HasSubstr(c.message)));
    EXPECT_EQ(std::count(all.output.begin(), all.output.end(), '\n'), 1)
        << all.output;
    EXPECT_EQ(
        RunProgram("'" TESSERA_PROGRAM "' " + c.arguments + " 2>/dev/null")
            .output,
        "");
  }
}

TEST(TesseraProgramTest, ALeadingZeroChangesNoNumber) {
  const std::string layout =
      "layout --model gpt2-124m --granularity row --ranks ";
  const std::string plan = std::string(kPlan) + " --alternatives ";
  for (const std::string& command : {layout, plan}) {
    const ProgramResult ten = RunTessera(command + "10");
    EXPECT_EQ(ten.exit_status, 0) << ten.output;
    EXPECT_EQ(RunTessera(command + "010").output, ten.output);
  }
}

TEST(TesseraProgramTest, HelpHasExamplesThatWork) {
  for (const char* command :
       {"", "plan ", "show ", "check ", "layout ", "simulate "}) {
    SCOPED_TRACE(command);
    const ProgramResult help = RunTessera(std::string(command) + "--help");
    EXPECT_EQ(help.exit_status, 0);
    const size_t begin = help.output.find("Examples:\n");
    ASSERT_NE(begin, std::string::npos) << help.output;
    std::string examples = help.output.substr(begin + 10);
    if (std::string(command).empty() || command[0] == 'c') {
      continue;  // those of `check` need a file
    }
    // A backslash joins lines.
    const TemporaryFolder folder;
    const ProgramResult result = RunProgram(
        "cd '" + folder.File("") +
        "' && set -e\ntessera() { '" TESSERA_PROGRAM "' \"$@\"; }\n" +
        examples);
    EXPECT_EQ(result.exit_status, 0) << examples;
    EXPECT_FALSE(result.output.empty());
  }
}

TEST(TesseraProgramTest, FailsWhereItsOutputCannotBeWritten) {
  for (const char* where : {">/dev/full", ">&-"}) {
    for (const char* arguments : {"--help", kPlan, kShow}) {
      SCOPED_TRACE(absl::StrCat(arguments, " ", where));
      const ProgramResult result = RunProgram(
          absl::StrCat("'" TESSERA_PROGRAM "' ", arguments, " 2>&1 ", where));
      EXPECT_EQ(result.exit_status, 2);
      EXPECT_EQ(result.output, "tessera: cannot write to stdout\n");
    }
  }
}

}  // namespace
}  // namespace tessera::testing

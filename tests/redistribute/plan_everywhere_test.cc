// Every process makes the same plans, wherever its memory lies and however many
// threads plan at once.

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/redistribute/sampling.h"
#include "tests/run_program.h"

namespace tessera {
namespace {

using ::tessera::testing::kSampleOnly;
using ::tessera::testing::ProgramResult;
using ::tessera::testing::RunProgram;

// An environment of another size moves the stack, beside what the system moves
// by itself.
ProgramResult PrintPlans(int run) {
  const std::string environment =
      absl::StrCat("PADDING=", std::string(37 * run, 'x'));
  return RunProgram(absl::StrCat("env ", environment, " '", PLAN_TEXT_PROGRAM,
                                 "' ", 1 + run % 4));
}

TEST(PlanEverywhereTest, AllProcessesPrintTheSame) {
  constexpr int kProcesses = kSampleOnly ? 8 : 100;
  const ProgramResult first = PrintPlans(0);
  ASSERT_EQ(first.exit_status, 0);
  ASSERT_GT(first.output.size(), 10'000u);
  for (int run = 1; run < kProcesses; ++run) {
    const ProgramResult result = PrintPlans(run);
    ASSERT_EQ(result.exit_status, 0);
    ASSERT_TRUE(result.output == first.output) << "run " << run << " prints\n"
                                               << result.output.substr(0, 2000);
  }
}

}  // namespace
}  // namespace tessera

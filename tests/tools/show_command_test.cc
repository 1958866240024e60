// `tessera show` as users run it.

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/file.h"
#include "tests/status_matchers.h"
#include "tests/temporary_folder.h"
#include "tests/tools/run_tessera.h"

namespace tessera::testing {
namespace {

using ::testing::HasSubstr;

TEST(ShowCommandTest, PrintsAGridAndDrawsAPicture) {
  const TemporaryFolder folder;
  const std::string path = folder.File("layout.svg");
  const ProgramResult result = RunTessera(
      "show --mesh dp=2,tp=2 --shape 8,6 --layout '[S(0), S(1)]' --svg '" +
      path + "'");
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_EQ(result.output, &R"(
bf16[8,6] [S(0), S(1)] on mesh 'dp=2,tp=2': 4 ranks, at most 24 B each

  0   3   6
0 +---+---+
  | 0 | 1 |
4 +---+---+
  | 2 | 3 |
8 +---+---+
)"[1]);
  EXPECT_THAT(internal::ReadFile(path), IsOkAndHolds(HasSubstr(">rank 3<")));
}

}  // namespace
}  // namespace tessera::testing

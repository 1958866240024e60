#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/file.h"
#include "tests/run_program.h"
#include "tests/status_matchers.h"
#include "tests/temporary_folder.h"

// What becomes of a job whose rank 1 is killed: see mpi_lost_rank.cc.

namespace tessera::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class MpiLostRank : public ::testing::Test {
 protected:
  // Survivors leave their tables in folder_. Each process says how it has
  // exited, for mpirun does not where it goes on without some.
  ProgramResult Lose(absl::string_view flags) const {
    return RunProgram(absl::StrCat(
        "TESSERA_COMM_DUMP=", folder_.path(), " ", MPIRUN, " ", flags,
        " sh -c '", MPI_LOST_RANK, "; s=$?; echo exit $s; exit $s' 2>&1"));
  }

  const TemporaryFolder folder_;
};

TEST_F(MpiLostRank, EndsTheJobWithoutRecovery) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_NE(Lose("").exit_status, 0);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST_F(MpiLostRank, IsReportedByTheTimeoutWithRecovery) {
  const auto begin = std::chrono::steady_clock::now();
  const ProgramResult result = Lose("--enable-recovery");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  EXPECT_THAT(result.output, AllOf(HasSubstr("exit 137"),
                                   ContainsRegex("exit 3(.|\n)*exit 3")));
  EXPECT_THAT(result.output,
              HasSubstr("rank 1 did not come to all_reduce, operation 1 of "
                        "'world', within 3000 ms"));
  for (int survivor : {0, 2}) {
    EXPECT_THAT(
        internal::ReadFile(
            folder_.File(absl::StrCat("tessera-rank", survivor, ".txt"))),
        IsOkAndHolds(AllOf(
            HasSubstr("did not come to all_reduce, operation 1 of 'world'"),
            HasSubstr("done     world         0         all_reduce"),
            HasSubstr("started  world         1         all_reduce"))));
  }
}

}  // namespace
}  // namespace tessera::testing

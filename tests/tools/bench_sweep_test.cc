// A sweep over all pairs of layouts on every mesh of eight ranks: in less than
// two minutes, which is the time that the test has.

#include <cstddef>
#include <string>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/run_program.h"

namespace tessera::testing {
namespace {

TEST(TesseraBenchTest, SweepsAllPairsOnAllFactorizationsOf8) {
  const ProgramResult result =
      RunProgram("'" TESSERA_BENCH_PROGRAM
                 "' --world 8 --factorizations --all-pairs --tensors 64x64 "
                 "--json 2>&1");
  ASSERT_EQ(result.exit_status, 0);
  const auto rows = nlohmann::json::parse(result.output)["rows"];
  // Pairs of different layouts: 4 placements on one axis, two, two and three.
  EXPECT_EQ(rows.size(), size_t{4 * 3 + 2 * 16 * 15 + 64 * 63});
  for (const auto& row : rows) EXPECT_EQ(row["skipped"], "");
}

}  // namespace
}  // namespace tessera::testing

#include "tessera/sweep/report.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::Le;
using ::testing::SizeIs;

SweepRow Measured() {
  SweepRow row;
  row.mesh = "a=2,b=4";
  row.tensor = "f32[1024,1024]";
  row.from = "[P(sum), S(0)]";
  row.to = "[R, R]";
  row.plan = "[P(sum), S(0)] -AR(a)-> [R, S(0)] -AG(b)-> [R, R]";
  row.steps = {"AR(a)", "AG(b)"};
  row.launches = 2;
  row.bytes = 4194304;
  row.bytes_received = 4194304;
  row.planning_seconds = 2e-6;
  row.predicted_seconds = 40e-6;
  row.seconds = 4e-3;
  row.memcpy_seconds = 2e-3;
  row.bare_seconds = 5e-3;
  return row;
}

SweepRow Skipped(const std::string& why) {
  SweepRow row;
  row.mesh = "a=8";
  row.tensor = "f32[5]";
  row.from = "[R, R]";
  row.to = "\"R\"";
  row.skipped = why;
  return row;
}

TEST(SweepTableTest, ReadsAsDocumented) {
  SweepRow local = Measured();
  local.steps = {};
  local.bare_seconds = std::nullopt;
  EXPECT_EQ(
      SweepTable(
          {Measured(), local, Skipped("no"), Skipped("no"), Skipped("other")}),
      "from -> to   steps  bytes  plan us  pred us  time us  xcpy  xbare  "
      "algbw  busbw\n"
      "\n"
      "f32[1024,1024] on 'a=2,b=4'\n"
      "P S0 -> R R  AR AG  4 MiB     2.00     40.0     4000  2.00   0.80   "
      "1.05   1.05\n"
      "P S0 -> R R  -      4 MiB     2.00     40.0     4000  2.00      -   "
      "1.05   1.05\n"
      "\n"
      "bytes: at most written or, where addends are reduced, read by a rank; "
      "xcpy: times as long as\n"
      "a memcpy of these; xbare: as the collectives alone; algbw, busbw: as in "
      "nccl-tests, GB/s\n"
      "\n"
      "skipped 2: no\n"
      "  first f32[5] on 'a=8' [R, R] -> \"R\"\n"
      "skipped 1: other\n"
      "  f32[5] on 'a=8' [R, R] -> \"R\"\n");
  EXPECT_EQ(SweepTable({}), "");
}

TEST(SweepTableTest, FitsInto100ColumnsWithThreeAxes) {
  SweepRow row = Measured();
  row.from = "[S(0), S(0), S(0)]";
  row.to = "[S(1), S(1), S(1)]";
  row.steps = {"RS(a,b)", "A2A(c)", "AR(a)", "AG(a,b,c)"};
  row.bytes = 1023;
  row.planning_seconds = 0.09;
  row.predicted_seconds = row.seconds = 0.9;
  row.memcpy_seconds = 1e-3;
  row.bare_seconds = 0.05;
  for (const auto line : absl::StrSplit(SweepTable({row}), '\n')) {
    EXPECT_THAT(line, SizeIs(Le(100u))) << line;
  }
}

TEST(SweepCsvTest, HasALineForEachRow) {
  const std::vector<std::string> lines =
      absl::StrSplit(SweepCsv({Measured(), Skipped("a, \"b\"")}), '\n');
  EXPECT_THAT(
      lines,
      ElementsAre(
          "mesh,tensor,from,to,skipped,plan,steps,launches,bytes,"
          "bytes_received,planning_us,predicted_us,time_us,memcpy_us,bare_us,"
          "memcpy_ratio,bare_ratio,algbw_gbps,busbw_gbps",
          "\"a=2,b=4\",\"f32[1024,1024]\",\"[P(sum), S(0)]\",\"[R, R]\",,"
          "\"[P(sum), S(0)] -AR(a)-> [R, S(0)] -AG(b)-> [R, R]\",AR(a) AG(b),2,"
          "4194304,4194304,2.0,40.0,4000.0,2000.0,5000.0,2.0,0.8,1.048576,"
          "1.048576",
          "a=8,f32[5],\"[R, R]\",\"\"\"R\"\"\",\"a, \"\"b\"\"\",,,,,,,,,,,,,,",
          ""));
}

TEST(SweepJsonTest, HasAnObjectForEachRow) {
  const auto json =
      nlohmann::json::parse(SweepJson({Measured(), Skipped("why")}));
  EXPECT_EQ(json["version"], 1);
  ASSERT_THAT(json["rows"], SizeIs(2));
  EXPECT_EQ(json["rows"][0]["steps"], "AR(a) AG(b)");
  EXPECT_EQ(json["rows"][0]["memcpy_ratio"], 2.0);
  EXPECT_EQ(json["rows"][0]["busbw_gbps"], 4194304 / 4e-3 / 1e9);
  EXPECT_EQ(json["rows"][1]["skipped"], "why");
  EXPECT_TRUE(json["rows"][1]["time_us"].is_null());
  EXPECT_TRUE(json["rows"][1]["bytes"].is_null());
}

}  // namespace
}  // namespace tessera::testing

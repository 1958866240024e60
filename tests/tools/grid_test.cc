#include "tools/tessera/grid.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/status_matchers.h"

namespace tessera::tools {
namespace {

using ::tessera::testing::IsOkAndHolds;
using ::tessera::testing::StatusIs;
using ::testing::HasSubstr;

absl::StatusOr<std::string> Grid(const std::string& mesh,
                                 const std::string& layout) {
  return DrawGrid(
      Layout::Parse(layout, DeviceMesh::Parse(mesh).value()).value());
}

TEST(GridTest, ShowsPiecesAndWhereTheyAreCut) {
  EXPECT_THAT(Grid("dp=2,tp=2", "f32[8,6] [S(0), S(1)]"), IsOkAndHolds(&R"(
  0   3   6
0 +---+---+
  | 0 | 1 |
4 +---+---+
  | 2 | 3 |
8 +---+---+
)"[1]));
}

TEST(GridTest, ShowsReplicasAndAddends) {
  EXPECT_THAT(Grid("x=2,y=2", "f32[1000] [P, S(0)]"), IsOkAndHolds(&R"(
0       500     1000
+-------+-------+
| 0 + 2 | 1 + 3 |
+-------+-------+
)"[1]));
  EXPECT_THAT(Grid("x=2,y=4", "f32[3] [P(max), R]"), IsOkAndHolds(&R"(
0             3
+-------------+
| 0-3 max 4-7 |
+-------------+
)"[1]));
  EXPECT_THAT(Grid("x=2,y=2", "f32[] [R, P]"), IsOkAndHolds(&R"(
+-----------+
| 0,2 + 1,3 |
+-----------+
)"[1]));
}

TEST(GridTest, ShowsWhoHoldsNothing) {
  EXPECT_THAT(Grid("x=4", "f32[2] [S(0)]"), IsOkAndHolds(&R"(
0   1   2
+---+---+
| 0 | 1 |
+---+---+
holding nothing: 2,3
)"[1]));
  EXPECT_THAT(Grid("x=3", "f32[0,2] [S(0)]"), IsOkAndHolds(&R"(
  0   2
0 +---+
  |   |
0 +---+
holding nothing: 0-2
)"[1]));
}

TEST(GridTest, ShowsLeadingDimsPieceByPiece) {
  EXPECT_THAT(Grid("x=2,y=2", "f32[4,4,4] [S(0), S(2)]"), IsOkAndHolds(&R"(
dim 0 in [0,2):
  0   2   4
0 +---+---+
  | 0 | 1 |
4 +---+---+

dim 0 in [2,4):
  0   2   4
0 +---+---+
  | 2 | 3 |
4 +---+---+
)"[1]));
}

TEST(GridTest, ShowsRaggedPiecesInLines) {
  EXPECT_THAT(Grid("x=2,y=3", "f32[5,3] [S(1), Ragged(0,3,3,10)]"),
              IsOkAndHolds(&R"(
  0           2          3
0 +-----------+----------+
  | 0: [0,3)  | 3: [0,3) |
  | 2: [3,10) | 5: [3,5) |
5 +-----------+----------+
holding nothing: 1,4
)"[1]));
}

TEST(GridTest, TakesRanksFromTheMesh) {
  EXPECT_THAT(Grid("x=2:4@3", "f32[2] [S(0)]"), IsOkAndHolds(&R"(
0   1   2
+---+---+
| 3 | 7 |
+---+---+
)"[1]));
}

TEST(GridTest, RejectsMeshesThatAreTooLarge) {
  EXPECT_OK(Grid("x=1024", "f32[4] [S(0)]"));
  EXPECT_THAT(Grid("x=1025", "f32[4] [S(0)]"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("at most 1024 ranks, found 1025")));
}

}  // namespace
}  // namespace tessera::tools

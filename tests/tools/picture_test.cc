#include "tools/tessera/picture.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/mesh/topology.h"
#include "tessera/redistribute/planner.h"
#include "tests/status_matchers.h"

namespace tessera::tools {
namespace {

using ::tessera::testing::StatusIs;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

Layout ParseLayout(const std::string& mesh, const std::string& text) {
  return Layout::Parse(text, DeviceMesh::Parse(mesh).value()).value();
}

int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) {
    ++count;
  }
  return count;
}

constexpr char kFirstColour[] = "fill=\"#4e79a7\"";   // of rank 0
constexpr char kSecondColour[] = "fill=\"#f28e2b\"";  // of rank 1

TEST(PictureTest, IsADocumentWithEveryRank) {
  ASSERT_OK_AND_ASSIGN(
      const std::string svg,
      DrawLayout(ParseLayout("dp=2,tp=2", "bf16[8,6] [S(0), S(1)]")));
  EXPECT_THAT(svg, AllOf(StartsWith("<svg xmlns="), EndsWith("</svg>\n"),
                         HasSubstr(">bf16[8,6] on dp=2,tp=2</text>"),
                         HasSubstr(">[S(0), S(1)]</text>"),
                         HasSubstr(">dp 1</text>"), HasSubstr(">tp 1</text>")));
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(Count(svg, absl::StrCat(">rank ", rank, "</text>")), 1);
  }
}

// The corners of what is filled with a colour, as SVG has them.
std::vector<std::string> FilledWith(const std::string& svg,
                                    const std::string& fill) {
  std::vector<std::string> polygons;
  for (size_t at = svg.find(fill); at != std::string::npos;
       at = svg.find(fill, at + 1)) {
    const size_t line = svg.rfind("points=\"", at);
    polygons.push_back(
        svg.substr(line + 8, svg.find('"', line + 8) - line - 8));
  }
  return polygons;
}

// One outline of the whole for each rank begins where its piece does.
TEST(PictureTest, FillsWhatARankHolds) {
  const std::string whole =
      DrawLayout(ParseLayout("x=2", "f32[8,8] [R]")).value();
  ASSERT_EQ(FilledWith(whole, kFirstColour).size(), 1u);
  const std::string left =
      DrawLayout(ParseLayout("x=2", "f32[8,8] [S(1)]")).value();
  // 56 pixels a side: the first four columns, then the others.
  const std::string first = FilledWith(left, kFirstColour).at(0);
  EXPECT_NE(first, FilledWith(whole, kFirstColour)[0]);
  double x1, y1, x2, y2, x3, y3;
  ASSERT_EQ(std::sscanf(first.c_str(), "%lf,%lf %lf,%lf %lf,%lf", &x1, &y1, &x2,
                        &y2, &x3, &y3),
            6);
  EXPECT_DOUBLE_EQ(x2 - x1, 28);
  EXPECT_DOUBLE_EQ(y3 - y2, 56);
  double x, y;
  ASSERT_EQ(std::sscanf(FilledWith(left, kSecondColour).at(0).c_str(),
                        "%lf,%lf", &x, &y),
            2);
  EXPECT_DOUBLE_EQ(x - x1, 28);
}

TEST(PictureTest, StripesWhatIsPartial) {
  const std::string stripes = "fill=\"url(#stripes)\"";
  EXPECT_EQ(
      Count(DrawLayout(ParseLayout("x=2", "f32[8,8] [P]")).value(), stripes),
      2);
  EXPECT_THAT(DrawLayout(ParseLayout("x=2", "f32[8,8] [R]")).value(),
              AllOf(Not(HasSubstr(stripes)), Not(HasSubstr("striped"))));
}

TEST(PictureTest, ShowsRaggedPiecesAsBoxes) {
  // Rank 1 holds the end of a row, a row and the beginning of one.
  const std::string svg =
      DrawLayout(ParseLayout("x=2", "f32[4,3] [Ragged(0,2,12)]")).value();
  EXPECT_EQ(FilledWith(svg, kSecondColour).size(), 2u);
  EXPECT_EQ(FilledWith(svg, kFirstColour).size(), 1u);
}

TEST(PictureTest, DrawsUpToThreeAxesAndDims) {
  for (const char* meta : {"f32[]", "f32[5]", "f32[5,3]", "f32[5,3,2]",
                           "f32[0,3]", "f32[100000,1,1]"}) {
    for (const char* mesh :
         {"", "x=3", "x=2,y=3", "x=2,y=2,z=2", "w=2,x=1,y=2,z=2"}) {
      const Layout layout =
          Layout::Create(TensorMeta::Parse(meta).value(),
                         DeviceMesh::Parse(mesh).value(),
                         Placements(DeviceMesh::Parse(mesh)->num_axes()))
              .value();
      ASSERT_OK_AND_ASSIGN(const std::string svg, DrawLayout(layout));
      EXPECT_THAT(svg, AllOf(Not(HasSubstr("nan")), Not(HasSubstr("inf"))));
      EXPECT_EQ(Count(svg, ">rank "), layout.mesh().size());
    }
  }
}

TEST(PictureTest, ShowsEveryStepOfAPlan) {
  const Layout from = ParseLayout("dp=2,tp=4", "bf16[4096,14336] [P, S(0)]");
  const Plan plan = MakePlan(from, from.With("[R, S(1)]").value(),
                             Topology::Preset("h100-ib").value())
                        .value();
  ASSERT_OK_AND_ASSIGN(const std::string svg, DrawPlan(plan));
  EXPECT_THAT(svg,
              HasSubstr(absl::StrCat(">", from.PlacementsToString(), "<")));
  for (const Step& step : plan.steps()) {
    EXPECT_THAT(svg, AllOf(HasSubstr(absl::StrCat(">", step.Name(), "<")),
                           HasSubstr(absl::StrCat(
                               ">", step.after.PlacementsToString(), "<"))));
  }
  EXPECT_EQ(Count(svg, ">rank 7<"), static_cast<int>(plan.steps().size()) + 1);
}

TEST(PictureTest, RejectsWhatItCannotShow) {
  EXPECT_THAT(DrawLayout(ParseLayout("x=2", "f32[2,2,2,2] [R]")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "--svg: a picture shows tensors of at most 3 dims, "
                       "found f32[2,2,2,2]"));
  EXPECT_OK(DrawLayout(ParseLayout("x=64", "f32[2] [R]")));
  EXPECT_THAT(DrawLayout(ParseLayout("x=65", "f32[2] [R]")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "--svg: a picture shows at most 64 ranks, found 65 on "
                       "mesh 'x=65'"));
}

}  // namespace
}  // namespace tessera::tools

#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/placement/layout.h"
#include "tests/hostile_text.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::HostileTexts;
using ::tessera::testing::IsOkAndHolds;
using ::tessera::testing::StatusIs;
using ::testing::HasSubstr;

struct Text {
  const char* layout;
  const char* mesh;
};

// Canonical: each is what ToString gives.
constexpr Text kTexts[] = {
    {"f32[] []", ""},
    {"f32[] [R]", "a=2"},
    {"i64[0,4] [S(1)]", "a=2"},
    {"bf16[4096,14336] [P(sum), S(0)]", "dp=2,tp=4"},
    {"f32[4] [P(avg), P(sum), P(avg)]", "a=2,b=2,c=2"},
    {"f32[4] [P(min), R, P(min)]", "a=2,b=2,c=2"},
    {"f32[4] [P(max)]", "a=2"},
    {"i32[4] [P(product)]", "a=2"},
    {"f32[18] [S(0)[1], S(0)[0]]", "a=4,b=2"},
    {"f32[17,5] [S(0)[1], S(1), S(0)[0]]", "a=2,b=2,c=2"},
    {"f32[8,8] [S(0)[1], S(1)[1], S(0)[0], S(1)[0]]", "a=2,b=2,c=2,d=2"},
    {"f32[8] [S(0)[1], S(0)[2], S(0)[0]]", "a=2:4,b=2:1,c=2:2@5"},
    {"f32[10] [Ragged(0,3,7,10)[0]]", "a=3"},
    {"f32[10] [Ragged(-6+4)[0]]", "a=4"},
    {"f32[9,5] [Ragged(0,3,7,10,15)[1], S(0), Ragged(0,3,7,10,15)[0]]",
     "a=2,b=3,c=2"},
    {"f32[2,4] [Ragged(-3+3)[0], P(sum), Ragged(-3+3)[1]]", "a=2,b=3,c=2"},
};

TEST(LayoutTextTest, ParsesBack) {
  for (const Text& text : kTexts) {
    ASSERT_OK_AND_ASSIGN(const DeviceMesh mesh, DeviceMesh::Parse(text.mesh));
    ASSERT_OK_AND_ASSIGN(const Layout layout, Layout::Parse(text.layout, mesh));
    EXPECT_EQ(layout.ToString(), text.layout);
    EXPECT_EQ(layout.meta().ToString() + " " + layout.PlacementsToString(),
              text.layout);
  }
}

TEST(LayoutTextTest, HasShorterAndLooserSpellings) {
  const DeviceMesh mesh = DeviceMesh::Parse("a=2,b=2").value();
  const auto canonical = [&mesh](absl::string_view text) {
    return Layout::Parse(text, mesh).value().ToString();
  };
  EXPECT_EQ(canonical("f32[8,4] [P,S(-1)]"), "f32[8,4] [P(sum), S(1)]");
  EXPECT_EQ(canonical(" f32 [8, 4][ R,\tS( 0 ) ] "), "f32[8,4] [R, S(0)]");
  EXPECT_EQ(canonical("f32[8,4] [S(0)[0], S(-2)[1]]"), "f32[8,4] [S(0), S(0)]");
  EXPECT_EQ(canonical("f32[8,4] [S(-2)[1], S(0)[0]]"),
            "f32[8,4] [S(0)[1], S(0)[0]]");
  EXPECT_EQ(canonical("f32[8,4] [S(1)[0], R]"), "f32[8,4] [S(1), R]");
  EXPECT_EQ(canonical("f32[8,4] [Ragged(0+16), R]"),
            "f32[8,4] [Ragged(0+16)[0], R]");
}

TEST(LayoutTextTest, ErrorsQuoteWhatDoesNotParse) {
  const DeviceMesh mesh = DeviceMesh::Parse("a=2,b=2").value();
  const auto expect_error = [&mesh](absl::string_view text,
                                    const std::string& part) {
    EXPECT_THAT(Layout::Parse(text, mesh),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(part)));
  };
  expect_error("f32[8] [S(0), Q]",
               "layout: want a placement: R, S(dim), P(op) or Ragged(cut), "
               "found 'Q]' in ' [S(0), Q]'");
  expect_error("f31[8] [R, R]", "found 'f31'");
  expect_error("f32[8,] [R, R]", "found ']' in '[8,]'");
  expect_error("f32[8] R, R", "want '[' and placements");
  expect_error("f32[8] [R, R", "found the end");
  expect_error("f32[8] [R, R]]", "found ']'");
  expect_error("f32[8] [R R]", "want ',' or ']'");
  expect_error("f32[8] [S, R]", "'(' behind S");
  expect_error("f32[8] [S(), R]", "a tensor dim");
  expect_error("f32[8] [S(4294967296), R]", "a tensor dim");
  expect_error("f32[8] [S(1), R]", "shard dim 1 along axis 'a'");
  expect_error("f32[8] [S(0, R]", "')' behind a tensor dim");
  expect_error("f32[8] [S(0)[, R]", "a position");
  expect_error("f32[8] [S(0)[0, R]", "']' behind a position");
  expect_error("f32[8] [P(mean), R]", "one of sum, avg");
  expect_error("f32[8] [P(sum, R]", "')' behind a reduction");
  expect_error("f32[8] [P(summer), R]", "')' behind a reduction");
  expect_error("f32[8] [R[0], R]", "want ',' or ']'");
  expect_error("f32[8] [P[0], R]", "want ',' or ']'");
  expect_error("f32[8] [Ragged, R]", "'(' behind Ragged");
  expect_error("f32[8] [Ragged(), R]", "an int64 bound");
  expect_error("f32[8] [Ragged(8), R]", "1 bounds");
  expect_error("f32[8] [Ragged(0,4,x), R]", "an int64 bound");
  expect_error("f32[8] [Ragged(0+), R]", "an int64 step");
  expect_error("f32[8] [Ragged(0+4+4), R]", "')' behind a ragged cut");
  expect_error("f32[8] [Ragged(0,4+4), R]", "')' behind a ragged cut");
  expect_error("f32[8] [Ragged(0+99999999999999999999), R]", "an int64 step");
}

TEST(LayoutTextTest, RejectsOrdersWithGapsOrRepetitions) {
  const DeviceMesh mesh = DeviceMesh::Parse("a=2,b=2").value();
  for (const char* placements :
       {"[S(0)[0], S(0)[0]]", "[S(0)[1], S(0)[1]]", "[S(0)[0], S(0)[2]]",
        "[S(0)[-1], S(0)[0]]", "[S(0)[1], S(0)]", "[S(0), S(0)[0]]",
        "[S(0)[1], R]", "[S(0)[2147483647], S(0)[0]]"}) {
    EXPECT_THAT(
        Layout::Parse(std::string("f32[8] ") + placements, mesh),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("dim 0")))
        << placements;
  }
}

TEST(LayoutTextTest, SurvivesHostileText) {
  constexpr uint32_t kSeed = 4;
  SCOPED_TRACE(kSeed);
  for (const Text& valid : kTexts) {
    ASSERT_OK_AND_ASSIGN(const DeviceMesh mesh, DeviceMesh::Parse(valid.mesh));
    for (const std::string& text : HostileTexts({valid.layout}, kSeed, 1000)) {
      const absl::StatusOr<Layout> layout = Layout::Parse(text, mesh);
      if (layout.ok()) {
        EXPECT_THAT(Layout::Parse(layout->ToString(), mesh),
                    IsOkAndHolds(*layout));
      } else {
        EXPECT_THAT(layout, StatusIs(absl::StatusCode::kInvalidArgument));
      }
    }
  }
}

}  // namespace
}  // namespace tessera

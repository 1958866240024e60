#include "tools/tessera/layout_picture.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/status_matchers.h"

namespace tessera::tools {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

FlatLayout LayoutOf(
    const std::vector<std::pair<std::string, std::string>>& names_and_shapes,
    int64_t ranks) {
  std::vector<FlatLayout::Tensor> tensors;
  for (const auto& [name, shape] : names_and_shapes) {
    tensors.push_back({name, Shape::Parse(shape).value()});
  }
  return FlatLayout::Create(tensors, ranks, DType::kF32).value();
}

int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) {
    ++count;
  }
  return count;
}

constexpr char kFirstColour[] = "fill=\"#4e79a7\"";   // of the largest
constexpr char kSecondColour[] = "fill=\"#f28e2b\"";  // of the next
constexpr char kStriped[] = "fill=\"url(#stripes)\"";

// Each colour once more in the legend.
TEST(LayoutPictureTest, ShowsPartsWithTheirTensorsAndPadding) {
  // Parts of 96: 48 of w and 48 of v; 80 of v, 16 of padding.
  const std::string svg =
      DrawFlatLayout("a heading", LayoutOf({{"w", "[48]"}, {"v", "[128]"}}, 2));
  EXPECT_THAT(svg,
              AllOf(StartsWith("<svg xmlns="), EndsWith("</svg>\n"),
                    HasSubstr(">a heading<"), HasSubstr(">rank 0<"),
                    HasSubstr(">rank 1<"), HasSubstr(">padding<"),
                    HasSubstr(">176 elements, 96 per rank, padding 9.09% "
                              "(bound 9.09%)<"),
                    HasSubstr(">[128], 72.73%<"), HasSubstr(">[48], 27.27%<")));
  EXPECT_EQ(Count(svg, kFirstColour), 2 + 1);
  EXPECT_EQ(Count(svg, kSecondColour), 1 + 1);
  EXPECT_EQ(Count(svg, kStriped), 1 + 1);
  // 900 pixels a part, from 84 on: v is behind w, the padding behind v.
  EXPECT_THAT(svg, AllOf(HasSubstr("points=\"84,66 534,66 "),
                         HasSubstr("points=\"534,66 984,66 "),
                         HasSubstr("points=\"84,94 834,94 "),
                         HasSubstr("points=\"834,94 984,94 ")));
}

TEST(LayoutPictureTest, HasOneColourForTensorsThatDifferInNumbers) {
  const std::string svg =
      DrawFlatLayout("", LayoutOf({{"experts.0.w1", "[64]"},
                                   {"experts.0.w2", "[32]"},
                                   {"experts.10.w1", "[64]"},
                                   {"experts.10.w2", "[32]"}},
                                  1));
  EXPECT_THAT(svg, AllOf(HasSubstr(">experts.*.w1<"), HasSubstr(">2 x [64], "),
                         HasSubstr(">experts.*.w2<"), HasSubstr(">2 x [32], "),
                         Not(HasSubstr("experts.10"))));
  EXPECT_EQ(Count(svg, kFirstColour), 2 + 1);
  EXPECT_EQ(Count(svg, kSecondColour), 2 + 1);
}

TEST(LayoutPictureTest, SaysWhichPartsAreLeftOut) {
  const FlatLayout all = LayoutOf({{"w", "[64,32]"}}, 64);
  EXPECT_THAT(DrawFlatLayout("", all),
              AllOf(HasSubstr(">rank 63<"), Not(HasSubstr("not shown"))));
  const FlatLayout many = LayoutOf({{"w", "[1000,32]"}}, 1000);
  const std::string svg = DrawFlatLayout("", many);
  EXPECT_THAT(svg, AllOf(HasSubstr(">rank 0<"), HasSubstr(">rank 31<"),
                         HasSubstr(">ranks 32 to 967 are not shown<"),
                         HasSubstr(">rank 968<"), HasSubstr(">rank 999<")));
  EXPECT_EQ(Count(svg, kFirstColour), 64 + 1);
}

TEST(LayoutPictureTest, HasALegendOfTheLargestTensorsOnly) {
  std::vector<std::pair<std::string, std::string>> tensors;
  for (int i = 0; i < 30; ++i) {
    tensors.emplace_back(absl::StrCat("p", i),
                         absl::StrCat("[", 32 * (30 - i), "]"));
  }
  EXPECT_THAT(DrawFlatLayout("", LayoutOf(tensors, 2)),
              AllOf(HasSubstr(">p23<"), Not(HasSubstr(">p24<")),
                    HasSubstr(">6 smaller ones<")));
}

// It stays a document.
TEST(LayoutPictureTest, EscapesNames) {
  EXPECT_THAT(DrawFlatLayout("a<b", LayoutOf({{"x&<y", "[8]"}}, 1)),
              AllOf(HasSubstr(">a&lt;b<"), HasSubstr(">x&amp;&lt;y<")));
}

}  // namespace
}  // namespace tessera::tools

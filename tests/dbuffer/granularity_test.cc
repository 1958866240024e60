#include "tessera/dbuffer/granularity.h"

#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

int64_t ElementsOf(absl::string_view granularity, absl::string_view shape) {
  return Granularity::Parse(granularity)->ElementsOf(*Shape::Parse(shape));
}

int FirstWholeDim(absl::string_view granularity, absl::string_view shape) {
  return Granularity::Parse(granularity)->FirstWholeDim(*Shape::Parse(shape));
}

TEST(GranularityTest, SaysWhatAGranuleIs) {
  EXPECT_EQ(ElementsOf("element", "[4,5,6]"), 1);
  EXPECT_EQ(ElementsOf("inner-row", "[4,5,6]"), 6);
  EXPECT_EQ(ElementsOf("row", "[4,5,6]"), 30);
  EXPECT_EQ(ElementsOf("rows:3", "[4,5,6]"), 90);
  EXPECT_EQ(ElementsOf("rows:4", "[4,5,6]"), 120);
  EXPECT_EQ(ElementsOf("rows:5", "[4,5,6]"), 120) << "no more than there is";

  EXPECT_EQ(ElementsOf("inner-row", "[7]"), 1);
  EXPECT_EQ(ElementsOf("row", "[7]"), 1);
  EXPECT_EQ(ElementsOf("rows:2", "[7]"), 2);
  for (const char* any : {"element", "inner-row", "row", "rows:2"}) {
    EXPECT_EQ(ElementsOf(any, "[]"), 1) << any;
  }
  const std::string most =
      absl::StrCat("rows:", std::numeric_limits<int64_t>::max());
  EXPECT_EQ(ElementsOf(most, "[4,5]"), 20);
}

TEST(GranularityTest, SaysWhichDimsAGranuleSpans) {
  EXPECT_EQ(FirstWholeDim("element", "[4,5,6]"), 3);
  EXPECT_EQ(FirstWholeDim("inner-row", "[4,5,6]"), 2);
  EXPECT_EQ(FirstWholeDim("row", "[4,5,6]"), 1);
  EXPECT_EQ(FirstWholeDim("rows:8", "[4,5,6]"), 1);
  EXPECT_EQ(FirstWholeDim("inner-row", "[4]"), 1);
  EXPECT_EQ(FirstWholeDim("row", "[4]"), 1);
  EXPECT_EQ(FirstWholeDim("row", "[]"), 0);
  EXPECT_EQ(FirstWholeDim("inner-row", "[]"), 0);
}

TEST(GranularityTest, ReadsWhatItPrints) {
  for (const char* text : {"element", "inner-row", "row", "rows:128"}) {
    ASSERT_OK_AND_ASSIGN(const Granularity parsed, Granularity::Parse(text));
    EXPECT_EQ(parsed.ToString(), text);
  }
  EXPECT_EQ(Granularity(), Granularity::Element());
  EXPECT_EQ(*Granularity::Parse("rows:1"), Granularity::Row());
  EXPECT_NE(*Granularity::Rows(2), Granularity::Row());
}

TEST(GranularityTest, RejectsWhatItDoesNotKnow) {
  for (const char* text :
       {"", "Row", "row ", "rows", "rows:", "rows:x", "rows:1.5", "column"}) {
    EXPECT_THAT(Granularity::Parse(text),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("'rows:K'"),
                               HasSubstr(absl::StrCat("'", text, "'")))));
  }
  EXPECT_THAT(Granularity::Parse("rows:0"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("at least one row, found 0")));
  EXPECT_THAT(
      Granularity::Rows(-3),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found -3")));
}

}  // namespace
}  // namespace tessera

#include "tessera/dbuffer/buffer_placement.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(BufferPlacementTest, TextGoesRound) {
  for (absl::string_view text : {"[]", "[R]", "[Flat, R]", "[P(sum), Flat, R]",
                                 "[P(avg), P(min), P(max), P(product)]"}) {
    ASSERT_OK_AND_ASSIGN(const BufferPlacements placements,
                         ParseBufferPlacements(text));
    EXPECT_EQ(BufferPlacementsToString(placements), text);
  }
}

TEST(BufferPlacementTest, ParsesShortFormsAndWhiteSpace) {
  ASSERT_OK_AND_ASSIGN(const BufferPlacements placements,
                       ParseBufferPlacements(" [ P,Flat , R ] "));
  EXPECT_THAT(placements, ElementsAre(BufferPlacement::Partial(ReduceOp::kSum),
                                      BufferPlacement::Flat(),
                                      BufferPlacement::Replicate()));
}

TEST(BufferPlacementTest, QuotesWhatDoesNotParse) {
  const struct {
    absl::string_view text;
    absl::string_view quoted;
  } kCases[] = {
      {"R", "'R'"},          {"[R", "'[R'"},          {"[R Flat]", "'Flat]'"},
      {"[S(0)]", "'S(0)]'"}, {"[P(mul)]", "'mul)]'"}, {"[P(sum]", "']'"},
      {"[R] R", "'R'"},      {"[,]", "',]'"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.text);
    EXPECT_THAT(
        ParseBufferPlacements(c.text),
        StatusIs(
            absl::StatusCode::kInvalidArgument,
            AllOf(HasSubstr("dbuffer: "),
                  HasSubstr(std::string(c.quoted.data(), c.quoted.size())))));
  }
}

TEST(BufferPlacementTest, EqualityCountsTheOp) {
  EXPECT_EQ(BufferPlacement(), BufferPlacement::Replicate());
  EXPECT_NE(BufferPlacement::Partial(ReduceOp::kSum),
            BufferPlacement::Partial(ReduceOp::kAvg));
  EXPECT_NE(BufferPlacement::Flat(), BufferPlacement::Replicate());
}

}  // namespace
}  // namespace tessera

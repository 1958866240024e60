#include "tessera/tensor/index.h"

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/hash/hash_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::StatusIs;
using ::testing::HasSubstr;

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

TEST(IntervalTest, IsAValue) {
  EXPECT_EQ((Interval{2, 5}.size()), 3);
  EXPECT_TRUE((Interval{2, 2}.empty()));
  EXPECT_NE((Interval{2, 2}), (Interval{3, 3}));
  EXPECT_EQ((Interval{2, 5}.ToString()), "[2,5)");
  EXPECT_TRUE(absl::VerifyTypeImplementsAbslHashCorrectly(
      {Interval{0, 0}, Interval{0, 1}, Interval{1, 1}, Interval{2, 5}}));
}

TEST(IntersectTest, HoldsExactlyWhatBothHold) {
  constexpr int kEnd = 5;
  for (int a = 0; a <= kEnd; ++a) {
    for (int b = a; b <= kEnd; ++b) {
      for (int c = 0; c <= kEnd; ++c) {
        for (int d = c; d <= kEnd; ++d) {
          const Interval both = Intersect({a, b}, {c, d});
          ASSERT_LE(both.begin, both.end);
          for (int i = 0; i <= kEnd; ++i) {
            EXPECT_EQ(both.begin <= i && i < both.end,
                      a <= i && i < b && c <= i && i < d);
          }
        }
      }
    }
  }
}

// Element i lies in piece i / ceil(extent / parts).
TEST(CeilSplitTest, CutsByTheShardRule) {
  for (int64_t extent = 0; extent <= 20; ++extent) {
    for (int64_t parts = 1; parts <= 23; ++parts) {
      std::vector<std::vector<int64_t>> wanted(parts);
      const int64_t chunk = (extent + parts - 1) / parts;
      for (int64_t i = 0; i < extent; ++i) wanted[i / chunk].push_back(i);
      for (int64_t index = 0; index < parts; ++index) {
        const Interval piece = CeilSplit(extent, parts, index);
        ASSERT_EQ(piece.size(), static_cast<int64_t>(wanted[index].size()))
            << extent << " over " << parts << " at " << index;
        EXPECT_EQ(piece.begin, piece.empty() ? extent : wanted[index].front());
      }
    }
  }
}

TEST(CeilSplitTest, DoesNotOverflowAtTheLimit) {
  EXPECT_EQ(CeilSplit(kMax, kMax, kMax - 1), (Interval{kMax - 1, kMax}));
  EXPECT_EQ(CeilSplit(kMax, 2, 1), (Interval{int64_t{1} << 62, kMax}));
  EXPECT_EQ(CeilSplit(kMax - 1, 3, 2).end, kMax - 1);
  EXPECT_EQ(CeilSplit(3, kMax, kMax - 1), (Interval{3, 3}));
  EXPECT_EQ(CeilSplit(kMax, int64_t{3} << 60, (int64_t{3} << 60) - 1),
            (Interval{kMax, kMax}));
}

TEST(ExtentSplitTest, DefaultsToTheShardRule) {
  const ExtentSplit split;
  EXPECT_TRUE(split.is_ceil());
  EXPECT_EQ(split.ToString(), "ceil");
  EXPECT_TRUE(split.Fits(0, 1));
  EXPECT_TRUE(split.Fits(5, 4));
  EXPECT_FALSE(split.Fits(5, 0));
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(split.Piece(5, 4, i), CeilSplit(5, 4, i));
  }
}

TEST(ExtentSplitTest, ExplicitSizesLieOneBehindTheOther) {
  ASSERT_OK_AND_ASSIGN(const ExtentSplit split,
                       ExtentSplit::Explicit({2, 0, 1}));
  EXPECT_FALSE(split.is_ceil());
  EXPECT_EQ(split.ToString(), "(2,0,1)");
  EXPECT_TRUE(split.Fits(3, 3));
  EXPECT_FALSE(split.Fits(3, 2));
  EXPECT_FALSE(split.Fits(4, 3));
  EXPECT_EQ(split.Piece(3, 3, 0), (Interval{0, 2}));
  EXPECT_EQ(split.Piece(3, 3, 1), (Interval{2, 2}));
  EXPECT_EQ(split.Piece(3, 3, 2), (Interval{2, 3}));
}

TEST(ExtentSplitTest, ComparesSizes) {
  ASSERT_OK_AND_ASSIGN(const ExtentSplit a, ExtentSplit::Explicit({2, 1}));
  ASSERT_OK_AND_ASSIGN(const ExtentSplit b, ExtentSplit::Explicit({1, 2}));
  EXPECT_EQ(a, *ExtentSplit::Explicit({2, 1}));
  EXPECT_NE(a, b);
  EXPECT_NE(a, ExtentSplit());
}

TEST(ExtentSplitTest, RejectsBadSizes) {
  EXPECT_THAT(ExtentSplit::Explicit({}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("at least one size")));
  EXPECT_THAT(
      ExtentSplit::Explicit({2, -1}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("size -1")));
  EXPECT_THAT(ExtentSplit::Explicit({kMax, 1}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("int64")));
}

}  // namespace
}  // namespace tessera

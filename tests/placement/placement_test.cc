#include "tessera/placement/placement.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "absl/hash/hash_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

RaggedCut Explicit(std::vector<int64_t> bounds) {
  return RaggedCut::Explicit(bounds).value();
}

RaggedCut Affine(int64_t first, int64_t step) {
  return RaggedCut::Affine(first, step).value();
}

auto IsInvalid(const std::string& part) {
  return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(part));
}

TEST(RaggedCutTest, ExplicitPiecesLieBetweenTheBounds) {
  const RaggedCut cut = Explicit({0, 3, 3, 7});
  EXPECT_FALSE(cut.is_affine());
  EXPECT_THAT(cut.bounds(), ElementsAre(0, 3, 3, 7));
  EXPECT_EQ(cut.Piece(0, 7), (Interval{0, 3}));
  EXPECT_EQ(cut.Piece(1, 7), (Interval{7, 7}));  // empty: at the extent
  EXPECT_EQ(cut.Piece(2, 7), (Interval{3, 7}));
}

TEST(RaggedCutTest, AffinePiecesAreWindowsOfAFlatBuffer) {
  // Ten elements at offset 6 of a buffer of which every rank holds 4.
  const RaggedCut cut = Affine(-6, 4);
  EXPECT_TRUE(cut.is_affine());
  EXPECT_THAT(cut.bounds(), IsEmpty());
  EXPECT_EQ(cut.Piece(0, 10), (Interval{10, 10}));
  EXPECT_EQ(cut.Piece(1, 10), (Interval{0, 2}));
  EXPECT_EQ(cut.Piece(2, 10), (Interval{2, 6}));
  EXPECT_EQ(cut.Piece(3, 10), (Interval{6, 10}));
  EXPECT_EQ(cut.Piece(4, 10), (Interval{10, 10}));
}

// Element k lies in the piece whose bounds hold it.
TEST(RaggedCutTest, PiecesAreClippedToTheExtent) {
  for (const RaggedCut& cut :
       {Explicit({0, 0, 2, 5, 5, 9}), Explicit({0, 5}), Affine(0, 3),
        Affine(-4, 3), Affine(-100, 7), Affine(0, 100)}) {
    const int64_t parts = cut.is_affine() ? 12 : cut.bounds().size() - 1;
    for (int64_t extent = 0; extent <= 10; ++extent) {
      int64_t largest = 0;
      for (int64_t index = 0; index < parts; ++index) {
        const int64_t begin = cut.is_affine() ? cut.first() + index * cut.step()
                                              : cut.bounds()[index];
        const int64_t end =
            cut.is_affine() ? begin + cut.step() : cut.bounds()[index + 1];
        std::vector<int64_t> wanted;
        for (int64_t k = 0; k < extent; ++k) {
          if (begin <= k && k < end) wanted.push_back(k);
        }
        const Interval piece = cut.Piece(index, extent);
        ASSERT_EQ(piece.size(), static_cast<int64_t>(wanted.size()))
            << cut.ToString() << " at " << index << " of " << extent;
        EXPECT_EQ(piece.begin, wanted.empty() ? extent : wanted.front());
        for (int64_t k : wanted) EXPECT_EQ(cut.PieceWith(k), index);
        largest = std::max(largest, piece.size());
      }
      EXPECT_EQ(cut.LargestPiece(parts, extent), largest)
          << cut.ToString() << " of " << extent;
    }
  }
}

TEST(RaggedCutTest, CoversWhereThePiecesHoldAll) {
  EXPECT_TRUE(Explicit({0, 3, 7}).Covers(2, 7));
  EXPECT_TRUE(Explicit({0, 3, 7}).Covers(2, 4));
  EXPECT_FALSE(Explicit({0, 3, 7}).Covers(2, 8));
  EXPECT_FALSE(Explicit({0, 3, 7}).Covers(1, 3));
  EXPECT_FALSE(Explicit({0, 3, 7}).Covers(3, 7));
  EXPECT_TRUE(Affine(-6, 4).Covers(4, 10));
  EXPECT_FALSE(Affine(-6, 4).Covers(3, 10));
  EXPECT_TRUE(Affine(-6, 4).Covers(3, 6));
  EXPECT_TRUE(Affine(-6, 4).Covers(1, 0));
  EXPECT_FALSE(Affine(-6, 4).Covers(1, 1));
}

TEST(RaggedCutTest, LargestPieceIsTheLargestOfAll) {
  const RaggedCut cuts[] = {Affine(0, 1),   Affine(0, 4),
                            Affine(-6, 4),  Affine(-7, 3),
                            Affine(-8, 4),  Affine(-1, 20),
                            Affine(-40, 4), Explicit({0, 0, 3, 3, 8, 30})};
  for (const RaggedCut& cut : cuts) {
    for (int64_t extent = 0; extent <= 12; ++extent) {
      int64_t largest = 0;
      for (int64_t parts = 1; parts <= 5; ++parts) {
        largest = std::max(largest, cut.Piece(parts - 1, extent).size());
        EXPECT_EQ(cut.LargestPiece(parts, extent), largest)
            << cut.ToString() << " of " << extent << " over " << parts;
      }
    }
  }
}

TEST(RaggedCutTest, LargestPieceOfManyIsFoundAtOnce) {
  EXPECT_EQ(Affine(-kMax / 2, 3).LargestPiece(kMax, kMax), 3);
  EXPECT_EQ(Affine(kMin, 1).LargestPiece(kMax, kMax), 0);
  EXPECT_EQ(Affine(kMin, kMax).LargestPiece(3, kMax), kMax - 1);
}

TEST(RaggedCutTest, DoesNotOverflowAtTheLimit) {
  EXPECT_EQ(Affine(kMin, kMax).Piece(0, kMax), (Interval{kMax, kMax}));
  EXPECT_EQ(Affine(kMin, kMax).Piece(1, 10), (Interval{0, 10}));
  EXPECT_EQ(Affine(0, kMax).Piece(kMax - 1, kMax), (Interval{kMax, kMax}));
  EXPECT_EQ(Affine(0, kMax).Piece(0, kMax), (Interval{0, kMax}));
  EXPECT_EQ(Affine(kMin, 1).PieceWith(0), kMax);
  EXPECT_EQ(Affine(kMin, kMax).PieceWith(kMax), 2);
  EXPECT_EQ(Affine(kMin, 1).LargestPiece(4, 0), 0);
  EXPECT_TRUE(Affine(kMin, kMax).Covers(3, kMax - 4));
  EXPECT_FALSE(Affine(kMin, kMax).Covers(2, kMax));
  EXPECT_FALSE(Affine(kMin, 1).Covers(kMax, 1));
  EXPECT_TRUE(Explicit({0, kMax}).Covers(1, kMax));
}

TEST(RaggedCutTest, RejectsBadBounds) {
  EXPECT_THAT(RaggedCut::Explicit({}), IsInvalid("0 bounds"));
  EXPECT_THAT(RaggedCut::Explicit({0}), IsInvalid("1 bounds"));
  EXPECT_THAT(RaggedCut::Explicit({1, 2}), IsInvalid("is 1, want 0"));
  EXPECT_THAT(RaggedCut::Explicit({-1, 2}), IsInvalid("is -1, want 0"));
  EXPECT_THAT(RaggedCut::Explicit({0, 3, 2}), IsInvalid("from 3 to 2"));
  EXPECT_THAT(RaggedCut::Affine(1, 4), IsInvalid("begins at 1"));
  EXPECT_THAT(RaggedCut::Affine(0, 0), IsInvalid("step 0"));
  EXPECT_THAT(RaggedCut::Affine(0, -4), IsInvalid("step -4"));
}

TEST(RaggedCutTest, HashesAsItCompares) {
  EXPECT_EQ(Explicit({0, 3, 7}), Explicit({0, 3, 7}));
  EXPECT_NE(Affine(0, 3), Explicit({0, 3}));
  EXPECT_TRUE(absl::VerifyTypeImplementsAbslHashCorrectly(
      {Explicit({0, 3}), Explicit({0, 3, 7}), Explicit({0, 3, 8}), Affine(0, 3),
       Affine(-3, 3), Affine(0, 4)}));
}

TEST(PlacementTest, DefaultsToReplicate) {
  EXPECT_TRUE(Placement().is_replicate());
  EXPECT_EQ(Placement(), Placement::Replicate());
}

TEST(PlacementTest, KnowsWhatItIs) {
  const Placement shard = Placement::Shard(2);
  EXPECT_TRUE(shard.is_shard());
  EXPECT_TRUE(shard.is_shard(2));
  EXPECT_FALSE(shard.is_shard(1));
  EXPECT_EQ(shard.dim(), 2);
  const Placement partial = Placement::Partial(ReduceOp::kMax);
  EXPECT_TRUE(partial.is_partial());
  EXPECT_FALSE(partial.is_shard(0));
  EXPECT_EQ(partial.op(), ReduceOp::kMax);
  const Placement ragged = Placement::Ragged(Affine(-6, 4), 1);
  EXPECT_TRUE(ragged.is_ragged());
  EXPECT_FALSE(ragged.is_replicate());
  EXPECT_EQ(ragged.cut(), Affine(-6, 4));
  EXPECT_EQ(ragged.position(), 1);
}

TEST(PlacementTest, HasTheTextOfDTensor) {
  const auto text = [](const Placement& placement) {
    std::ostringstream stream;
    stream << placement;
    return stream.str();
  };
  EXPECT_EQ(text(Placement()), "R");
  EXPECT_EQ(text(Placement::Shard(0)), "S(0)");
  EXPECT_EQ(text(Placement::Shard(-1)), "S(-1)");
  EXPECT_EQ(text(Placement::Partial()), "P(sum)");
  EXPECT_EQ(text(Placement::Partial(ReduceOp::kAvg)), "P(avg)");
  EXPECT_EQ(text(Placement::Ragged(Explicit({0, 3, 7}), 1)),
            "Ragged(0,3,7)[1]");
  EXPECT_EQ(text(Placement::Ragged(Affine(-6, 4))), "Ragged(-6+4)[0]");
  EXPECT_EQ(text(Placement::Ragged(Affine(0, 4))), "Ragged(0+4)[0]");
}

TEST(PlacementTest, HashesAsItCompares) {
  EXPECT_TRUE(absl::VerifyTypeImplementsAbslHashCorrectly(
      {Placement(), Placement::Shard(0), Placement::Shard(1),
       Placement::Partial(), Placement::Partial(ReduceOp::kAvg),
       Placement::Ragged(Affine(0, 4)), Placement::Ragged(Affine(0, 4), 1),
       Placement::Ragged(Explicit({0, 4}))}));
}

}  // namespace
}  // namespace tessera

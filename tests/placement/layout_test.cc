#include "tessera/placement/layout.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/hash/hash_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::IsOkAndHolds;
using ::tessera::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

DeviceMesh Mesh(absl::string_view text) {
  return DeviceMesh::Parse(text).value();
}

Layout Make(absl::string_view text, absl::string_view mesh) {
  return Layout::Parse(text, Mesh(mesh)).value();
}

TensorMeta Meta(absl::string_view text) {
  return TensorMeta::Parse(text).value();
}

RaggedCut Affine(int64_t first, int64_t step) {
  return RaggedCut::Affine(first, step).value();
}

auto IsInvalid(const std::string& part) {
  return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(part));
}

TEST(LayoutTest, DefaultsToAScalarOnOneRank) {
  EXPECT_EQ(Layout().ToString(), "f32[] []");
  EXPECT_EQ(Layout().RegionOf(0), Region());
  EXPECT_EQ(Layout(), *Layout::Create(TensorMeta(), DeviceMesh(), {}));
}

TEST(LayoutTest, CountsNegativeDimsFromTheEnd) {
  ASSERT_OK_AND_ASSIGN(
      const Layout layout,
      Layout::Create(Meta("f32[4,8]"), Mesh("a=2,b=2"),
                     {Placement::Shard(-1), Placement::Shard(-2)},
                     {{{-1, {0}}}}));
  EXPECT_EQ(layout, Make("f32[4,8] [S(1), S(0)]", "a=2,b=2"));
}

TEST(LayoutTest, RejectsAWrongNumberOfPlacements) {
  EXPECT_THAT(Layout::Create(Meta("f32[4]"), Mesh("a=2,b=2"), {Placement()}),
              IsInvalid("each of the 2 axes of mesh 'a=2,b=2', found 1"));
  EXPECT_THAT(Layout::Create(Meta("f32[4]"), DeviceMesh(), {Placement()}),
              IsInvalid("found 1"));
}

TEST(LayoutTest, RejectsShardDimsOutOfRange) {
  EXPECT_THAT(
      Layout::Create(Meta("f32[4,8]"), Mesh("tp=2"), {Placement::Shard(3)}),
      IsInvalid("layout: shard dim 3 along axis 'tp' out of range for "
                "rank-2 tensor [4,8]"));
  EXPECT_THAT(
      Layout::Create(Meta("f32[4,8]"), Mesh("tp=2"), {Placement::Shard(-3)}),
      IsInvalid("dim -3"));
  EXPECT_THAT(
      Layout::Create(Meta("f32[]"), Mesh("tp=2"), {Placement::Shard(0)}),
      IsInvalid("rank-0"));
}

TEST(LayoutTest, RejectsOrdersThatDoNotListTheShardingAxes) {
  const auto create = [](std::vector<Layout::DimOrder> order) {
    return Layout::Create(
        Meta("f32[8,8]"), Mesh("a=2,b=2,c=2"),
        {Placement::Shard(0), Placement::Shard(0), Placement::Shard(1)}, order);
  };
  EXPECT_OK(create({{0, {1, 0}}, {1, {2}}}));
  EXPECT_THAT(create({{0, {1}}}), IsInvalid("axes (0,1)"));
  EXPECT_THAT(create({{0, {1, 1}}}), IsInvalid("found (1,1)"));
  EXPECT_THAT(create({{0, {0, 1, 2}}}), IsInvalid("found (0,1,2)"));
  EXPECT_THAT(create({{0, {0, -1}}}), IsInvalid("found (0,-1)"));
  EXPECT_THAT(create({{0, {0, 3}}}), IsInvalid("found (0,3)"));
  EXPECT_THAT(create({{0, {0, 1}}, {-2, {1, 0}}}), IsInvalid("two cutting"));
  EXPECT_THAT(create({{2, {}}}), IsInvalid("dim 2"));
}

TEST(LayoutTest, MixesOnlySumAndAvg) {
  for (ReduceOp a : kAllReduceOps) {
    for (ReduceOp b : kAllReduceOps) {
      const bool both_linear = (a == ReduceOp::kSum || a == ReduceOp::kAvg) &&
                               (b == ReduceOp::kSum || b == ReduceOp::kAvg);
      const auto layout = Layout::Create(
          Meta("f32[4]"), Mesh("a=2,b=1,c=2"),
          {Placement::Partial(a), Placement(), Placement::Partial(b)});
      EXPECT_EQ(layout.ok(), a == b || both_linear)
          << ReduceOpName(a) << " and " << ReduceOpName(b);
      if (!layout.ok()) {
        EXPECT_THAT(layout, IsInvalid("along axis 'c' does not commute"));
      }
    }
  }
}

TEST(LayoutTest, RejectsAvgOfIntegers) {
  for (DType dtype : kAllDTypes) {
    const auto layout =
        Layout::Create(TensorMeta::Create(dtype, {4}).value(), Mesh("a=2"),
                       {Placement::Partial(ReduceOp::kAvg)});
    EXPECT_EQ(layout.ok(), IsFloating(dtype)) << dtype;
  }
  EXPECT_THAT(Layout::Parse("i32[4] [P(avg)]", Mesh("tp=2")),
              IsInvalid("along axis 'tp' wants a floating dtype, found i32"));
}

TEST(LayoutTest, RaggedAxesShareOneCutAtDifferentPositions) {
  const auto create = [](Placement a, Placement b) {
    return Layout::Create(Meta("f32[8]"), Mesh("a=2,b=2"), {a, b});
  };
  const RaggedCut cut = Affine(0, 2);
  EXPECT_OK(create(Placement::Ragged(cut, 0), Placement::Ragged(cut, 1)));
  EXPECT_OK(create(Placement::Ragged(cut, 1), Placement::Ragged(cut, 0)));
  EXPECT_THAT(create(Placement::Ragged(cut, 0), Placement::Ragged(cut, 0)),
              IsInvalid("found 0 for axis 'b'"));
  EXPECT_THAT(create(Placement::Ragged(cut, 1), Placement::Ragged(cut, 2)),
              IsInvalid("found 2 for axis 'b'"));
  EXPECT_THAT(create(Placement::Ragged(cut, -1), Placement::Ragged(cut, 0)),
              IsInvalid("found -1 for axis 'a'"));
  EXPECT_THAT(create(Placement(), Placement::Ragged(cut, 1)),
              IsInvalid("found 1 for axis 'b'"));
  EXPECT_THAT(
      create(Placement::Ragged(cut, 0), Placement::Ragged(Affine(0, 4), 1)),
      IsInvalid("different ragged cuts"));
}

TEST(LayoutTest, RejectsRaggedCutsThatLeaveSomethingOut) {
  const DeviceMesh mesh = Mesh("dp=2,tp=2");
  // Sharding dim 0 leaves at most 2 of 3 rows, 8 elements, to cut over 2.
  EXPECT_OK(Layout::Parse("f32[3,4] [Ragged(0+4)[0], S(0)]", mesh));
  EXPECT_THAT(Layout::Parse("f32[3,4] [Ragged(0+3)[0], S(0)]", mesh),
              IsInvalid("ragged cut 0+3 over 2 ranks does not cover the 8 "
                        "elements that the shard axes leave"));
  EXPECT_OK(Layout::Parse("f32[3,4] [Ragged(0,5,8)[0], S(0)]", mesh));
  EXPECT_THAT(Layout::Parse("f32[3,4] [Ragged(0,5,7)[0], S(0)]", mesh),
              IsInvalid("does not cover the 8"));
  EXPECT_THAT(Layout::Parse("f32[3,4] [Ragged(0,2,5,8)[0], S(0)]", mesh),
              IsInvalid("over 2 ranks"));
}

TEST(LayoutTest, TellsItsAxesInCuttingOrder) {
  const Layout layout =
      Make("f32[64,8] [S(0)[2], P(sum), S(0)[0], S(1), S(0)[1]]",
           "a=2,b=2,c=2,d=2,e=2");
  EXPECT_THAT(layout.ShardAxes(0), ElementsAre(2, 4, 0));
  EXPECT_THAT(layout.ShardAxes(1), ElementsAre(3));
  EXPECT_EQ(layout.order_position(0), 2);
  EXPECT_EQ(layout.order_position(2), 0);
  EXPECT_EQ(layout.order_position(3), 0);
  EXPECT_THAT(layout.RaggedAxes(), IsEmpty());
  EXPECT_TRUE(layout.HasPartial());
  EXPECT_FALSE(Make("f32[4] [R, S(0)]", "a=2,b=2").HasPartial());
  EXPECT_THAT(Make("f32[8] [Ragged(0+2)[1], R, Ragged(0+2)[0]]", "a=2,b=2,c=2")
                  .RaggedAxes(),
              ElementsAre(2, 0));
}

TEST(LayoutTest, OrdersAreDifferentLayouts) {
  const Layout layout = Make("f32[18] [S(0), S(0)]", "a=4,b=2");
  const Layout reordered = Make("f32[18] [S(0)[1], S(0)[0]]", "a=4,b=2");
  EXPECT_NE(layout, reordered);
  EXPECT_EQ(layout, Make("f32[18] [S(0)[0], S(0)[1]]", "a=4,b=2"));
  EXPECT_TRUE(absl::VerifyTypeImplementsAbslHashCorrectly(
      {layout, reordered, Make("f32[18] [S(0), R]", "a=4,b=2"),
       Make("f32[18] [S(0), S(0)]", "a=4,c=2"),
       Make("bf16[18] [S(0), S(0)]", "a=4,b=2"),
       Make("f32[18] [S(0), P(sum)]", "a=4,b=2"),
       Make("f32[18] [S(0), P(max)]", "a=4,b=2"),
       Make("f32[18] [Ragged(0+3)[0], Ragged(0+3)[1]]", "a=4,b=2"),
       Make("f32[18] [Ragged(0+3)[1], Ragged(0+3)[0]]", "a=4,b=2"), Layout()}));
}

TEST(LayoutTest, WithKeepsTensorAndMesh) {
  const Layout layout = Make("bf16[8,4] [S(0), R]", "a=2,b=2");
  EXPECT_THAT(layout.With("[P(sum), S(1)]"),
              IsOkAndHolds(Make("bf16[8,4] [P(sum), S(1)]", "a=2,b=2")));
  EXPECT_THAT(
      layout.With({Placement::Shard(0), Placement::Shard(0)}, {{{0, {1, 0}}}}),
      IsOkAndHolds(Make("bf16[8,4] [S(0)[1], S(0)[0]]", "a=2,b=2")));
  EXPECT_THAT(layout.With("[R]"), IsInvalid("found 1"));
}

TEST(LayoutTest, RanksOutsideTheMeshHoldNothing) {
  const Layout dense = Make("f32[8,4] [S(0), R]", "a=2:4,b=2:1@2");
  for (int rank : {-1, 0, 1, 4, 5, 8, 1000}) {
    EXPECT_EQ(dense.RegionOf(rank), (Region{{{8, 8}, {4, 4}}, std::nullopt}));
    EXPECT_EQ(dense.LocalMeta(rank), Meta("f32[0,0]"));
  }
  EXPECT_EQ(dense.LocalMeta(2), Meta("f32[4,4]"));
  const Layout ragged = Make("f32[8,4] [Ragged(0+16)]", "a=2");
  EXPECT_EQ(ragged.LocalMeta(1), Meta("f32[16]"));
  EXPECT_EQ(ragged.LocalMeta(2), Meta("f32[0]"));
  const Layout scalar = Make("f32[] [R]", "a=2");
  EXPECT_EQ(scalar.RegionOf(1).num_elements(), 1);
  EXPECT_EQ(scalar.RegionOf(2).num_elements(), 0);
}

TEST(LayoutTest, ScalarsMayBeReplicatedPartialOrPartOfAFlatBuffer) {
  EXPECT_EQ(Make("f32[] [P(sum)]", "a=3").LocalMeta(2), Meta("f32[]"));
  // A scalar at offset 5 of a buffer of which every rank holds 4 elements.
  const Layout ragged = Make("f32[] [Ragged(-5+4)]", "a=3");
  EXPECT_EQ(ragged.RegionOf(0).num_elements(), 0);
  EXPECT_EQ(ragged.RegionOf(1).num_elements(), 1);
  EXPECT_EQ(ragged.RegionOf(2).num_elements(), 0);
}

TEST(LayoutTest, CutsAMillionElementsOverSeven) {
  const Layout layout = Make("f32[1000003] [S(0)]", "a=7");
  EXPECT_EQ(layout.RegionOf(0).box[0], (Interval{0, 142858}));
  EXPECT_EQ(layout.RegionOf(6).box[0], (Interval{857148, 1000003}));
}

TEST(LayoutTest, StaysWholeWhereItIsMovedFrom) {
  Layout from = Make("f32[6] [S(0)]", "x=2");
  const Layout copy = from;
  const Layout to = std::move(from);
  EXPECT_EQ(from, copy);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(to, copy);
}

TEST(LayoutTest, NeedsNoMemoryPerRank) {
  const Layout layout =
      Make("bf16[16384,53248] [Ragged(-7+13312), S(1)]", "dp=65536,tp=2");
  EXPECT_EQ(layout.RegionOf(131071).num_elements(), 0);
  EXPECT_EQ(layout.RegionOf(0).flat, (Interval{0, 13312 - 7}));
  const std::string largest = std::to_string(std::numeric_limits<int>::max());
  EXPECT_EQ(Make("f32[3] [S(0)]", "world=" + largest).RegionOf(1 << 30).box[0],
            (Interval{3, 3}));
}

}  // namespace
}  // namespace tessera

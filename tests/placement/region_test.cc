#include "tessera/placement/region.h"

#include <optional>

#include "gtest/gtest.h"

namespace tessera {
namespace {

TEST(RegionTest, WithoutARaggedCutIsItsBox) {
  const Region region{{{0, 2}, {1, 5}}, std::nullopt};
  EXPECT_EQ(region.box_elements(), 8);
  EXPECT_EQ(region.num_elements(), 8);
  EXPECT_EQ(region.LocalShape(), *Shape::Create({2, 4}));
  EXPECT_EQ(region.ToString(), "[0,2)x[1,5)");
}

TEST(RegionTest, WithARaggedCutIsOneDim) {
  const Region region{{{0, 2}, {1, 5}}, Interval{3, 6}};
  EXPECT_EQ(region.box_elements(), 8);
  EXPECT_EQ(region.num_elements(), 3);
  EXPECT_EQ(region.LocalShape(), *Shape::Create({3}));
  EXPECT_EQ(region.ToString(), "[0,2)x[1,5) flat [3,6)");
}

TEST(RegionTest, OfAScalarHasOneElement) {
  EXPECT_EQ(Region().num_elements(), 1);
  EXPECT_EQ(Region().LocalShape(), Shape());
  EXPECT_EQ((Region{{}, Interval{1, 1}}.num_elements()), 0);
  EXPECT_EQ((Region{{}, Interval{0, 1}}.ToString()), "flat [0,1)");
}

TEST(RegionTest, ComparesBoxAndInterval) {
  const Region region{{{0, 2}}, std::nullopt};
  EXPECT_EQ(region, (Region{{{0, 2}}, std::nullopt}));
  EXPECT_NE(region, (Region{{{0, 3}}, std::nullopt}));
  EXPECT_NE(region, (Region{{{0, 2}}, Interval{0, 2}}));
}

}  // namespace
}  // namespace tessera

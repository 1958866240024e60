#include "tools/tessera/boxes.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Region MakeRegion(const Box& box, std::optional<Interval> flat = {}) {
  Region region;
  region.box.assign(box.begin(), box.end());
  region.flat = flat;
  return region;
}

TEST(BoxesTest, KeepRegionsThatAreBoxes) {
  EXPECT_THAT(BoxesOf(MakeRegion({{2, 4}, {0, 3}})),
              ElementsAre(Box{{2, 4}, {0, 3}}));
  EXPECT_THAT(BoxesOf(MakeRegion({})), ElementsAre(Box{}));
  EXPECT_THAT(BoxesOf(MakeRegion({{2, 4}, {3, 3}})), IsEmpty());
}

TEST(BoxesTest, SplitFlatIntervalsAtRows) {
  EXPECT_THAT(BoxesOf(MakeRegion({{2, 6}, {10, 13}}, Interval{2, 10})),
              ElementsAre(Box{{2, 3}, {12, 13}}, Box{{3, 5}, {10, 13}},
                          Box{{5, 6}, {10, 11}}));
  EXPECT_THAT(BoxesOf(MakeRegion({{2, 6}, {10, 13}}, Interval{4, 5})),
              ElementsAre(Box{{3, 4}, {11, 12}}));
}

// The elements of the boxes, by their numbers in the region's box.
std::vector<int64_t> Elements(const Region& region) {
  std::vector<int64_t> elements;
  for (const Box& box : BoxesOf(region)) {
    std::vector<int64_t> of_box = {0};
    for (size_t dim = 0; dim < box.size(); ++dim) {
      std::vector<int64_t> more;
      for (int64_t element : of_box) {
        for (int64_t i = box[dim].begin; i < box[dim].end; ++i) {
          more.push_back(element * region.box[dim].size() + i -
                         region.box[dim].begin);
        }
      }
      of_box = more;
    }
    elements.insert(elements.end(), of_box.begin(), of_box.end());
  }
  return elements;
}

TEST(BoxesTest, HaveTheRegionsElementsInOrder) {
  for (const Box& box : {Box{{1, 6}}, Box{{0, 3}, {2, 6}},
                         Box{{0, 2}, {1, 4}, {3, 7}}, Box{{0, 2}, {5, 5}}}) {
    const int64_t elements = MakeRegion(box).box_elements();
    for (int64_t begin = 0; begin <= elements; ++begin) {
      for (int64_t end = begin; end <= elements; ++end) {
        const Region region = MakeRegion(box, Interval{begin, end});
        std::vector<int64_t> wanted;
        for (int64_t i = begin; i < end; ++i) wanted.push_back(i);
        EXPECT_EQ(Elements(region), wanted) << region;
        EXPECT_LE(BoxesOf(region).size(), 2 * box.size() - 1) << region;
      }
    }
  }
}

}  // namespace
}  // namespace tessera::tools

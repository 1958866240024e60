#include "tessera/device/cuda/box.h"

#include <map>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/device/cuda/divisor.h"

namespace tessera::internal {
namespace {

using Place = std::pair<int64_t, int64_t>;

// Where the elements of both arrays lie, and how often each pair comes.
std::map<Place, int> PlacesOf(const Box& box, const BoxOffsets& begin) {
  std::map<Place, int> places = {{{begin[0], begin[1]}, 1}};
  for (int d = 0; d < box.num_loops; ++d) {
    std::map<Place, int> more;
    for (const auto& [place, count] : places) {
      for (int64_t i = 0; i < box.extents[d]; ++i) {
        more[{place.first + i * box.strides[d][0],
              place.second + i * box.strides[d][1]}] += count;
      }
    }
    places = std::move(more);
  }
  return places;
}

int64_t ElementsOf(const Box& box) {
  int64_t elements = 1;
  for (int d = 0; d < box.num_loops; ++d) elements *= box.extents[d];
  return elements;
}

// Six loops: more than a box has.
const Loops kLoops = {{3, {1, 2}},   {2, {4, 7}},    {5, {9, 19}},
                      {2, {50, 95}}, {3, {99, 200}}, {2, {310, 999}}};

TEST(BoxTest, BoxesCoverTheLoopsOnceWhateverTheLimit) {
  for (int64_t limit : {1, 2, 7, 100, 1000}) {
    std::map<Place, int> covered;
    EXPECT_EQ(
        ForEachBox(kLoops, limit,
                   [&](const Box& box, const BoxOffsets& offsets) {
                     EXPECT_LE(ElementsOf(box), limit);
                     EXPECT_LE(box.num_loops, kBoxLoops);
                     for (const auto& [place, count] : PlacesOf(box, offsets)) {
                       covered[place] += count;
                     }
                     return cudaSuccess;
                   }),
        cudaSuccess);
    EXPECT_EQ(covered.size(), 3 * 2 * 5 * 2 * 3 * 2) << "limit " << limit;
    for (const auto& [place, count] : covered) EXPECT_EQ(count, 1);
  }
}

TEST(BoxTest, StopsAtTheFirstError) {
  int boxes = 0;
  EXPECT_EQ(ForEachBox(kLoops, 10,
                       [&](const Box&, const BoxOffsets&) {
                         return ++boxes == 3 ? cudaErrorInvalidValue
                                             : cudaSuccess;
                       }),
            cudaErrorInvalidValue);
  EXPECT_EQ(boxes, 3);
}

TEST(DivisorTest, DividesAsDivisionDoes) {
  constexpr uint32_t kMax = (uint32_t{1} << 31) - 1;
  for (uint32_t divisor : {1u, 2u, 3u, 5u, 7u, 641u, 4096u, 65537u, 1000003u,
                           (1u << 30) - 1, 1u << 30, (1u << 30) + 1, kMax}) {
    const Divisor by(divisor);
    for (uint32_t n : {0u, 1u, divisor - 1, divisor, kMax - 1, kMax}) {
      EXPECT_EQ(by.Quotient(n), n / divisor) << n << " / " << divisor;
    }
    // Where quotients change.
    for (uint64_t k = 1; k * divisor <= kMax; k = k * 3 + 1) {
      const auto n = static_cast<uint32_t>(k * divisor);
      EXPECT_EQ(by.Quotient(n), k) << n << " / " << divisor;
      EXPECT_EQ(by.Quotient(n - 1), k - 1) << n << " - 1 / " << divisor;
    }
  }
}

}  // namespace
}  // namespace tessera::internal

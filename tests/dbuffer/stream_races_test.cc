// Conversions of buffers on streams that run in any order.

#include "gtest/gtest.h"
#include "tests/dbuffer/conversion_ways.h"

namespace tessera {
namespace {

TEST(DBufferRacesTest, ConversionsGiveTheSameBitsInAnyOrder) {
  testing::ExpectTheSameBitsInAnyOrder(testing::RunScheduledRanks,
                                       /*num_seeds=*/10);
}

}  // namespace
}  // namespace tessera

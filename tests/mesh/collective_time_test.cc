#include "tessera/mesh/collective_time.h"

#include <cstdint>
#include <limits>

#include "gtest/gtest.h"

namespace tessera::internal {
namespace {

const Rate kBytePerPicosecond(1'000'000'000'000);
const Rate kBytePerTenPicoseconds(100'000'000'000);

TEST(CollectiveTimeTest, AddsLatencyOfEveryHopToTheBytes) {
  CollectiveTime time({.messages = 3,
                       .hops_per_message = 2,
                       .bytes = 30,
                       .largest_message = 10});
  time.Add(3, /*latency_ps=*/100, kBytePerPicosecond);
  EXPECT_EQ(time.picoseconds(), 3 * 2 * 100 + 30);
}

TEST(CollectiveTimeTest, GivesSlowLinksWhatTheirMessagesCanCarry) {
  CollectiveTime time({.messages = 3, .bytes = 25, .largest_message = 10});
  time.Add(2, /*latency_ps=*/100, kBytePerTenPicoseconds);
  EXPECT_EQ(time.picoseconds(), 2 * 100 + 20 * 10);
  time.Add(1, /*latency_ps=*/1, kBytePerPicosecond);
  EXPECT_EQ(time.picoseconds(), 2 * 100 + 20 * 10 + 1 + 5);
}

TEST(CollectiveTimeTest, GivesTheLastLinksWhatIsLeft) {
  CollectiveTime time({.messages = 1, .bytes = 25, .largest_message = 10});
  time.Add(1, /*latency_ps=*/0, kBytePerPicosecond);
  EXPECT_EQ(time.picoseconds(), 25);
}

TEST(CollectiveTimeTest, Saturates) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  CollectiveTime time({.messages = 2, .bytes = 1, .largest_message = 1});
  time.Add(2, kMax, kBytePerPicosecond);
  EXPECT_EQ(time.picoseconds(), kMax);
}

TEST(IsSlowerTest, GoesByBandwidthThenByLatency) {
  const Link slow = {.latency_ps = 1, .bytes_per_second = 10};
  const Link fast = {.latency_ps = 9, .bytes_per_second = 20};
  const Link far = {.latency_ps = 10, .bytes_per_second = 20};
  EXPECT_TRUE(IsSlower(slow, fast));
  EXPECT_FALSE(IsSlower(fast, slow));
  EXPECT_TRUE(IsSlower(far, fast));
  EXPECT_FALSE(IsSlower(fast, fast));
}

}  // namespace
}  // namespace tessera::internal

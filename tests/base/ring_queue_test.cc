#include "tessera/base/ring_queue.h"

#include <deque>
#include <memory>
#include <random>

#include "gtest/gtest.h"

namespace tessera {
namespace {

TEST(RingQueue, IsFirstInFirstOut) {
  std::mt19937 random(1);
  RingQueue<int> queue;
  std::deque<int> expected;
  for (int i = 0; i < 10'000; ++i) {
    // Longer and shorter by turns.
    if (random() % 100 < (i / 1000 % 2 == 0 ? 70u : 30u)) {
      queue.Push(i);
      expected.push_back(i);
    } else if (!expected.empty()) {
      ASSERT_EQ(queue.Pop(), expected.front());
      expected.pop_front();
    }
    ASSERT_EQ(queue.size(), expected.size());
    ASSERT_EQ(queue.empty(), expected.empty());
  }
}

TEST(RingQueue, KeepsNothingOfWhatHasLeft) {
  RingQueue<std::shared_ptr<int>> queue;
  const auto value = std::make_shared<int>(1);
  queue.Push(value);
  EXPECT_EQ(value.use_count(), 2);
  queue.Pop().reset();
  EXPECT_EQ(value.use_count(), 1);
}

}  // namespace
}  // namespace tessera

#include "tessera/fsdp/gather_order.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::internal {
namespace {

// What is foretold once `unit` has begun.
int Begin(GatherOrder& order, int unit) {
  order.Begin(unit);
  return order.Next(unit);
}

TEST(GatherOrderTest, ForetellsWhatCameNextInTheLastPass) {
  GatherOrder order;
  for (int unit : {0, 3, 1}) EXPECT_EQ(Begin(order, unit), -1);
  order.EndPass();
  EXPECT_EQ(Begin(order, 0), 3);
  EXPECT_EQ(order.Next(3), 1);
  EXPECT_EQ(order.Next(1), -1);
  EXPECT_EQ(Begin(order, 3), 1);
  EXPECT_EQ(Begin(order, 1), -1);
}

TEST(GatherOrderTest, APassEndsWhereAUnitComesAgain) {
  GatherOrder order;
  for (int pass = 0; pass < 3; ++pass) {
    EXPECT_EQ(Begin(order, 0), pass == 0 ? -1 : 1);
    EXPECT_EQ(Begin(order, 1), -1);
  }
}

TEST(GatherOrderTest, FollowsAnotherOrder) {
  GatherOrder order;
  for (int unit : {0, 1, 2}) order.Begin(unit);
  order.EndPass();
  EXPECT_EQ(Begin(order, 0), 1);
  EXPECT_EQ(Begin(order, 2), -1);  // not 1
  EXPECT_EQ(Begin(order, 1), -1);  // not 2, which has been
  order.EndPass();
  EXPECT_EQ(Begin(order, 0), 2);
  EXPECT_EQ(Begin(order, 2), 1);
  EXPECT_EQ(order.Next(1), -1);  // 1 came last
}

// Passes over some units, in any order.
TEST(GatherOrderTest, WhatIsForetoldHasAnEnd) {
  constexpr int kUnits = 6;
  std::mt19937 rng(1);
  GatherOrder order;
  std::vector<int> units(kUnits);
  std::iota(units.begin(), units.end(), 0);
  for (int pass = 0; pass < 2000; ++pass) {
    std::shuffle(units.begin(), units.end(), rng);
    const int count = pass == 0 ? kUnits : static_cast<int>(rng() % kUnits);
    for (int i = 0; i < count; ++i) {
      int steps = 0;
      int unit = Begin(order, units[i]);
      for (; unit >= 0 && steps <= kUnits; ++steps) unit = order.Next(unit);
      ASSERT_LT(steps, kUnits);
    }
    order.EndPass();
  }
}

TEST(GatherOrderTest, EndingAPassThatHasNotBegunChangesNothing) {
  GatherOrder order;
  order.EndPass();
  EXPECT_EQ(Begin(order, 0), -1);
  EXPECT_EQ(Begin(order, 1), -1);
  order.EndPass();
  order.EndPass();
  EXPECT_EQ(Begin(order, 0), 1);
}

}  // namespace
}  // namespace tessera::internal

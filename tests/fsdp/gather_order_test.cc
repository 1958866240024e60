#include "tessera/fsdp/gather_order.h"

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

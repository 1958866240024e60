#include "tessera/base/lru_map.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera {
namespace {

using ::testing::IsNull;
using ::testing::Pointee;

TEST(LruMapTest, KeepsWhatWasAskedForLast) {
  LruMap<int, std::string> map(2);
  EXPECT_EQ(map.Insert(1, "one"), "one");
  map.Insert(2, "two");
  EXPECT_THAT(map.Find(1), Pointee(std::string("one")));
  map.Insert(3, "three");  // in place of 2
  EXPECT_EQ(map.size(), 2);
  EXPECT_THAT(map.Find(1), Pointee(std::string("one")));
  EXPECT_THAT(map.Find(2), IsNull());
  EXPECT_THAT(map.Find(3), Pointee(std::string("three")));
}

TEST(LruMapTest, EntriesCanBeChanged) {
  LruMap<std::string, int> map(1);
  map.Insert("a", 1) = 2;
  *map.Find("a") += 1;
  EXPECT_THAT(map.Find("a"), Pointee(3));
  map.Insert("b", 4);
  EXPECT_THAT(map.Find("a"), IsNull());
  EXPECT_THAT(map.Find("b"), Pointee(4));
}

}  // namespace
}  // namespace tessera

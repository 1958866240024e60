#include "tessera/base/stable_hash.h"

#include "gtest/gtest.h"

namespace tessera::internal {
namespace {

// The published values of XXH3-64 with seed 0.
TEST(StableHashTest, IsXxh3) {
  EXPECT_EQ(StableHash(""), 0x2d06800538d394c2u);
  EXPECT_EQ(StableHash("a"), 0xe6c632b61e964e1fu);
  EXPECT_EQ(StableHash("abc"), 0x78af5f94892f3950u);
}

}  // namespace
}  // namespace tessera::internal

#include "tessera/comm/local/local_registry.h"

#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/status_matchers.h"

namespace tessera::internal {
namespace {

using ::tessera::testing::StatusIs;
using ::testing::HasSubstr;

constexpr std::nullptr_t kRoot = nullptr;
constexpr std::chrono::milliseconds kTimeout = std::chrono::seconds(100);

TEST(LocalRegistry, NthCallsOfMembersMeet) {
  LocalRegistry registry(kTimeout);
  const auto a0 = registry.Join(kRoot, {0, 1}, 0, "a");
  const auto b0 = registry.Join(kRoot, {0, 1}, 0, "b");
  const auto a1 = registry.Join(kRoot, {0, 1}, 1, "a");
  const auto c0 = registry.Join(kRoot, {0, 1}, 0, "c");
  const auto b1 = registry.Join(kRoot, {0, 1}, 1, "b");
  const auto c1 = registry.Join(kRoot, {0, 1}, 1, "c");
  EXPECT_EQ(a0, a1);
  EXPECT_EQ(b0, b1);
  EXPECT_EQ(c0, c1);
  EXPECT_NE(a0, b0);
  EXPECT_NE(b0, c0);
}

TEST(LocalRegistry, ParentsAndOrdersTellGroupsApart) {
  LocalRegistry registry(kTimeout);
  const auto parent = registry.Join(kRoot, {0, 1}, 0, "a");
  const auto other = registry.Join(kRoot, {1, 0}, 0, "a");
  const auto child = registry.Join(parent, {0, 1}, 0, "a");
  EXPECT_NE(parent, other);
  EXPECT_NE(parent, child);
  EXPECT_EQ(registry.Join(parent, {0, 1}, 1, "a"), child);
  EXPECT_EQ(registry.Join(kRoot, {1, 0}, 1, "a"), other);
  EXPECT_EQ(registry.Join(kRoot, {0, 1}, 1, "a"), parent);
}

TEST(LocalRegistry, KeepsAGroupUntilAllHaveJoinedAndNoLonger) {
  LocalRegistry registry(kTimeout);
  for (int i = 0; i < 1000; ++i) {
    std::weak_ptr<LocalGroup> group = registry.Join(kRoot, {0, 1}, i % 2, "a");
    EXPECT_FALSE(group.expired());
    EXPECT_EQ(registry.Join(kRoot, {0, 1}, 1 - i % 2, "a"), group.lock());
    EXPECT_TRUE(group.expired());
  }
}

TEST(LocalRegistry, TellsGroupsBeforeAndAfterThatARankHasLeft) {
  LocalRegistry registry(kTimeout);
  const auto before = registry.Join(kRoot, {0, 1}, 0, "before");
  registry.Leave(1, "done");
  const auto after = registry.Join(kRoot, {0, 1}, 0, "after");
  const auto without = registry.Join(kRoot, {0}, 0, "without");
  EXPECT_THAT(before->HostAllGather(0, "x"),
              StatusIs(absl::StatusCode::kAborted,
                       HasSubstr("rank 1 has left before host_all_gather")));
  EXPECT_THAT(after->HostAllGather(0, "x"),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("'after': done")));
  EXPECT_OK(without->HostAllGather(0, "x"));
}

}  // namespace
}  // namespace tessera::internal

#include "tessera/redistribute/plan_cache.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/redistribute/planner.h"
#include "tests/redistribute/all_layouts.h"
#include "tests/status_matchers.h"

namespace {

std::atomic<int64_t> allocations = 0;

}  // namespace

// Counts what the program allocates. Inlined, g++ takes them for a mismatch.
void* operator new(size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(size);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

namespace tessera {
namespace {

using ::tessera::testing::AllLayouts;
using ::tessera::testing::StatusIs;
using ::testing::AnyOf;
using ::testing::Eq;
using ::testing::IsNull;
using PlanPtr = std::shared_ptr<const Plan>;

std::vector<Layout> LayoutsOn(const char* mesh) {
  return AllLayouts(TensorMeta::Parse("f32[5,3]").value(),
                    DeviceMesh::Parse(mesh).value(),
                    {ReduceOp::kSum, ReduceOp::kAvg});
}

// More than there are pairs of the layouts above.
constexpr int64_t kLarge = 1'000'000;

TEST(PlanCacheTest, GivesTheSamePlanAgain) {
  const std::vector<Layout> layouts = LayoutsOn("x=2");
  PlanCache cache(Topology::LocalCpu(), kLarge);
  ASSERT_OK_AND_ASSIGN(const PlanPtr plan, cache.Get(layouts[0], layouts[1]));
  EXPECT_EQ(*plan,
            MakePlan(layouts[0], layouts[1], Topology::LocalCpu()).value());
  // Equal layouts of other objects are the same key.
  const std::vector<Layout> equal = LayoutsOn("x=2");
  EXPECT_EQ(cache.Get(equal[0], equal[1]).value(), plan);
  EXPECT_EQ(cache.size(), 1);
  EXPECT_NE(cache.Get(layouts[1], layouts[0]).value(), plan);
  EXPECT_EQ(cache.size(), 2);
}

TEST(PlanCacheTest, KeepsToItsOptions) {
  const Layout source = Layout::Parse("f32[8,8] [P(max), S(0)]",
                                      DeviceMesh::Parse("x=2,y=2").value())
                            .value();
  const Layout target = source.With("[P(sum), S(0)]").value();
  PlanCache cache(Topology::LocalCpu(), kLarge, {.max_workspace_bytes = 0});
  ASSERT_OK_AND_ASSIGN(const PlanPtr plan, cache.Get(source, target));
  EXPECT_EQ(plan->workspace_bytes(), 0);
  PlanCache without_limit(Topology::LocalCpu(), kLarge);
  EXPECT_GT(without_limit.Get(source, target).value()->workspace_bytes(), 0);
}

// So many that the hash table has keys that agree in all that it looks at
// before it compares them.
TEST(PlanCacheTest, TellsAllPairsOfLayoutsApart) {
  PlanCache cache(Topology::LocalCpu(), kLarge);
  int64_t pairs = 0;
  for (const char* mesh : {"x=2,y=2", "y=2,x=2", "x=2,y=2@4"}) {
    const std::vector<Layout> layouts = LayoutsOn(mesh);
    std::vector<PlanPtr> plans;
    for (const Layout& source : layouts) {
      for (const Layout& target : layouts) {
        plans.push_back(cache.Get(source, target).value());
        ASSERT_EQ(*plans.back(),
                  MakePlan(source, target, Topology::LocalCpu()).value());
      }
    }
    size_t next = 0;
    for (const Layout& source : layouts) {
      for (const Layout& target : layouts) {
        ASSERT_EQ(cache.Get(source, target).value(), plans[next++]);
      }
    }
    pairs += static_cast<int64_t>(plans.size());
  }
  EXPECT_EQ(cache.size(), pairs);
}

TEST(PlanCacheTest, PlansByItsTopology) {
  const Layout source = Layout::Parse("f32[64,64] [P, S(0)]",
                                      DeviceMesh::Parse("x=2,y=4").value())
                            .value();
  const Layout target = source.With("[R, S(1)]").value();
  for (const Topology& topology : {Topology::LocalCpu(), Topology::Unit()}) {
    PlanCache cache(topology, 1);
    EXPECT_EQ(*cache.Get(source, target).value(),
              MakePlan(source, target, topology).value());
  }
}

TEST(PlanCacheTest, DropsThePlanNotAskedForLongest) {
  const std::vector<Layout> layouts = LayoutsOn("x=2");
  PlanCache cache(Topology::LocalCpu(), 3);
  // Kept here, so that no other plan gets its address.
  std::vector<PlanPtr> plans;
  for (int i = 0; i < 3; ++i) {
    plans.push_back(cache.Get(layouts[0], layouts[i]).value());
  }
  EXPECT_EQ(cache.Get(layouts[0], layouts[0]).value(), plans[0]);
  plans.push_back(cache.Get(layouts[0], layouts[3]).value());  // drops 1
  EXPECT_EQ(cache.size(), 3);
  EXPECT_EQ(cache.Get(layouts[0], layouts[3]).value(), plans[3]);
  EXPECT_EQ(cache.Get(layouts[0], layouts[0]).value(), plans[0]);
  EXPECT_EQ(cache.Get(layouts[0], layouts[2]).value(), plans[2]);
  const PlanPtr again = cache.Get(layouts[0], layouts[1]).value();  // drops 3
  EXPECT_NE(again, plans[1]);
  EXPECT_EQ(*again, *plans[1]);
  EXPECT_EQ(cache.Get(layouts[0], layouts[0]).value(), plans[0]);
  EXPECT_NE(cache.Get(layouts[0], layouts[3]).value(), plans[3]);
}

TEST(PlanCacheTest, NeverKeepsMoreThanItsCapacity) {
  const std::vector<Layout> layouts = LayoutsOn("x=2,y=2");
  for (int64_t capacity : {1, 2, 7}) {
    PlanCache cache(Topology::LocalCpu(), capacity);
    std::weak_ptr<const Plan> first = cache.Get(layouts[0], layouts[0]).value();
    int64_t asked = 1;
    for (const Layout& target : layouts) {
      const PlanPtr plan = cache.Get(layouts[1], target).value();
      EXPECT_EQ(plan->target(), target);
      EXPECT_EQ(cache.size(), std::min(++asked, capacity));
    }
    EXPECT_TRUE(first.expired());
  }
}

TEST(PlanCacheTest, AHitDoesNotAllocate) {
  const std::vector<Layout> layouts = LayoutsOn("x=2,y=2");
  const std::vector<Layout> equal = LayoutsOn("x=2,y=2");
  PlanCache cache(Topology::LocalCpu(), 2);
  const PlanPtr first = cache.Get(layouts[0], layouts[1]).value();
  const PlanPtr second = cache.Get(layouts[1], layouts[0]).value();
  const int64_t before = allocations;
  const absl::StatusOr<PlanPtr> hit = cache.Get(equal[0], equal[1]);
  const absl::StatusOr<PlanPtr> other = cache.Get(equal[1], equal[0]);
  EXPECT_EQ(allocations, before);
  EXPECT_EQ(hit.value(), first);
  EXPECT_EQ(other.value(), second);
}

TEST(PlanCacheTest, DoesNotKeepErrors) {
  const DeviceMesh mesh = DeviceMesh::Parse("x=2").value();
  const Layout source = Layout::Parse("f32[4] [S(0)]", mesh).value();
  const Layout target = Layout::Parse("f32[5] [S(0)]", mesh).value();
  PlanCache cache(Topology::LocalCpu(), 1);
  const PlanPtr plan = cache.Get(source, source).value();
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(cache.Get(source, target),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
  EXPECT_EQ(cache.Get(source, source).value(), plan);
  EXPECT_EQ(cache.size(), 1);
}

// Threads ask for few keys, with room for all of them and without.
TEST(PlanCacheTest, MayBeSharedByThreads) {
  constexpr int kThreads = 8;
  constexpr int kRounds = 2000;
  const std::vector<Layout> layouts = LayoutsOn("x=3");
  for (int64_t capacity : {5, 100}) {
    PlanCache cache(Topology::LocalCpu(), capacity);
    std::vector<std::vector<PlanPtr>> last(
        kThreads, std::vector<PlanPtr>(layouts.size()));
    std::atomic<int> faults = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < kRounds; ++i) {
          const size_t at = (i * (t + 1) + t) % layouts.size();
          const PlanPtr plan = cache.Get(layouts[0], layouts[at]).value();
          if (plan->target() != layouts[at]) ++faults;
          if (cache.size() > capacity) ++faults;
          last[t][at] = plan;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(faults, 0);
    if (capacity < static_cast<int64_t>(layouts.size())) continue;
    for (size_t at = 0; at < layouts.size(); ++at) {
      const PlanPtr kept = cache.Get(layouts[0], layouts[at]).value();
      for (int t = 0; t < kThreads; ++t) {
        EXPECT_THAT(last[t][at], AnyOf(IsNull(), Eq(kept)));
      }
    }
  }
}

}  // namespace
}  // namespace tessera

#include "tessera/redistribute/overlap.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <set>
#include <vector>

#include "absl/algorithm/container.h"
#include "gtest/gtest.h"
#include "tessera/tensor/index.h"
#include "tests/redistribute/sampling.h"

namespace tessera {
namespace {

using internal::AxisMask;
using internal::AxisState;
using internal::CutLayout;
using internal::kAllAxes;
using internal::kNoAxes;
using internal::Overlap;
using internal::PackedCoords;
using internal::PackedLayout;
using internal::Share;
using ::tessera::testing::SeededRandom;

constexpr int kNumAxes = 3;
using AxisSizes = std::array<int64_t, kNumAxes>;
using Elements = std::set<int64_t>;

bool Agree(const PackedCoords& a, const PackedCoords& b, AxisMask axes) {
  for (int i = 0; i < kNumAxes; ++i) {
    if ((axes >> i & 1) != 0 && a[i] != b[i]) return false;
  }
  return true;
}

// Two layouts of one tensor of two dims, and what they mean element by
// element.
struct World {
  Dims extents;
  AxisSizes sizes;
  PackedLayout before = {};
  PackedLayout after = {};

  CutLayout Before() const { return {extents, sizes, before}; }
  CutLayout After() const { return {extents, sizes, after}; }

  std::vector<PackedCoords> Ranks() const {
    std::vector<PackedCoords> ranks;
    PackedCoords at = {};
    for (at[0] = 0; at[0] < sizes[0]; ++at[0]) {
      for (at[1] = 0; at[1] < sizes[1]; ++at[1]) {
        for (at[2] = 0; at[2] < sizes[2]; ++at[2]) ranks.push_back(at);
      }
    }
    return ranks;
  }

  Interval PieceOf(const PackedLayout& layout, int dim,
                   const PackedCoords& rank) const {
    Interval piece = {0, extents[dim]};
    for (int position = 0; position < kNumAxes; ++position) {
      for (int i = 0; i < kNumAxes; ++i) {
        if (layout[i] != AxisState::Shard(dim, position)) continue;
        const Interval part = CeilSplit(piece.size(), sizes[i], rank[i]);
        piece = {piece.begin + part.begin, piece.begin + part.end};
      }
    }
    return piece;
  }

  Elements HeldBy(const PackedLayout& layout, const PackedCoords& rank) const {
    Elements held;
    const Interval rows = PieceOf(layout, 0, rank);
    const Interval columns = PieceOf(layout, 1, rank);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      for (int64_t column = columns.begin; column < columns.end; ++column) {
        held.insert(row * extents[1] + column);
      }
    }
    return held;
  }

  // What all ranks hold that agree with this one along `own`.
  Elements HeldTogether(const PackedLayout& layout, const PackedCoords& rank,
                        AxisMask own) const {
    Elements held;
    for (const PackedCoords& other : Ranks()) {
      if (Agree(rank, other, own)) held.merge(HeldBy(layout, other));
    }
    return held;
  }
};

int64_t SizeOfBoth(const Elements& a, const Elements& b) {
  return absl::c_count_if(a, [&](int64_t x) { return b.contains(x); });
}

PackedLayout RandomLayout(SeededRandom& random) {
  PackedLayout layout = {};
  std::array<int, kNumAxes> axes = {0, 1, 2};
  for (int i = kNumAxes - 1; i > 0; --i) {
    std::swap(axes[i], axes[random() % (i + 1)]);
  }
  std::array<int, 2> positions = {};
  for (int axis : axes) {
    const int dim = static_cast<int>(random() % 3);
    if (dim < 2) layout[axis] = AxisState::Shard(dim, positions[dim]++);
  }
  return layout;
}

World RandomWorld(SeededRandom& random) {
  constexpr std::array<int64_t, 4> kSizes = {2, 3, 4, 6};
  constexpr std::array<int64_t, 6> kExtents = {16, 24, 48, 7, 1, 0};
  World world;
  for (int64_t& size : world.sizes) size = kSizes[random() % kSizes.size()];
  for (int dim = 0; dim < 2; ++dim) {
    world.extents.push_back(kExtents[random() % kExtents.size()]);
  }
  world.before = RandomLayout(random);
  world.after = RandomLayout(random);
  return world;
}

constexpr int kWorlds = ::tessera::testing::kSampleOnly ? 50 : 1500;

TEST(OverlapTest, NoRankNeedsMore) {
  SeededRandom random;
  for (int n = 0; n < kWorlds; ++n) {
    const World world = RandomWorld(random);
    const CutLayout before = world.Before();
    const CutLayout after = world.After();
    const Overlap overlap(world.sizes, before, after);
    const Share most = overlap.Most();
    for (AxisMask own = kNoAxes; own < AxisMask{1} << kNumAxes; ++own) {
      const Share least = overlap.Least(own).share;
      for (const PackedCoords& rank : world.Ranks()) {
        const Share all = overlap.FoundAt(rank, kNoAxes);
        const Share found = overlap.FoundAt(rank, own);
        ASSERT_LE(all.elements - found.elements, most.elements - least.elements)
            << "world " << n << " own " << own;
        ASSERT_LE(all.pieces - found.pieces, most.pieces - least.pieces)
            << "world " << n << " own " << own;
      }
    }
  }
}

TEST(OverlapTest, SomeRankOfARegularOneNeedsThatMuch) {
  SeededRandom random;
  int regular = 0;
  for (int n = 0; regular < kWorlds / 10; ++n) {
    const World world = RandomWorld(random);
    const CutLayout before = world.Before();
    const CutLayout after = world.After();
    const Overlap overlap(world.sizes, before, after);
    const AxisMask near = random() & 7;
    const AxisMask nearer = near & random();
    const Overlap::Finding least_near = overlap.Least(near);
    const Overlap::Finding least_nearer = overlap.Least(nearer);
    if (!least_near.is_exact || !least_nearer.is_exact) continue;
    if (overlap.Most().elements == 0) continue;
    ++regular;
    EXPECT_TRUE(absl::c_any_of(
        world.Ranks(),
        [&](const PackedCoords& rank) {
          return overlap.FoundAt(rank, kNoAxes) == overlap.Most() &&
                 overlap.FoundAt(rank, near) == least_near.share &&
                 overlap.FoundAt(rank, nearer) == least_nearer.share;
        }))
        << "world " << n << " near " << near << " nearer " << nearer;
  }
}

TEST(OverlapTest, BoundsWhatRanksFindTogether) {
  SeededRandom random;
  int even = 0;
  for (int n = 0; even < kWorlds / 50; ++n) {
    const World world = RandomWorld(random);
    const CutLayout before = world.Before();
    const CutLayout after = world.After();
    const Overlap overlap(world.sizes, before, after);
    if (!overlap.IsEven()) continue;
    ++even;
    const AxisMask own = random() & 7;
    int64_t least = std::numeric_limits<int64_t>::max();
    for (const PackedCoords& rank : world.Ranks()) {
      const Elements held = world.HeldTogether(world.after, rank, own);
      ASSERT_EQ(overlap.HeldTogether(own), static_cast<int64_t>(held.size()))
          << "world " << n << " own " << own;
      least = std::min(
          least, SizeOfBoth(held, world.HeldTogether(world.before, rank, own)));
    }
    EXPECT_GE(overlap.FoundTogether(own, overlap.HeldTogether(own)), least)
        << "world " << n << " own " << own;
  }
}

// Of [S(0)[1], S(0)[0]] each rank of a pair along axis 1 holds every other part
// of what the pair holds.
TEST(OverlapTest, CountsPartsThatDoNotLieTogether) {
  const World world = {
      .extents = {16, 1},
      .sizes = {2, 4, 2},
      .before = {AxisState::Shard(0, 0)},
      .after = {AxisState::Shard(0, 1), AxisState::Shard(0, 0)}};
  const CutLayout before = world.Before();
  const CutLayout after = world.After();
  const Overlap overlap(world.sizes, before, after);
  EXPECT_EQ(overlap.HeldTogether(1), 8);
  EXPECT_EQ(overlap.FoundTogether(1, 8), 4);
}

}  // namespace
}  // namespace tessera

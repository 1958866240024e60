#include "tessera/dbuffer/flat_packing.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dbuffer/reference_packing.h"

namespace tessera::internal {
namespace {

constexpr int64_t kNoLimit = int64_t{1} << 40;

std::string ToString(absl::Span<const PackedTensor> tensors) {
  std::string text;
  for (const PackedTensor& t : tensors) {
    absl::StrAppend(&text, t.size, "/", t.granule, " ");
  }
  return text;
}

// What PackTensors promises.
void ExpectPostConditions(absl::Span<const PackedTensor> tensors, int64_t parts,
                          int64_t part_unit, const Packing& packing) {
  EXPECT_EQ(packing.part_size % part_unit, 0);
  EXPECT_LE(packing.part_size_bound, packing.part_size);
  ASSERT_EQ(packing.offsets.size(), tensors.size());
  std::vector<Interval> extents;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t begin = packing.offsets[i];
    EXPECT_GE(begin, 0);
    EXPECT_LE(begin + tensors[i].size, parts * packing.part_size);
    EXPECT_TRUE(testing::MayBegin(tensors[i], begin, packing.part_size))
        << "tensor " << i << " at " << begin;
    extents.push_back({begin, begin + tensors[i].size});
  }
  std::sort(
      extents.begin(), extents.end(),
      [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < extents.size(); ++i) {
    EXPECT_LE(extents[i - 1].end, extents[i].begin) << "overlap";
  }
}

// All lists of up to three tensors of up to six units: every offset is tried.
TEST(FlatPackingTest, IsOptimalInSmallWorlds) {
  std::vector<PackedTensor> kinds;
  for (int64_t size = 1; size <= 6; ++size) {
    for (int64_t granule : {1, 2, 3}) {
      if (granule < size) kinds.push_back({size, granule});
    }
    kinds.push_back({size, size});
  }
  int64_t worlds = 0;
  const auto check = [&](const std::vector<PackedTensor>& tensors) {
    for (int64_t parts = 1; parts <= 4; ++parts) {
      for (int64_t part_unit : {1, 2}) {
        SCOPED_TRACE(absl::StrCat(ToString(tensors), "in ", parts,
                                  " parts of multiples of ", part_unit));
        const std::optional<Packing> packing =
            PackTensors(tensors, parts, part_unit, kNoLimit);
        ASSERT_TRUE(packing.has_value());
        ExpectPostConditions(tensors, parts, part_unit, *packing);
        ASSERT_EQ(packing->part_size, testing::LeastPartSizeOfAnyOffsets(
                                          tensors, parts, part_unit));
        ASSERT_EQ(packing->part_size_bound, packing->part_size) << "unproven";
        ++worlds;
      }
    }
  };
  for (size_t a = 0; a < kinds.size(); ++a) {
    check({kinds[a]});
    for (size_t b = 0; b < kinds.size(); ++b) {
      check({kinds[a], kinds[b]});
      for (size_t c = a; c < kinds.size(); ++c) {
        check({kinds[a], kinds[b], kinds[c]});
      }
    }
  }
  EXPECT_GT(worlds, 20000);
}

// Of up to six tensors every order is tried.
TEST(FlatPackingTest, IsOptimalForAFewTensors) {
  for (uint32_t seed = 1; seed <= 600; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    const auto pick = [&](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(random);
    };
    std::vector<PackedTensor> tensors(pick(4, 6));
    for (PackedTensor& tensor : tensors) {
      const int64_t granule = pick(1, 12);
      tensor = {granule * pick(1, 9) + (pick(0, 3) == 0 ? 1 : 0), granule};
    }
    const int64_t parts = pick(1, 8);
    const int64_t part_unit = pick(1, 8);
    SCOPED_TRACE(absl::StrCat(ToString(tensors), "in ", parts,
                              " parts of multiples of ", part_unit));
    const std::optional<Packing> packing =
        PackTensors(tensors, parts, part_unit, kNoLimit);
    ASSERT_TRUE(packing.has_value());
    ExpectPostConditions(tensors, parts, part_unit, *packing);
    EXPECT_EQ(packing->part_size,
              testing::LeastPartSizeOfAnyOrder(tensors, parts, part_unit));
    EXPECT_EQ(packing->part_size_bound, packing->part_size) << "unproven";
  }
}

// The rule of multiples of all granules is always open, and so is list order.
TEST(FlatPackingTest, IsNeverWorseThanSimpleRules) {
  constexpr int64_t kGranules[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 40};
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    const auto pick = [&](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(random);
    };
    std::vector<PackedTensor> kinds(pick(1, 8));
    for (PackedTensor& kind : kinds) {
      const int64_t granule = kGranules[pick(0, 9)];
      kind = {granule * pick(1, 200), granule};
    }
    std::vector<PackedTensor> tensors(pick(1, 120));
    for (PackedTensor& t : tensors) {
      t = kinds[pick(0, static_cast<int>(kinds.size()) - 1)];
    }
    const int64_t parts = pick(1, 60);
    const std::optional<Packing> packing =
        PackTensors(tensors, parts, 8, kNoLimit);
    ASSERT_TRUE(packing.has_value());
    ExpectPostConditions(tensors, parts, 8, *packing);
    EXPECT_LE(packing->part_size,
              testing::PartSizeOfCommonMultiples(tensors, parts, 8));
    int64_t total = 0;
    for (const PackedTensor& t : tensors) total += t.size;
    EXPECT_GE(packing->part_size_bound * parts, total);
    const std::optional<Packing> again =
        PackTensors(tensors, parts, 8, kNoLimit);
    EXPECT_EQ(again->offsets, packing->offsets) << "not deterministic";
    EXPECT_EQ(again->part_size, packing->part_size);
    EXPECT_EQ(again->part_size_bound, packing->part_size_bound);
  }
}

TEST(FlatPackingTest, KeepsListOrderWhereItIsAsGood) {
  EXPECT_THAT(PackTensors({{3, 1}, {5, 1}, {1, 1}}, 3, 1, kNoLimit)->offsets,
              ::testing::ElementsAre(0, 3, 8));
}

// 7 fits where 8 does not.
TEST(FlatPackingTest, FindsSizesBelowOnesThatDoNotFit) {
  const PackedTensor tensors[] = {{21, 7}};
  EXPECT_EQ(PackTensors(tensors, 3, 1, kNoLimit)->part_size, 7);
  EXPECT_FALSE(testing::FitsInAnyOrder(tensors, 3, 8));
}

TEST(FlatPackingTest, HasNoPackingBeyondTheLimit) {
  const PackedTensor tensors[] = {{10, 10}, {3, 1}};
  EXPECT_EQ(PackTensors(tensors, 2, 1, 10)->part_size, 10);
  EXPECT_EQ(PackTensors(tensors, 2, 1, 9), std::nullopt);
  // Granules without a common multiple that fits int64.
  const int64_t large = int64_t{1} << 40;
  const PackedTensor primes[] = {{large * 4 + 4, large + 1},
                                 {large * 4 - 4, large - 1}};
  const std::optional<Packing> packing = PackTensors(primes, 4, 1, large * 16);
  ASSERT_TRUE(packing.has_value());
  ExpectPostConditions(primes, 4, 1, *packing);
}

}  // namespace
}  // namespace tessera::internal

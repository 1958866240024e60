#include "tessera/dbuffer/flat_layout.h"

#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

FlatLayout::Tensor Make(absl::string_view name, absl::string_view shape,
                        absl::string_view granularity = "element") {
  return {std::string(name), Shape::Parse(shape).value(),
          Granularity::Parse(granularity).value()};
}

// What FlatLayout promises, element by element.
void ExpectPostConditions(const FlatLayout& layout, DType narrowest) {
  const int64_t bytes = SizeOf(narrowest);
  EXPECT_EQ(layout.per_rank_elements() * bytes % 128, 0);
  EXPECT_EQ(layout.num_elements(), layout.ranks() * layout.per_rank_elements());
  std::vector<int> owners(layout.num_elements(), 0);
  int64_t elements = 0;
  for (int i = 0; i < layout.num_tensors(); ++i) {
    SCOPED_TRACE(layout.tensor(i).name);
    const Interval extent = layout.extent(i);
    EXPECT_EQ(extent.begin, layout.offset(i));
    EXPECT_EQ(extent.size(), layout.tensor(i).shape.num_elements());
    EXPECT_EQ(layout.offset(i) * bytes % 16, 0);
    ASSERT_LE(extent.end, layout.num_elements());
    for (int64_t e = extent.begin; e < extent.end; ++e) ++owners[e];
    elements += extent.size();
    const int64_t granule = layout.granule(i);
    for (int64_t rank = 1; rank < layout.ranks(); ++rank) {
      const int64_t end = rank * layout.per_rank_elements();
      if (end <= extent.begin || end >= extent.end) continue;
      EXPECT_EQ((end - extent.begin) % granule, 0)
          << "the end of part " << rank - 1 << " crosses a granule";
    }
  }
  EXPECT_EQ(layout.tensor_elements(), elements);
  EXPECT_EQ(layout.padding_elements(), layout.num_elements() - elements);
  EXPECT_LE(layout.padding_bound(), layout.padding_elements());
  EXPECT_GE(layout.padding_bound(), 0);
  int64_t behind = 0;
  for (const Interval& stretch : layout.Padding()) {
    EXPECT_FALSE(stretch.empty());
    EXPECT_GE(stretch.begin, behind);
    behind = stretch.end;
    for (int64_t e = stretch.begin; e < stretch.end; ++e) ++owners[e];
  }
  EXPECT_THAT(owners, ::testing::Each(1))
      << "every element belongs to one tensor or to the padding";
  int64_t end = 0;
  for (int i : layout.memory_order()) {
    EXPECT_GE(layout.offset(i), end) << "memory order";
    end = layout.extent(i).end;
  }
}

TEST(FlatLayoutTest, PlacesTensorsInListOrderOn16Bytes) {
  ASSERT_OK_AND_ASSIGN(const FlatLayout layout,
                       FlatLayout::Create({Make("w", "[3,5]"), Make("b", "[5]"),
                                           Make("s", "[]"), Make("v", "[40]")},
                                          2, DType::kF32));
  EXPECT_EQ(layout.offset(0), 0);
  EXPECT_EQ(layout.offset(1), 16);
  EXPECT_EQ(layout.offset(2), 24);
  EXPECT_EQ(layout.offset(3), 28);
  EXPECT_THAT(layout.memory_order(), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(layout.per_rank_elements(), 64);  // 68 elements in two parts
  EXPECT_EQ(layout.num_elements(), 128);
  EXPECT_EQ(layout.tensor_elements(), 61);
  EXPECT_THAT(layout.Padding(),
              ElementsAre(Interval{15, 16}, Interval{21, 24}, Interval{25, 28},
                          Interval{68, 128}));
  ExpectPostConditions(layout, DType::kF32);
}

TEST(FlatLayoutTest, AlignsForTheNarrowestDType) {
  const FlatLayout::Tensor tensors[] = {Make("a", "[1]"), Make("b", "[1]")};
  ASSERT_OK_AND_ASSIGN(const FlatLayout bf16,
                       FlatLayout::Create(tensors, 1, DType::kBF16));
  EXPECT_EQ(bf16.offset(1), 8);
  EXPECT_EQ(bf16.per_rank_elements(), 64);
  ASSERT_OK_AND_ASSIGN(const FlatLayout f64,
                       FlatLayout::Create(tensors, 1, DType::kF64));
  EXPECT_EQ(f64.offset(1), 2);
  EXPECT_EQ(f64.per_rank_elements(), 16);
}

TEST(FlatLayoutTest, AddsNoPaddingWhereSizesFit) {
  ASSERT_OK_AND_ASSIGN(
      const FlatLayout layout,
      FlatLayout::Create({Make("w", "[64,64]"), Make("b", "[64,4]")}, 4,
                         DType::kBF16));
  EXPECT_EQ(layout.padding_elements(), 0);
}

// Parts of 66 elements would do for single ones; rows of 48 make them 96.
TEST(FlatLayoutTest, CutsNoRow) {
  ASSERT_OK_AND_ASSIGN(
      const FlatLayout layout,
      FlatLayout::Create({Make("w", "[5,48]", "row"), Make("b", "[24]")}, 4,
                         DType::kF32));
  EXPECT_EQ(layout.per_rank_elements(), 96);
  EXPECT_EQ(layout.granule(0), 48);
  ExpectPostConditions(layout, DType::kF32);
}

// In list order the first row would begin at 32, and no part be full.
TEST(FlatLayoutTest, ReordersTensorsWhereThatSavesPadding) {
  ASSERT_OK_AND_ASSIGN(
      const FlatLayout layout,
      FlatLayout::Create(
          {Make("b", "[32]"), Make("w", "[3,96]", "row"), Make("c", "[64]")}, 4,
          DType::kF32));
  EXPECT_EQ(layout.per_rank_elements(), 96);
  EXPECT_EQ(layout.padding_elements(), 0);
  EXPECT_THAT(layout.memory_order(), ElementsAre(1, 0, 2));
  ExpectPostConditions(layout, DType::kF32);
}

TEST(FlatLayoutTest, KeepsListOrderForElements) {
  ASSERT_OK_AND_ASSIGN(
      const FlatLayout layout,
      FlatLayout::Create({Make("a", "[3]"), Make("b", "[1000]"),
                          Make("c", "[77,5]"), Make("d", "[]")},
                         7, DType::kBF16));
  EXPECT_THAT(layout.memory_order(), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(layout.padding_bound(), layout.padding_elements());
}

TEST(FlatLayoutTest, KeepsItsPostConditionsForRandomTensors) {
  constexpr absl::string_view kGranularities[] = {"element", "inner-row", "row",
                                                  "rows:2", "rows:3"};
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    const auto pick = [&](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(random);
    };
    std::vector<FlatLayout::Tensor> tensors;
    for (int i = 0, count = pick(1, 12); i < count; ++i) {
      Dims extents(pick(0, 3));
      for (int64_t& extent : extents) extent = pick(1, 9);
      tensors.push_back({absl::StrCat("t", i), Shape::Create(extents).value(),
                         *Granularity::Parse(kGranularities[pick(0, 4)])});
    }
    const int64_t ranks = pick(1, 17);
    for (DType narrowest : kAllDTypes) {
      SCOPED_TRACE(DTypeName(narrowest));
      ASSERT_OK_AND_ASSIGN(const FlatLayout layout,
                           FlatLayout::Create(tensors, ranks, narrowest));
      EXPECT_EQ(layout.ranks(), ranks);
      ExpectPostConditions(layout, narrowest);
      EXPECT_EQ(layout, *FlatLayout::Create(tensors, ranks, narrowest));
    }
  }
}

TEST(FlatLayoutTest, RejectsTensorsWithoutElements) {
  EXPECT_THAT(FlatLayout::Create({Make("w", "[2]"), Make("none", "[3,0]")}, 4,
                                 DType::kF32),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("tensor 'none' [3,0] has no elements")));
}

TEST(FlatLayoutTest, RejectsNoTensorsAndNoRanks) {
  EXPECT_THAT(FlatLayout::Create({}, 1, DType::kF32),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("at least one tensor")));
  EXPECT_THAT(FlatLayout::Create({Make("w", "[1]")}, 0, DType::kF32),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("at least one rank, found 0")));
}

TEST(FlatLayoutTest, NamesTheTensorThatIsTooLarge) {
  // Two halves of what int64 counts in bytes of f64, less the last part.
  const std::string half = absl::StrCat("[", int64_t{1} << 59, "]");
  EXPECT_OK(FlatLayout::Create({Make("a", half)}, 1, DType::kF32).status());
  EXPECT_THAT(
      FlatLayout::Create({Make("a", half), Make("big", half), Make("c", "[1]")},
                         1, DType::kF32),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("'big'"), HasSubstr("int64"))));
  EXPECT_THAT(
      FlatLayout::Create(
          {Make("huge",
                absl::StrCat("[", std::numeric_limits<int64_t>::max(), "]"))},
          1, DType::kF32),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'huge'")));
  // One element, but a part of 128 bytes on each of too many ranks.
  EXPECT_THAT(
      FlatLayout::Create({Make("w", "[1]")}, int64_t{1} << 57, DType::kF32),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'w'")));
}

TEST(FlatLayoutTest, PrintsATable) {
  ASSERT_OK_AND_ASSIGN(
      const FlatLayout layout,
      FlatLayout::Create({Make("w", "[3,20]", "row"), Make("bias", "[20]")}, 2,
                         DType::kF32));
  EXPECT_EQ(layout.ToTable(),
            "tensor  shape   cut by               offset        elements\n"
            "w       [3,20]  row                       0              60\n"
            "bias    [20]    element                  60              20\n"
            "2 ranks, 64 elements per rank, padding 48 elements (60.00%)\n");
}

}  // namespace
}  // namespace tessera

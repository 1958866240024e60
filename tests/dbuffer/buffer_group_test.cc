#include "tessera/dbuffer/buffer_group.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
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

using GroupPtr = std::shared_ptr<const BufferGroup>;
using Options = BufferGroup::Options;

DeviceMesh Mesh(absl::string_view text) {
  return DeviceMesh::Parse(text).value();
}

BufferGroup::Tensor Make(absl::string_view name, absl::string_view layout,
                         const DeviceMesh& mesh) {
  return {std::string(name), Layout::Parse(layout, mesh).value()};
}

BufferPlacements Parse(absl::string_view text) {
  return ParseBufferPlacements(text).value();
}

// HSDP with tensor parallelism: tp cuts the tensors, dp_inner the buffer.
class BufferGroupTest : public ::testing::Test {
 protected:
  absl::StatusOr<GroupPtr> Create(Options options) const {
    return BufferGroup::Create(mesh_,
                               {Make("w", "f32[8,5] [R, R, S(0)]", mesh_),
                                Make("b", "f32[5] [R, R, R]", mesh_)},
                               std::move(options));
  }

  const DeviceMesh mesh_ = Mesh("dp_outer=2,dp_inner=3,tp=2");
};

TEST_F(BufferGroupTest, TheLastAxisCutsFirstByDefault) {
  ASSERT_OK_AND_ASSIGN(const GroupPtr group,
                       Create({.axes = {0, 1}, .num_flat_axes = 2}));
  EXPECT_THAT(group->axes(), ElementsAre(0, 1));
  EXPECT_THAT(group->cut_order(), ElementsAre(1, 0));
  EXPECT_EQ(group->num_tensors(), 2);
  EXPECT_EQ(group->tensor(1).name, "b");
  EXPECT_EQ(group->narrowest(), DType::kF32);
}

TEST_F(BufferGroupTest, PlansForTheLargestPieceAndTheFlatAxes) {
  ASSERT_OK_AND_ASSIGN(const GroupPtr group,
                       Create({.axes = {0, 1}, .num_flat_axes = 1}));
  EXPECT_EQ(group->flat_layout().ranks(), 3);
  EXPECT_EQ(group->flat_layout().tensor(0).shape.ToString(), "[4,5]");
  EXPECT_EQ(group->flat_layout().tensor(1).shape.ToString(), "[5]");
  EXPECT_EQ(group->flat_layout().num_elements(), 96);
}

TEST_F(BufferGroupTest, RangesAreNestedEqualCuts) {
  ASSERT_OK_AND_ASSIGN(const GroupPtr group,
                       Create({.axes = {0, 1}, .num_flat_axes = 2}));
  // 192 elements in 3 parts along dp_inner, each in 2 along dp_outer.
  const int rank = mesh_.RankAt({1, 2, 0});
  EXPECT_EQ(*group->RangeOf(Parse("[R, R]"), rank), (Interval{0, 192}));
  EXPECT_EQ(*group->RangeOf(Parse("[P, Flat]"), rank), (Interval{128, 192}));
  EXPECT_EQ(*group->RangeOf(Parse("[Flat, Flat]"), rank), (Interval{160, 192}));
  EXPECT_EQ(group->RangeSize(Parse("[R, P]")), 192);
  EXPECT_EQ(group->RangeSize(Parse("[R, Flat]")), 64);
  EXPECT_THAT(group->RangeOf(Parse("[R, R]"), 12),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("12")));
}

TEST_F(BufferGroupTest, RangesFollowTheCutOrder) {
  ASSERT_OK_AND_ASSIGN(
      const GroupPtr group,
      Create({.axes = {0, 1}, .cut_order = {0, 1}, .num_flat_axes = 2}));
  const int rank = mesh_.RankAt({1, 2, 0});
  EXPECT_EQ(*group->RangeOf(Parse("[Flat, R]"), rank), (Interval{96, 192}));
  EXPECT_EQ(*group->RangeOf(Parse("[Flat, Flat]"), rank), (Interval{160, 192}));
  EXPECT_EQ(*group->RangeOf(Parse("[Flat, Flat]"), mesh_.RankAt({1, 0, 1})),
            (Interval{96, 128}));
}

TEST_F(BufferGroupTest, PlacementsAreInTheCallersAxisOrder) {
  ASSERT_OK_AND_ASSIGN(const GroupPtr group,
                       Create({.axes = {1, 0}, .num_flat_axes = 1}));
  EXPECT_THAT(group->cut_order(), ElementsAre(0, 1));
  const BufferPlacements placements = Parse("[P(sum), Flat]");
  EXPECT_TRUE(group->PlacementOf(placements, 0).is_flat());
  EXPECT_TRUE(group->PlacementOf(placements, 1).is_partial());
  EXPECT_EQ(group->IndexOf(0), 1);
  EXPECT_OK(group->Validate(placements));
}

TEST_F(BufferGroupTest, ValidateNamesTheAxis) {
  ASSERT_OK_AND_ASSIGN(const GroupPtr group,
                       Create({.axes = {0, 1}, .num_flat_axes = 1}));
  for (absl::string_view good :
       {"[R, R]", "[P, Flat]", "[R, Flat]", "[P(avg), P(sum)]", "[P(max), R]",
        "[P(min), P(min)]"}) {
    EXPECT_OK(group->Validate(Parse(good))) << good;
  }
  const struct {
    absl::string_view placements;
    absl::string_view message;
  } kCases[] = {
      {"[R]", "each of the 2 data-parallel axes, found [R]"},
      {"[R, R, R]", "found [R, R, R]"},
      {"[Flat, R]", "'dp_outer' is Flat, but axis 'dp_inner', which cuts"},
      {"[Flat, Flat]", "'dp_outer' is Flat, but the group has 1 flat axes"},
      {"[P(max), P(sum)]", "'dp_inner' does not commute"},
      {"[P(min), P(max)]", "'dp_inner' does not commute"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.placements);
    EXPECT_THAT(group->Validate(Parse(c.placements)),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(std::string(c.message))));
  }
}

TEST_F(BufferGroupTest, ValidateIsThePrefixRule) {
  const DeviceMesh mesh = Mesh("a=2,b=2,c=2");
  for (int num_flat = 0; num_flat <= 3; ++num_flat) {
    ASSERT_OK_AND_ASSIGN(
        const GroupPtr group,
        BufferGroup::Create(mesh, {Make("w", "f32[4] [R, R, R]", mesh)},
                            {.axes = {0, 1, 2},
                             .cut_order = {1, 2, 0},
                             .num_flat_axes = num_flat}));
    for (int flat_axes = 0; flat_axes < 8; ++flat_axes) {
      BufferPlacements placements(3);
      for (int axis = 0; axis < 3; ++axis) {
        if (flat_axes >> axis & 1) placements[axis] = BufferPlacement::Flat();
      }
      const bool legal = flat_axes == 0 || (flat_axes == 2 && num_flat >= 1) ||
                         (flat_axes == 6 && num_flat >= 2) ||
                         (flat_axes == 7 && num_flat == 3);
      EXPECT_EQ(group->Validate(placements).ok(), legal)
          << BufferPlacementsToString(placements) << " of " << num_flat;
    }
  }
}

TEST_F(BufferGroupTest, RejectsBadOptions) {
  const struct {
    Options options;
    absl::string_view message;
  } kCases[] = {
      {{.axes = {0, 3}}, "axis 3 is not one of 3"},
      {{.axes = {-1}}, "axis -1"},
      {{.axes = {1, 1}}, "'dp_inner' repeats"},
      {{.axes = {0, 1}, .cut_order = {1}}, "found (1)"},
      {{.axes = {0, 1}, .cut_order = {1, 2}}, "found (1,2)"},
      {{.axes = {0, 1}, .cut_order = {1, 1}}, "found (1,1)"},
      {{.axes = {0, 1}, .num_flat_axes = 3}, "3 flat axes, want 0 to 2"},
      {{.axes = {0, 1}, .num_flat_axes = -1}, "-1 flat axes"},
  };
  for (const auto& c : kCases) {
    EXPECT_THAT(Create(c.options), StatusIs(absl::StatusCode::kInvalidArgument,
                                            HasSubstr(std::string(c.message))));
  }
}

TEST_F(BufferGroupTest, NamesTheTensorThatDoesNotFit) {
  const Layout replicated = Layout::Parse("f32[8,5] [R, R, R]", mesh_).value();
  const struct {
    Layout layout;
    absl::string_view message;
  } kCases[] = {
      {Layout::Parse("f32[8] [R]", Mesh("dp=12")).value(), "'dp=12'"},
      {Layout::Parse("bf16[8] [R, R, R]", mesh_).value(),
       "want f32 as the first tensor has, found bf16"},
      {replicated.With("[R, S(0), R]").value(),
       "want R along data-parallel axis 'dp_inner', found S(0)"},
      {replicated.With("[P, R, R]").value(), "'dp_outer', found P(sum)"},
      {replicated.With("[R, R, P]").value(),
       "want R or S(dim) along axis 'tp', found P(sum)"},
      {replicated.With("[R, R, Ragged(0,9,40)]").value(), "along axis 'tp'"},
  };
  for (const auto& c : kCases) {
    EXPECT_THAT(
        BufferGroup::Create(mesh_, {{"first", replicated}, {"odd", c.layout}},
                            {.axes = {0, 1}}),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 AllOf(HasSubstr(std::string(c.message)),
                       HasSubstr("in tensor 'odd'"))));
  }
}

TEST_F(BufferGroupTest, PassesOnWhatTheFlatLayoutRejects) {
  EXPECT_THAT(BufferGroup::Create(mesh_, {}, {.axes = {0}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("at least one tensor")));
  const Layout large =
      Layout::Parse("f32[1073741824,1073741824] [R, R, R]", mesh_).value();
  EXPECT_THAT(
      BufferGroup::Create(mesh_, {{"large", large}}, {.axes = {0}}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'large'")));
}

TEST_F(BufferGroupTest, TensorLayoutSaysWhatEachAxisDoes) {
  ASSERT_OK_AND_ASSIGN(const GroupPtr group,
                       Create({.axes = {0, 1}, .num_flat_axes = 2}));
  const auto text = [&](int i, DType dtype, absl::string_view placements) {
    return group->TensorLayout(i, dtype, Parse(placements))->ToString();
  };
  EXPECT_EQ(text(0, DType::kF32, "[R, R]"), "f32[8,5] [R, R, S(0)]");
  EXPECT_EQ(text(1, DType::kF64, "[P(avg), Flat]"),
            "f64[5] [P(avg), Ragged(-20+64)[0], R]");
  EXPECT_EQ(text(0, DType::kF32, "[Flat, Flat]"),
            "f32[8,5] [Ragged(0+32)[1], Ragged(0+32)[0], S(0)]");
  EXPECT_THAT(
      group->TensorLayout(0, DType::kI32, Parse("[P(avg), R]")),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'dp_outer'")));
}

// --- Who really holds which element -----------------------------------------

// The tensor elements (row-major indices) that a rank holds, in order: the
// cuts of other axes made one by one on lists of elements.
std::vector<int64_t> OtherAxesPiece(const Layout& layout,
                                    absl::Span<const int> coords) {
  const Shape& shape = layout.shape();
  std::vector<Interval> box;
  for (int dim = 0; dim < shape.num_dims(); ++dim) {
    std::vector<int64_t> held;
    for (int64_t i = 0; i < shape.extent(dim); ++i) held.push_back(i);
    for (int axis : layout.ShardAxes(dim)) {
      const int parts = layout.mesh().axis(axis).size;
      const size_t chunk = (held.size() + parts - 1) / parts;
      const size_t begin = std::min(held.size(), chunk * coords[axis]);
      const size_t end = std::min(held.size(), begin + chunk);
      held = std::vector<int64_t>(held.begin() + begin, held.begin() + end);
    }
    box.push_back(held.empty() ? Interval{0, 0}
                               : Interval{held.front(), held.back() + 1});
  }
  std::vector<int64_t> elements;
  for (int64_t e = 0; e < shape.num_elements(); ++e) {
    bool inside = true;
    int64_t rest = e;
    for (int dim = shape.num_dims() - 1; dim >= 0; --dim) {
      const int64_t index = rest % shape.extent(dim);
      rest /= shape.extent(dim);
      inside = inside && index >= box[dim].begin && index < box[dim].end;
    }
    if (inside) elements.push_back(e);
  }
  return elements;
}

// The same as a layout says it.
std::vector<int64_t> ElementsOf(const Region& region, const Shape& shape) {
  std::vector<int64_t> elements;
  for (int64_t i = 0; i < region.num_elements(); ++i) {
    int64_t rest = i + (region.flat.has_value() ? region.flat->begin : 0);
    int64_t element = 0;
    int64_t stride = 1;
    for (int dim = shape.num_dims() - 1; dim >= 0; --dim) {
      const Interval held = region.box[dim];
      element += (held.begin + rest % held.size()) * stride;
      rest /= held.size();
      stride *= shape.extent(dim);
    }
    elements.push_back(element);
  }
  return elements;
}

// Writes every tensor's piece into a buffer of all R, cuts the buffer, and
// looks what is left where: that is what TensorLayout must say.
void ExpectTrueLayouts(const BufferGroup& group,
                       const BufferPlacements& placements) {
  SCOPED_TRACE(BufferPlacementsToString(placements));
  const DeviceMesh& mesh = group.mesh();
  for (int rank = 0; rank < mesh.size(); ++rank) {
    SCOPED_TRACE(absl::StrCat("rank ", rank));
    const MeshCoords coords = *mesh.CoordsOf(rank);
    for (int i = 0; i < group.num_tensors(); ++i) {
      SCOPED_TRACE(group.tensor(i).name);
      std::vector<int64_t> held(group.flat_layout().num_elements(), -1);
      const std::vector<int64_t> piece =
          OtherAxesPiece(group.tensor(i).layout, coords);
      std::copy(piece.begin(), piece.end(),
                held.begin() + group.flat_layout().offset(i));
      for (int axis : group.cut_order()) {
        if (!group.PlacementOf(placements, axis).is_flat()) continue;
        const size_t part = held.size() / mesh.axis(axis).size;
        const auto begin = held.begin() + part * coords[axis];
        held = std::vector<int64_t>(begin, begin + part);
      }
      std::erase(held, -1);
      ASSERT_OK_AND_ASSIGN(const Layout layout,
                           group.TensorLayout(i, DType::kF32, placements));
      EXPECT_EQ(ElementsOf(layout.RegionOf(rank), layout.shape()), held);
    }
  }
}

// Every number of Flat axes, the others in turn R and P(sum).
void ExpectTrueLayoutsOf(const BufferGroup& group) {
  const int num_axes = static_cast<int>(group.axes().size());
  for (int num_flat = 0; num_flat <= num_axes; ++num_flat) {
    for (const BufferPlacement& other :
         {BufferPlacement::Replicate(), BufferPlacement::Partial()}) {
      BufferPlacements placements(num_axes, other);
      for (int k = 0; k < num_flat; ++k) {
        placements[group.IndexOf(group.cut_order()[k])] =
            BufferPlacement::Flat();
      }
      ExpectTrueLayouts(group, placements);
    }
  }
}

TEST(BufferGroupTensorLayoutTest, IsTrueWithoutOtherAxes) {
  const DeviceMesh mesh = Mesh("dp_outer=2,dp_inner=3");
  for (const std::vector<int>& cut_order :
       {std::vector<int>{0, 1}, std::vector<int>{1, 0}}) {
    ASSERT_OK_AND_ASSIGN(
        const GroupPtr group,
        BufferGroup::Create(
            mesh,
            {Make("w", "f32[9,7] [R, R]", mesh),
             Make("scalar", "f32[] [R, R]", mesh),
             Make("v", "f32[50] [R, R]", mesh)},
            {.axes = {0, 1}, .cut_order = cut_order, .num_flat_axes = 2}));
    ExpectTrueLayoutsOf(*group);
  }
}

TEST(BufferGroupTensorLayoutTest, IsTrueBesideTensorParallelism) {
  const DeviceMesh mesh = Mesh("dp_outer=2,dp_inner=2,tp=3");
  for (const std::vector<int>& cut_order :
       {std::vector<int>{0, 1}, std::vector<int>{1, 0}}) {
    ASSERT_OK_AND_ASSIGN(
        const GroupPtr group,
        BufferGroup::Create(
            mesh,
            {Make("even", "f32[6,11] [R, R, S(0)]", mesh),
             Make("uneven", "f32[7,9] [R, R, S(0)]", mesh),
             Make("empty", "f32[2,5] [R, R, S(0)]", mesh),
             Make("columns", "f32[5,7] [R, R, S(1)]", mesh),
             Make("norm", "f32[10] [R, R, R]", mesh)},
            {.axes = {0, 1}, .cut_order = cut_order, .num_flat_axes = 2}));
    ExpectTrueLayoutsOf(*group);
  }
}

TEST(BufferGroupTensorLayoutTest, KeepsTheTensorsOwnCuttingOrder) {
  const DeviceMesh mesh = Mesh("ep=2,dp=3,tp=2");
  ASSERT_OK_AND_ASSIGN(
      const GroupPtr group,
      BufferGroup::Create(mesh,
                          {Make("w", "f32[11,6] [S(0)[1], R, S(0)[0]]", mesh)},
                          {.axes = {1}, .num_flat_axes = 1}));
  ExpectTrueLayoutsOf(*group);
}

// Parts end between rows, whichever rank's: the cut is the same for all.
TEST(BufferGroupTensorLayoutTest, CutsNoRowOfAnyRank) {
  const DeviceMesh mesh = Mesh("dp=3,tp=2");
  BufferGroup::Tensor rows = Make("rows", "f32[7,20] [R, S(0)]", mesh);
  rows.granularity = Granularity::Row();
  BufferGroup::Tensor columns = Make("columns", "f32[9,8] [R, S(1)]", mesh);
  columns.granularity = *Granularity::Rows(2);
  BufferGroup::Tensor inner = Make("inner", "f32[3,5,4] [R, S(1)]", mesh);
  inner.granularity = Granularity::InnerRow();
  ASSERT_OK_AND_ASSIGN(const GroupPtr group,
                       BufferGroup::Create(mesh, {rows, columns, inner},
                                           {.axes = {0}, .num_flat_axes = 1}));
  ExpectTrueLayoutsOf(*group);
  const int64_t granules[] = {20, 8, 4};
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK_AND_ASSIGN(const Layout layout,
                         group->TensorLayout(i, DType::kF32, Parse("[Flat]")));
    for (int rank = 0; rank < mesh.size(); ++rank) {
      const Region region = layout.RegionOf(rank);
      if (region.num_elements() == 0) continue;
      EXPECT_EQ(region.flat->begin % granules[i], 0) << i << " " << rank;
    }
  }
}

TEST(BufferGroupTensorLayoutTest, RejectsGranulesThatDifferBetweenRanks) {
  const DeviceMesh mesh = Mesh("dp=3,tp=2");
  const auto create = [&](absl::string_view layout, Granularity granularity) {
    BufferGroup::Tensor tensor = Make("w", layout, mesh);
    tensor.granularity = granularity;
    return BufferGroup::Create(mesh, {tensor},
                               {.axes = {0}, .num_flat_axes = 1})
        .status();
  };
  EXPECT_THAT(create("f32[8,5] [R, S(1)]", Granularity::Row()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("'w'"), HasSubstr("dim 1 of [8,5]"),
                             HasSubstr("in 2 unequal parts"))));
  EXPECT_OK(create("f32[8,5] [R, S(1)]", Granularity::Element()));
  EXPECT_OK(create("f32[7,5] [R, S(0)]", Granularity::Row()));
  EXPECT_OK(create("f32[7,5,3] [R, S(1)]", Granularity::InnerRow()));
  EXPECT_FALSE(create("f32[7,4,3] [R, S(2)]", Granularity::InnerRow()).ok());
  EXPECT_OK(create("f32[7] [R, S(0)]", Granularity::InnerRow()));
}

}  // namespace
}  // namespace tessera

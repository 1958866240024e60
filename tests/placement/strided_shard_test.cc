#include "tessera/placement/strided_shard.h"

#include <algorithm>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::IsOkAndHolds;
using ::tessera::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Layout Parse(const char* mesh, const char* text) {
  return Layout::Parse(text, DeviceMesh::Parse(mesh).value()).value();
}

TEST(StridedShardTest, SpellsTensorParallelFirstThenDataParallel) {
  const Layout layout = Parse("dp=2,tp=4", "f32[64,8] [S(0)[1], S(0)[0]]");
  EXPECT_THAT(
      ToDTensor(layout),
      IsOkAndHolds(ElementsAre(DTensorPlacement{Placement::Shard(0), 4},
                               DTensorPlacement{Placement::Shard(0), 1})));
  EXPECT_THAT(
      FromDTensor(layout.meta(), layout.mesh(),
                  {{Placement::Shard(-2), 4}, {Placement::Shard(0), 1}}),
      IsOkAndHolds(layout));
}

TEST(StridedShardTest, MeshOrderAndOtherPlacementsHaveNoFactor) {
  const Layout layout =
      Parse("a=2,b=3,c=2,d=2", "f32[64,8] [S(0), S(0), P(sum), R]");
  EXPECT_THAT(
      ToDTensor(layout),
      IsOkAndHolds(ElementsAre(DTensorPlacement{Placement::Shard(0)},
                               DTensorPlacement{Placement::Shard(0)},
                               DTensorPlacement{Placement::Partial()},
                               DTensorPlacement{Placement::Replicate()})));
}

// All cutting orders of up to four axes, two dims among them.
TEST(StridedShardTest, RoundTripsEveryCuttingOrder) {
  const DeviceMesh mesh = DeviceMesh::Parse("a=2,b=3,c=2,d=4").value();
  const TensorMeta meta = TensorMeta::Create(DType::kF32, {96, 96}).value();
  int layouts = 0;
  for (int mask = 0; mask < 16; ++mask) {
    std::vector<Placement> placements;
    absl::InlinedVector<int, 4> dims[2];
    for (int axis = 0; axis < 4; ++axis) {
      const int dim = mask >> axis & 1;
      placements.push_back(Placement::Shard(dim));
      dims[dim].push_back(axis);
    }
    do {
      do {
        ASSERT_OK_AND_ASSIGN(const Layout layout,
                             Layout::Create(meta, mesh, placements,
                                            {{0, dims[0]}, {1, dims[1]}}));
        ASSERT_OK_AND_ASSIGN(const auto exported, ToDTensor(layout));
        EXPECT_THAT(FromDTensor(meta, mesh, exported), IsOkAndHolds(layout));
        ++layouts;
      } while (std::next_permutation(dims[1].begin(), dims[1].end()));
    } while (std::next_permutation(dims[0].begin(), dims[0].end()));
  }
  // Sum over the masks of (axes of dim 0)! * (axes of dim 1)!.
  EXPECT_EQ(layouts, 2 * 24 + 8 * 6 + 6 * 4);
}

TEST(StridedShardTest, RejectsFactorsThatNoOrderGives) {
  const DeviceMesh mesh = DeviceMesh::Parse("dp=2,tp=4").value();
  const TensorMeta meta = TensorMeta::Create(DType::kF32, {64}).value();
  for (int64_t factor : {int64_t{-1}, int64_t{0}, int64_t{2}, int64_t{3},
                         int64_t{8}, INT64_MAX}) {
    EXPECT_THAT(
        FromDTensor(meta, mesh,
                    {{Placement::Shard(0), factor}, {Placement::Shard(0), 1}}),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 AllOf(HasSubstr("split factor"), HasSubstr("'dp'"))))
        << factor;
  }
  EXPECT_THAT(FromDTensor(meta, mesh, {{Placement::Replicate(), 4}, {}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'dp'")));
  EXPECT_THAT(FromDTensor(meta, mesh, {{Placement::Shard(0), 1}}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(ToDTensor(Parse("x=2", "f32[10] [Ragged(0,3,10)]")),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("'x'")));
}

}  // namespace
}  // namespace tessera

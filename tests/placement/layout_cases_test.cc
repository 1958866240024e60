#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tessera/placement/layout.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

// What each rank holds under a layout, ranks in row-major mesh order: sizes
// and offsets per tensor dim. An empty piece has the tensor's extent as its
// offset.
struct Piece {
  std::vector<int64_t> sizes;
  std::vector<int64_t> offsets;
};

struct Case {
  std::vector<int64_t> shape;
  std::vector<int> mesh;
  const char* layout;
  std::vector<Piece> pieces;
};

// Uneven, nested, reordered and empty shards, worked out by hand.
std::vector<Case> AllCases() {
  return {
      {{18},
       {4, 2},
       "[S(0), S(0)]",
       {{{3}, {0}},
        {{2}, {3}},
        {{3}, {5}},
        {{2}, {8}},
        {{3}, {10}},
        {{2}, {13}},
        {{2}, {15}},
        {{1}, {17}}}},
      // Last rank empty.
      {{13},
       {4, 2},
       "[S(0), S(0)]",
       {{{2}, {0}},
        {{2}, {2}},
        {{2}, {4}},
        {{2}, {6}},
        {{2}, {8}},
        {{2}, {10}},
        {{1}, {12}},
        {{0}, {13}}}},
      // Axis 1 cuts first.
      {{18},
       {4, 2},
       "[S(0)[1], S(0)[0]]",
       {{{3}, {0}},
        {{3}, {9}},
        {{3}, {3}},
        {{3}, {12}},
        {{3}, {6}},
        {{3}, {15}},
        {{0}, {18}},
        {{0}, {18}}}},
      // 2,1,1,1 nested; a flat cut over 4 would be 2,2,1,0: the two must never
      // be merged.
      {{5, 3},
       {2, 2},
       "[S(0), S(0)]",
       {{{2, 3}, {0, 0}},
        {{1, 3}, {2, 0}},
        {{1, 3}, {3, 0}},
        {{1, 3}, {4, 0}}}},
      // 1,1,0,1,1,0 nested; flat over 6 would be 1,1,1,1,0,0.
      {{4},
       {2, 3},
       "[S(0), S(0)]",
       {{{1}, {0}},
        {{1}, {1}},
        {{0}, {4}},
        {{1}, {2}},
        {{1}, {3}},
        {{0}, {4}}}},
      // Two elements on eight ranks.
      {{2},
       {2, 4},
       "[S(0), S(0)]",
       {{{1}, {0}},
        {{0}, {2}},
        {{0}, {2}},
        {{0}, {2}},
        {{1}, {1}},
        {{0}, {2}},
        {{0}, {2}},
        {{0}, {2}}}},
      // 2,2,2,0.
      {{6}, {4}, "[S(0)]", {{{2}, {0}}, {{2}, {2}}, {{2}, {4}}, {{0}, {6}}}},
      // 2,2,1,0.
      {{5}, {4}, "[S(0)]", {{{2}, {0}}, {{2}, {2}}, {{1}, {4}}, {{0}, {5}}}},
      {{0, 4}, {2}, "[S(0)]", {{{0, 4}, {0, 0}}, {{0, 4}, {0, 0}}}},
      {{2, 8},
       {4},
       "[S(0)]",
       {{{1, 8}, {0, 0}},
        {{1, 8}, {1, 0}},
        {{0, 8}, {2, 0}},
        {{0, 8}, {2, 0}}}},
      {{8},
       {2, 2, 2},
       "[S(0)[1], S(0)[2], S(0)[0]]",
       {{{1}, {0}},
        {{1}, {4}},
        {{1}, {1}},
        {{1}, {5}},
        {{1}, {2}},
        {{1}, {6}},
        {{1}, {3}},
        {{1}, {7}}}},
      {{17, 5},
       {2, 2, 2},
       "[S(0)[1], S(1), S(0)[0]]",
       {{{5, 3}, {0, 0}},
        {{4, 3}, {9, 0}},
        {{5, 2}, {0, 3}},
        {{4, 2}, {9, 3}},
        {{4, 3}, {5, 0}},
        {{4, 3}, {13, 0}},
        {{4, 2}, {5, 3}},
        {{4, 2}, {13, 3}}}},
      {{33, 16, 8, 1},
       {2, 3},
       "[S(0), S(3)]",
       {{{17, 16, 8, 1}, {0, 0, 0, 0}},
        {{17, 16, 8, 0}, {0, 0, 0, 1}},
        {{17, 16, 8, 0}, {0, 0, 0, 1}},
        {{16, 16, 8, 1}, {17, 0, 0, 0}},
        {{16, 16, 8, 0}, {17, 0, 0, 1}},
        {{16, 16, 8, 0}, {17, 0, 0, 1}}}},
      {{1, 1},
       {3},
       "[S(1)]",
       {{{1, 1}, {0, 0}}, {{1, 0}, {0, 1}}, {{1, 0}, {0, 1}}}},
      {{10},
       {2, 3},
       "[S(0), S(0)]",
       {{{2}, {0}},
        {{2}, {2}},
        {{1}, {4}},
        {{2}, {5}},
        {{2}, {7}},
        {{1}, {9}}}},
      {{7, 11, 5},
       {2, 3},
       "[S(1)[1], S(1)[0]]",
       {{{7, 2, 5}, {0, 0, 0}},
        {{7, 2, 5}, {0, 4, 0}},
        {{7, 2, 5}, {0, 8, 0}},
        {{7, 2, 5}, {0, 2, 0}},
        {{7, 2, 5}, {0, 6, 0}},
        {{7, 1, 5}, {0, 10, 0}}}},
  };
}

DeviceMesh MeshOf(const std::vector<int>& sizes) {
  std::vector<MeshAxis> axes;
  int stride = 1;
  for (size_t i = sizes.size(); i-- > 0; stride *= sizes[i]) {
    axes.insert(axes.begin(), {absl::StrCat("axis", i), sizes[i], stride});
  }
  return DeviceMesh::CreateAffine(axes, 0).value();
}

TEST(LayoutCasesTest, RanksHoldWhatTheTableSays) {
  for (const Case& c : AllCases()) {
    ASSERT_OK_AND_ASSIGN(const TensorMeta meta,
                         TensorMeta::Create(DType::kF32, c.shape));
    const DeviceMesh mesh = MeshOf(c.mesh);
    ASSERT_OK_AND_ASSIGN(
        const Layout layout,
        Layout::Parse(absl::StrCat(meta.ToString(), " ", c.layout), mesh));
    SCOPED_TRACE(layout.ToString());
    ASSERT_EQ(static_cast<int>(c.pieces.size()), mesh.size());
    for (int rank = 0; rank < mesh.size(); ++rank) {
      Region wanted;
      for (size_t dim = 0; dim < c.shape.size(); ++dim) {
        const int64_t offset = c.pieces[rank].offsets[dim];
        wanted.box.push_back({offset, offset + c.pieces[rank].sizes[dim]});
      }
      EXPECT_EQ(layout.RegionOf(rank), wanted) << "rank " << rank;
      EXPECT_EQ(layout.LocalMeta(rank),
                *TensorMeta::Create(DType::kF32, c.pieces[rank].sizes));
    }
  }
}

}  // namespace
}  // namespace tessera

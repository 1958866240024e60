// Regions against an element-wise reference, over small worlds.

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/placement/layout.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::IsOkAndHolds;

using Elements = std::vector<int64_t>;  // row-major numbers of elements

// ---------------------------------------------------------------------------
// The reference: what is held, one element at a time, by the definitions.

// The k-th of `held` goes to piece k / ceil(size / parts).
Elements CutOnce(const Elements& held, int parts, int index) {
  const int64_t size = static_cast<int64_t>(held.size());
  const int64_t chunk = (size + parts - 1) / parts;
  Elements piece;
  for (int64_t k = 0; k < size; ++k) {
    if (k / chunk == index) piece.push_back(held[k]);
  }
  return piece;
}

// All elements of the box with these indices per dim, row-major.
Elements BoxElements(const Shape& shape, const std::vector<Elements>& indices) {
  Elements result = {0};
  for (int dim = 0; dim < shape.num_dims(); ++dim) {
    Elements longer;
    for (int64_t prefix : result) {
      for (int64_t index : indices[dim]) {
        longer.push_back(prefix * shape.extent(dim) + index);
      }
    }
    result = std::move(longer);
  }
  return result;
}

bool HoldsFlatElement(const RaggedCut& cut, int64_t piece, int64_t k) {
  if (cut.is_affine()) {
    const int64_t begin = cut.first() + piece * cut.step();
    return begin <= k && k < begin + cut.step();
  }
  return cut.bounds()[piece] <= k && k < cut.bounds()[piece + 1];
}

// What one rank holds. `order` lists all axes in the order in which they cut;
// `ragged` those of the ragged cut, major first.
Elements ReferenceElements(const Shape& shape, const DeviceMesh& mesh,
                           const Placements& placements,
                           const std::vector<int>& order,
                           const std::vector<int>& ragged,
                           const MeshCoords& coords) {
  std::vector<Elements> indices;
  for (int64_t extent : shape.extents()) {
    indices.emplace_back(extent);
    std::iota(indices.back().begin(), indices.back().end(), 0);
  }
  for (int axis : order) {
    if (!placements[axis].is_shard()) continue;
    Elements& held = indices[placements[axis].dim()];
    held = CutOnce(held, mesh.axis(axis).size, coords[axis]);
  }
  const Elements box = BoxElements(shape, indices);
  if (ragged.empty()) return box;
  int64_t piece = 0;
  for (int axis : ragged) piece = piece * mesh.axis(axis).size + coords[axis];
  Elements result;
  for (int64_t k = 0; k < static_cast<int64_t>(box.size()); ++k) {
    if (HoldsFlatElement(placements[ragged.front()].cut(), piece, k)) {
      result.push_back(box[k]);
    }
  }
  return result;
}

// ---------------------------------------------------------------------------
// What a region says, spelled out.

Elements RegionElements(const Shape& shape, const Region& region) {
  std::vector<Elements> indices;
  for (const Interval& interval : region.box) {
    indices.emplace_back(interval.size());
    std::iota(indices.back().begin(), indices.back().end(), interval.begin);
  }
  const Elements box = BoxElements(shape, indices);
  if (!region.flat.has_value()) return box;
  return Elements(box.begin() + region.flat->begin,
                  box.begin() + region.flat->end);
}

// An empty interval of the box begins at the tensor's extent, one of the
// flattening at the box's.
void CheckEmptyPieces(const Shape& shape, const Region& region) {
  for (int dim = 0; dim < shape.num_dims(); ++dim) {
    if (region.box[dim].empty()) {
      EXPECT_EQ(region.box[dim].begin, shape.extent(dim));
    }
  }
  if (region.flat.has_value() && region.flat->empty()) {
    EXPECT_EQ(region.flat->begin, region.box_elements());
  }
}

void CheckUpperBound(const Layout& layout, const Region& region) {
  const Region largest = layout.LargestRegion();
  for (size_t dim = 0; dim < region.box.size(); ++dim) {
    EXPECT_GE(largest.box[dim].size(), region.box[dim].size());
  }
  if (!region.flat.has_value()) {
    EXPECT_GE(largest.num_elements(), region.num_elements());
  }
}

// ---------------------------------------------------------------------------
// One layout.

struct Instance {
  Placements placements;
  std::vector<int> order;   // all axes, in cutting order
  std::vector<int> ragged;  // major first
};

std::vector<Layout::DimOrder> DimOrders(const Shape& shape,
                                        const Instance& instance) {
  std::vector<Layout::DimOrder> result;
  for (int dim = 0; dim < shape.num_dims(); ++dim) {
    Layout::DimOrder entry{dim, {}};
    for (int axis : instance.order) {
      if (instance.placements[axis].is_shard(dim)) entry.axes.push_back(axis);
    }
    result.push_back(std::move(entry));
  }
  return result;
}

// Every rank holds what the reference says; ranks that differ along Shard or
// Ragged axes only hold every element exactly once.
void CheckInstance(const TensorMeta& meta, const DeviceMesh& mesh,
                   const Instance& instance) {
  ASSERT_OK_AND_ASSIGN(const Layout layout,
                       Layout::Create(meta, mesh, instance.placements,
                                      DimOrders(meta.shape(), instance)));
  SCOPED_TRACE(layout.ToString() + " on " + mesh.ToString());
  std::map<MeshCoords, Elements> held_by_replica;
  int64_t most_elements = 0;
  for (int rank = mesh.offset(); rank < mesh.end_rank(); ++rank) {
    const std::optional<MeshCoords> coords = mesh.CoordsOf(rank);
    if (!coords.has_value()) continue;
    const Region region = layout.RegionOf(rank);
    EXPECT_EQ(layout.RegionAt(*coords), region);
    const Elements elements = RegionElements(meta.shape(), region);
    ASSERT_EQ(elements,
              ReferenceElements(meta.shape(), mesh, instance.placements,
                                instance.order, instance.ragged, *coords));
    EXPECT_EQ(region.num_elements(), static_cast<int64_t>(elements.size()));
    EXPECT_EQ(layout.LocalMeta(rank).num_elements(), region.num_elements());
    CheckEmptyPieces(meta.shape(), region);
    CheckUpperBound(layout, region);
    most_elements = std::max(most_elements, region.num_elements());
    MeshCoords replica = *coords;
    for (int axis = 0; axis < mesh.num_axes(); ++axis) {
      const Placement& p = instance.placements[axis];
      if (p.is_shard() || p.is_ragged()) replica[axis] = 0;
    }
    Elements& held = held_by_replica[replica];
    held.insert(held.end(), elements.begin(), elements.end());
  }
  EXPECT_EQ(layout.MostElements(), most_elements);
  Elements all(meta.num_elements());
  std::iota(all.begin(), all.end(), 0);
  for (auto& [replica, held] : held_by_replica) {
    std::sort(held.begin(), held.end());
    EXPECT_EQ(held, all);
  }
  EXPECT_THAT(Layout::Parse(layout.ToString(), mesh), IsOkAndHolds(layout));
}

// ---------------------------------------------------------------------------
// All layouts of a small world.

// Cuts of `extent` elements over `parts`: affine and explicit ones that begin
// early, late and in between, with empty pieces, and beyond the extent.
std::vector<RaggedCut> SomeCuts(int64_t parts, int64_t extent,
                                std::mt19937& random) {
  const int64_t even = std::max<int64_t>(1, CeilDiv(extent, parts));
  std::vector<RaggedCut> cuts = {
      RaggedCut::Affine(0, even).value(),
      RaggedCut::Affine(0, extent + 5).value(),
      // The last piece just reaches the end.
      RaggedCut::Affine(extent - parts * (extent + 1), extent + 1).value()};
  std::vector<int64_t> bounds = {0};
  for (int64_t i = 1; i < parts; ++i) {
    bounds.push_back(static_cast<int64_t>(random() % (extent + 1)));
  }
  std::sort(bounds.begin(), bounds.end());
  bounds.push_back(extent + static_cast<int64_t>(random() % 2));
  cuts.push_back(RaggedCut::Explicit(bounds).value());
  return cuts;
}

// Elements of the largest box that the Shard axes leave.
int64_t LargestBox(const Shape& shape, const DeviceMesh& mesh,
                   const Instance& instance) {
  const Elements box =
      ReferenceElements(shape, mesh, instance.placements, instance.order,
                        /*ragged=*/{}, MeshCoords(mesh.num_axes(), 0));
  return static_cast<int64_t>(box.size());
}

// Checks `instance` with its ragged axes cut in every order by several cuts.
void CheckRaggedInstance(const TensorMeta& meta, const DeviceMesh& mesh,
                         Instance instance, std::mt19937& random) {
  const int64_t extent = LargestBox(meta.shape(), mesh, instance);
  int64_t parts = 1;
  for (int axis : instance.ragged) parts *= mesh.axis(axis).size;
  do {
    for (const RaggedCut& cut : SomeCuts(parts, extent, random)) {
      for (size_t i = 0; i < instance.ragged.size(); ++i) {
        instance.placements[instance.ragged[i]] =
            Placement::Ragged(cut, static_cast<int>(i));
      }
      CheckInstance(meta, mesh, instance);
    }
  } while (
      std::next_permutation(instance.ragged.begin(), instance.ragged.end()));
}

// A tensor dim to shard, or one of these.
constexpr int kPartial = -1;
constexpr int kReplicate = -2;
constexpr int kRagged = -3;

// With axes cut in mesh-axis order; ragged axes are placed later.
Instance InstanceOf(const std::vector<int>& kinds) {
  Instance instance;
  for (int axis = 0; axis < static_cast<int>(kinds.size()); ++axis) {
    instance.order.push_back(axis);
    switch (kinds[axis]) {
      case kPartial:
        instance.placements.push_back(Placement::Partial());
        break;
      case kReplicate:
        instance.placements.push_back(Placement::Replicate());
        break;
      case kRagged:
        instance.placements.push_back(Placement::Replicate());
        instance.ragged.push_back(axis);
        break;
      default:
        instance.placements.push_back(Placement::Shard(kinds[axis]));
    }
  }
  return instance;
}

// Checks `instance` with its ragged axes, if any, in all ways.
void CheckAllCuts(const TensorMeta& meta, const DeviceMesh& mesh,
                  const Instance& instance, std::mt19937& random) {
  if (instance.ragged.empty()) {
    CheckInstance(meta, mesh, instance);
  } else {
    CheckRaggedInstance(meta, mesh, instance, random);
  }
}

// Checks these kinds of placements in every order of cutting.
void CheckKinds(const TensorMeta& meta, const DeviceMesh& mesh,
                const std::vector<int>& kinds, std::mt19937& random) {
  Instance instance = InstanceOf(kinds);
  do {
    CheckAllCuts(meta, mesh, instance, random);
  } while (std::next_permutation(instance.order.begin(), instance.order.end()));
}

void CheckWorld(const Shape& shape, const DeviceMesh& mesh) {
  constexpr uint32_t kSeed = 17;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  const TensorMeta meta = TensorMeta::Create(DType::kF32, shape).value();
  std::vector<int> kinds(mesh.num_axes(), kRagged);
  while (!::testing::Test::HasFatalFailure()) {
    CheckKinds(meta, mesh, kinds, random);
    // The next of all combinations, counting up from the last axis.
    int axis = mesh.num_axes() - 1;
    while (axis >= 0 && ++kinds[axis] == shape.num_dims()) {
      kinds[axis--] = kRagged;
    }
    if (axis < 0) return;
  }
}

class LayoutPropertyTest : public ::testing::TestWithParam<const char*> {};

TEST_P(LayoutPropertyTest, RegionsPartitionTheTensorAsDefined) {
  ASSERT_OK_AND_ASSIGN(const DeviceMesh mesh, DeviceMesh::Parse(GetParam()));
  for (const char* shape : {"[]", "[0]", "[1]", "[5]", "[13]", "[3,4]", "[0,3]",
                            "[2,0]", "[7,1]", "[3,1,2]", "[2,3,3]"}) {
    CheckWorld(Shape::Parse(shape).value(), mesh);
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, LayoutPropertyTest,
                         ::testing::Values("a=4", "a=2,b=2", "a=2,b=3",
                                           "a=3,b=2", "a=1", "a=1,b=3",
                                           "a=2,b=1", "a=2,b=2,c=2",
                                           "a=2,b=1,c=2", "a=1,b=1,c=1",
                                           "a=2:3,b=2:1@4"));

// Larger tensors and meshes, at random.

// Up to four axes of up to four ranks, in any order, with gaps between ranks.
DeviceMesh RandomMesh(std::mt19937& random) {
  std::vector<MeshAxis> axes;
  int stride = 1;
  for (char name : absl::string_view("abcd").substr(0, 1 + random() % 4)) {
    const int size = 1 + static_cast<int>(random() % 4);
    axes.push_back({std::string(1, name), size, stride});
    stride = stride * size + static_cast<int>(random() % 2);
  }
  std::shuffle(axes.begin(), axes.end(), random);
  return DeviceMesh::CreateAffine(axes, static_cast<int>(random() % 3)).value();
}

TensorMeta RandomMeta(std::mt19937& random) {
  Dims extents(random() % 4);
  for (int64_t& extent : extents) extent = static_cast<int64_t>(random() % 12);
  return TensorMeta::Create(DType::kBF16, extents).value();
}

TEST(LayoutRandomTest, RegionsPartitionTheTensorAsDefined) {
  constexpr uint32_t kSeed = 20240612;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  for (int round = 0; round < 500; ++round) {
    const DeviceMesh mesh = RandomMesh(random);
    const TensorMeta meta = RandomMeta(random);
    std::vector<int> kinds(mesh.num_axes());
    for (int& kind : kinds) {
      kind =
          kRagged + static_cast<int>(random() % (3 + meta.shape().num_dims()));
    }
    Instance instance = InstanceOf(kinds);
    std::shuffle(instance.order.begin(), instance.order.end(), random);
    CheckAllCuts(meta, mesh, instance, random);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace tessera

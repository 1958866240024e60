#include "tests/redistribute/random_layouts.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tessera::testing {
namespace {

template <typename List>
void Shuffle(List& list, SeededRandom& random) {
  for (size_t i = list.size(); i > 1; --i) {
    std::swap(list[i - 1], list[random() % i]);
  }
}

// Cuts `extent` elements in so many pieces, some of them empty.
RaggedCut RandomCut(int64_t parts, int64_t extent, SeededRandom& random) {
  if (random() % 2 == 0) {
    const int64_t first = -static_cast<int64_t>(random() % 4);
    const int64_t step = (extent - first + parts - 1) / parts + random() % 2;
    return RaggedCut::Affine(first, std::max<int64_t>(step, 1)).value();
  }
  std::vector<int64_t> bounds = {0, extent};
  while (static_cast<int64_t>(bounds.size()) <= parts) {
    bounds.push_back(random() % (extent + 1));
  }
  std::sort(bounds.begin(), bounds.end());
  return RaggedCut::Explicit(bounds).value();
}

Placement RandomPlacement(int num_dims, bool may_be_partial,
                          SeededRandom& random) {
  const uint32_t choice = random() % (num_dims + 2);
  if (choice < static_cast<uint32_t>(num_dims)) return Placement::Shard(choice);
  if (may_be_partial && random() % 2 == 0) return Placement::Partial();
  return Placement::Replicate();
}

std::vector<Layout::DimOrder> RandomOrder(const Placements& placements,
                                          int num_dims, SeededRandom& random) {
  std::vector<Layout::DimOrder> order;
  for (int dim = 0; dim < num_dims; ++dim) {
    Layout::DimOrder& of_dim = order.emplace_back();
    of_dim.dim = dim;
    for (size_t axis = 0; axis < placements.size(); ++axis) {
      if (placements[axis].is_shard(dim)) {
        of_dim.axes.push_back(static_cast<int>(axis));
      }
    }
    Shuffle(of_dim.axes, random);
  }
  return order;
}

}  // namespace

Layout RandomLayout(const TensorMeta& meta, const DeviceMesh& mesh,
                    bool may_be_partial, SeededRandom& random) {
  const int num_dims = meta.shape().num_dims();
  Placements placements;
  std::vector<int> ragged_axes;
  int64_t parts = 1;
  const bool is_ragged = random() % 2 == 0;
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    placements.push_back(RandomPlacement(num_dims, may_be_partial, random));
    if (!is_ragged || random() % 2 == 0) continue;
    placements.back() = Placement::Replicate();
    ragged_axes.push_back(axis);
    parts *= mesh.axis(axis).size;
  }
  const std::vector<Layout::DimOrder> order =
      RandomOrder(placements, num_dims, random);
  const Layout box = Layout::Create(meta, mesh, placements, order).value();
  if (ragged_axes.empty()) return box;
  const RaggedCut cut =
      RandomCut(parts, box.LargestRegion().box_elements(), random);
  Shuffle(ragged_axes, random);
  for (size_t i = 0; i < ragged_axes.size(); ++i) {
    placements[ragged_axes[i]] = Placement::Ragged(cut, static_cast<int>(i));
  }
  return Layout::Create(meta, mesh, placements, order).value();
}

}  // namespace tessera::testing

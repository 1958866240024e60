#include "tests/redistribute/all_layouts.h"

#include <algorithm>
#include <cstddef>

#include "absl/status/statusor.h"

namespace tessera::testing {
namespace {

std::vector<Placement> AllPlacements(int num_dims,
                                     absl::Span<const ReduceOp> ops) {
  std::vector<Placement> all = {Placement::Replicate()};
  for (int dim = 0; dim < num_dims; ++dim) all.push_back(Placement::Shard(dim));
  for (ReduceOp op : ops) all.push_back(Placement::Partial(op));
  return all;
}

// All sequences of `length` items.
std::vector<Placements> AllSequences(absl::Span<const Placement> items,
                                     int length) {
  std::vector<Placements> all = {{}};
  for (int i = 0; i < length; ++i) {
    std::vector<Placements> longer;
    for (const Placements& sequence : all) {
      for (const Placement& item : items) {
        longer.push_back(sequence);
        longer.back().push_back(item);
      }
    }
    all = longer;
  }
  return all;
}

// Appends the layouts of `placements` with every cutting order of the dims
// from `dim` on.
void AppendAllOrders(const TensorMeta& meta, const DeviceMesh& mesh,
                     const Placements& placements, int dim,
                     std::vector<Layout::DimOrder> order,
                     std::vector<Layout>& layouts) {
  if (dim == meta.shape().num_dims()) {
    absl::StatusOr<Layout> layout =
        Layout::Create(meta, mesh, placements, order);
    if (layout.ok()) layouts.push_back(*layout);  // else ops that do not mix
    return;
  }
  order.push_back({dim, {}});
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    if (placements[axis].is_shard(dim)) {
      order.back().axes.push_back(static_cast<int>(axis));
    }
  }
  auto& axes = order.back().axes;
  do {
    AppendAllOrders(meta, mesh, placements, dim + 1, order, layouts);
  } while (std::next_permutation(axes.begin(), axes.end()));
}

}  // namespace

std::vector<Layout> AllLayouts(const TensorMeta& meta, const DeviceMesh& mesh,
                               absl::Span<const ReduceOp> ops) {
  std::vector<Layout> layouts;
  for (const Placements& placements : AllSequences(
           AllPlacements(meta.shape().num_dims(), ops), mesh.num_axes())) {
    AppendAllOrders(meta, mesh, placements, 0, {}, layouts);
  }
  return layouts;
}

}  // namespace tessera::testing

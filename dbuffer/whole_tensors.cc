#include "tessera/dbuffer/whole_tensors.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
#include <queue>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tessera/base/checked_math.h"
#include "tessera/base/status_macros.h"
#include "tessera/mesh/device_mesh.h"
#include "tessera/placement/placement.h"

namespace tessera {
namespace {

// The axes that cut a tensor, in their order, and the mesh that has them.
using CutAxes = std::pair<DeviceMesh, absl::InlinedVector<int, 4>>;

CutAxes CutAxesOf(const Layout& layout) {
  return {layout.mesh(), layout.RaggedAxes()};
}

// By layout: the one of its cut's coordinates that owns the tensor.
std::vector<int64_t> OwnersOf(absl::Span<const Layout> cut) {
  absl::flat_hash_map<CutAxes, std::vector<size_t>> alike;
  for (size_t i = 0; i < cut.size(); ++i) {
    alike[CutAxesOf(cut[i])].push_back(i);
  }
  std::vector<int64_t> owners(cut.size());
  for (const auto& [axes, tensors] : alike) {
    int64_t coordinates = 1;
    for (int axis : axes.second) coordinates *= axes.first.axis(axis).size;
    std::vector<int64_t> sizes;
    for (size_t i : tensors) sizes.push_back(cut[i].meta().num_elements());
    const std::vector<int64_t> balanced = BalancedOwners(sizes, coordinates);
    for (size_t k = 0; k < tensors.size(); ++k) {
      owners[tensors[k]] = balanced[k];
    }
  }
  return owners;
}

absl::StatusOr<Layout> WholeOn(const Layout& layout, int64_t owner) {
  if (layout.HasPartial()) {
    return absl::InvalidArgumentError(
        absl::StrCat("dbuffer: want whole tensors of reduced values, found ",
                     layout.ToString()));
  }
  const int64_t size = layout.meta().num_elements();
  const std::optional<int64_t> before = CheckedMul(owner, size);
  if (!before.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "dbuffer: ", layout.ToString(), " of ", size, " elements for owner ",
        owner, " is cut at more than int64 can count"));
  }
  // Piece `owner` is [0, size).
  TESSERA_ASSIGN_OR_RETURN(
      const RaggedCut whole,
      RaggedCut::Affine(-*before, std::max<int64_t>(size, 1)));
  Placements placements(layout.placements().size(), Placement::Replicate());
  const absl::InlinedVector<int, 4> axes = layout.RaggedAxes();
  for (size_t k = 0; k < axes.size(); ++k) {
    placements[axes[k]] = Placement::Ragged(whole, static_cast<int>(k));
  }
  return layout.With(placements);
}

}  // namespace

std::vector<int64_t> BalancedOwners(absl::Span<const int64_t> sizes,
                                    int64_t owners) {
  std::vector<size_t> order(sizes.size());
  absl::c_iota(order, size_t{0});
  absl::c_stable_sort(order,
                      [&](size_t a, size_t b) { return sizes[a] > sizes[b]; });
  // Owners that have something; of those that have nothing, the next one is
  // always the lowest.
  using Load = std::pair<int64_t, int64_t>;  // elements, owner
  std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
  std::vector<int64_t> result(sizes.size());
  int64_t next = 0;
  for (size_t i : order) {
    Load load(0, next);
    if (next < owners) {
      ++next;
    } else {
      load = loads.top();
      loads.pop();
    }
    result[i] = load.second;
    loads.emplace(SaturatingAdd(load.first, sizes[i]), load.second);
  }
  return result;
}

absl::StatusOr<std::vector<Layout>> WholeTensorLayouts(
    absl::Span<const Layout> cut) {
  const std::vector<int64_t> owners = OwnersOf(cut);
  std::vector<Layout> whole;
  for (size_t i = 0; i < cut.size(); ++i) {
    TESSERA_ASSIGN_OR_RETURN(Layout layout, WholeOn(cut[i], owners[i]));
    whole.push_back(std::move(layout));
  }
  return whole;
}

}  // namespace tessera

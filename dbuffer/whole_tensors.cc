#include "tessera/dbuffer/whole_tensors.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
#include <queue>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tessera/base/checked_math.h"
#include "tessera/base/status_macros.h"

namespace tessera {
namespace {

absl::Status CheckNotPartial(const BufferGroup& group,
                             absl::Span<const BufferPlacement> placements) {
  for (int axis : group.axes()) {
    const BufferPlacement& placement = group.PlacementOf(placements, axis);
    if (!placement.is_partial()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("dbuffer: want whole tensors of reduced values, found ",
                     placement.ToString(), " along axis '",
                     group.mesh().axis(axis).name, "'"));
  }
  return absl::OkStatus();
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
    loads.emplace(load.first + sizes[i], load.second);
  }
  return result;
}

absl::StatusOr<std::vector<Layout>> WholeTensorLayouts(
    const BufferGroup& group, DType dtype,
    absl::Span<const BufferPlacement> placements) {
  TESSERA_RETURN_IF_ERROR(group.Validate(placements));
  TESSERA_RETURN_IF_ERROR(CheckNotPartial(group, placements));
  const int num_flat = group.NumFlat(placements);
  if (num_flat == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("dbuffer: want a Flat axis to have owners along, found ",
                     BufferPlacementsToString(placements)));
  }
  int64_t owners = 1;
  for (int axis : group.cut_order().subspan(0, num_flat)) {
    owners *= group.mesh().axis(axis).size;
  }
  std::vector<int64_t> sizes;
  for (int i = 0; i < group.num_tensors(); ++i) {
    sizes.push_back(group.flat_layout().extent(i).size());
  }
  const std::vector<int64_t> owner_of = BalancedOwners(sizes, owners);
  std::vector<Layout> layouts;
  for (int i = 0; i < group.num_tensors(); ++i) {
    const std::optional<int64_t> before = CheckedMul(owner_of[i], sizes[i]);
    if (!before.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("dbuffer: tensor '", group.tensor(i).name, "' of ",
                       sizes[i], " elements for owner ", owner_of[i],
                       " is cut at more than int64 can count"));
    }
    // Piece `owner` is [0, size).
    TESSERA_ASSIGN_OR_RETURN(const RaggedCut cut,
                             RaggedCut::Affine(-*before, sizes[i]));
    TESSERA_ASSIGN_OR_RETURN(Layout layout,
                             group.CutLayout(i, dtype, placements, cut));
    layouts.push_back(std::move(layout));
  }
  return layouts;
}

}  // namespace tessera

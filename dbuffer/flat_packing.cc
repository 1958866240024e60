#include "tessera/dbuffer/flat_packing.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <utility>

#include "absl/algorithm/container.h"
#include "tessera/base/checked_math.h"
#include "tessera/dbuffer/packing_search.h"
#include "tessera/dbuffer/part_sizes.h"

namespace tessera::internal {
namespace {

// In tensors placed on trial: when to be content with what was found.
constexpr int64_t kMaxWork = 1'000'000;
// A gap to the bound below this share of the part size is not worth closing.
constexpr int64_t kShareWorthWork = 10'000;

// Tensors that are alike, and which they are.
struct Kinds {
  std::vector<PackingKind> kinds;         // largest granules first
  std::vector<std::vector<int>> tensors;  // per kind, in list order
};

Kinds GroupAlike(absl::Span<const PackedTensor> tensors) {
  std::map<std::pair<int64_t, int64_t>, std::vector<int>> alike;
  for (int i = 0; i < static_cast<int>(tensors.size()); ++i) {
    alike[{-tensors[i].granule, -tensors[i].size}].push_back(i);
  }
  Kinds kinds;
  for (auto& [key, members] : alike) {
    kinds.kinds.push_back(
        {tensors[members.front()], static_cast<int>(members.size())});
    kinds.tensors.push_back(std::move(members));
  }
  return kinds;
}

// Orders that cost next to nothing to try: that of the list, and two that put
// the tensors first that fit the worst.
std::array<std::vector<int>, 3> SimpleOrders(
    absl::Span<const PackedTensor> tensors) {
  std::array<std::vector<int>, 3> orders;
  for (std::vector<int>& order : orders) {
    order.resize(tensors.size());
    absl::c_iota(order, 0);
  }
  absl::c_stable_sort(orders[1], [&](int a, int b) {
    return tensors[a].granule > tensors[b].granule;
  });
  absl::c_stable_sort(orders[2], [&](int a, int b) {
    return tensors[a].size > tensors[b].size;
  });
  return orders;
}

// How many sets searches keep: few where there are many tensors to place, all
// that there are of a dozen.
struct Widths {
  int narrow;
  int wide;
};

Widths WidthsFor(size_t tensors, size_t kinds) {
  const int64_t work_per_set = static_cast<int64_t>(tensors * kinds);
  const int64_t narrow =
      std::clamp<int64_t>(kMaxWork / 4 / work_per_set, 1, 16);
  const int64_t wide =
      std::clamp<int64_t>(kMaxWork / 8 / work_per_set, 4 * narrow, 1024);
  return {static_cast<int>(narrow), static_cast<int>(wide)};
}

class Packer {
 public:
  Packer(absl::Span<const PackedTensor> tensors, int64_t parts,
         int64_t part_unit, int64_t max_part_size)
      : tensors_(tensors),
        parts_(parts),
        max_part_size_(max_part_size),
        kinds_(GroupAlike(tensors)),
        orders_(SimpleOrders(tensors)),
        sizes_(kinds_.kinds, parts, part_unit, max_part_size + 1),
        widths_(WidthsFor(tensors.size(), kinds_.kinds.size())),
        bound_(sizes_.Least()) {}

  std::optional<Packing> Pack() {
    if (!FindSmallest()) {
      if (!FindByOrders()) return std::nullopt;
      ClimbGrid();
      HalveGap();
    }
    best_.part_size_bound = std::min(bound_, best_.part_size);
    return std::move(best_);
  }

 private:
  // Goes up from the bound as long as every size is proven impossible. True
  // where that comes to one that will do.
  bool FindSmallest() {
    while (bound_ <= max_part_size_ && work_ < kMaxWork / 4) {
      const int64_t size = bound_;
      if (TryOrders(size) || Search(size)) return true;
      if (bound_ == size) return false;
    }
    return false;
  }

  // Goes up to the first size at which a simple order will do: size by size, as
  // long as that is cheap, then in ever larger leaps, but never past a size
  // that all granules divide.
  bool FindByOrders() {
    int64_t size = bound_;
    int64_t leap = 1;
    for (int64_t tries = 1; size <= max_part_size_; ++tries) {
      if (TryOrders(size)) return true;
      if (tries * static_cast<int64_t>(tensors_.size()) > kMaxWork) {
        leap = std::max<int64_t>((size - bound_) / 64, 1);
      }
      size = std::min(sizes_.FirstFrom(size + leap),
                      sizes_.NextMultipleOfAll(size));
    }
    return false;
  }

  // Goes up from the bound on the grid, to below what is found.
  void ClimbGrid() {
    int64_t size = bound_;
    while (work_ < kMaxWork / 2 && GapMatters()) {
      size = sizes_.NextOnGrid(size);
      if (size >= best_.part_size || Search(size)) return;
    }
  }

  // Tries half way between what failed and what is found, over and over.
  void HalveGap() {
    int64_t failed = bound_;
    while (work_ < kMaxWork && GapMatters()) {
      const int64_t found = best_.part_size;
      const int64_t middle =
          sizes_.Softest(failed + CeilDiv(found - failed, 2), found);
      if (middle >= found) return;
      if (!TryOrders(middle) && !Search(middle)) failed = middle;
    }
  }

  bool GapMatters() const {
    return best_.part_size - bound_ > bound_ / kShareWorthWork;
  }

  bool TryOrders(int64_t size) {
    return absl::c_any_of(orders_, [&](const std::vector<int>& order) {
      return PlaceInOrder(order, size);
    });
  }

  // Whether the tensors fit in this order; if so, it is the best packing now.
  bool PlaceInOrder(absl::Span<const int> order, int64_t size) {
    std::vector<int64_t> offsets(tensors_.size());
    int64_t end = 0;
    for (int i : order) {
      offsets[i] = EarliestBegin(tensors_[i], end, size);
      end = offsets[i] + tensors_[i].size;
      if (end > parts_ * size) return false;
    }
    best_ = {.offsets = std::move(offsets), .part_size = size};
    return true;
  }

  // Whether a search finds an order. Moves the bound, where that is `size` and
  // proven impossible.
  bool Search(int64_t size) {
    const std::array<PackingSearchOptions, 4> searches = {{
        {.width = widths_.narrow, .soft_divisor = 32},
        {.width = widths_.narrow, .soft_divisor = 8},
        {.width = widths_.narrow, .soft_divisor = 256},
        {.width = widths_.wide, .soft_divisor = 32},
    }};
    for (const PackingSearchOptions& options : searches) {
      const PackingSearchResult result =
          SearchPacking(kinds_.kinds, parts_, size, options);
      work_ += result.work;
      if (result.order.has_value()) {
        return PlaceInOrder(TensorsOf(*result.order), size);
      }
      if (result.proven_impossible) {
        if (size == bound_) bound_ = sizes_.FirstFrom(size + 1);
        return false;
      }
    }
    return false;
  }

  // Tensors of these kinds, those of one kind in list order.
  std::vector<int> TensorsOf(absl::Span<const int> kinds) const {
    std::vector<int> order;
    std::vector<int> used(kinds_.kinds.size(), 0);
    for (int kind : kinds) {
      order.push_back(kinds_.tensors[kind][used[kind]++]);
    }
    return order;
  }

  const absl::Span<const PackedTensor> tensors_;
  const int64_t parts_;
  const int64_t max_part_size_;
  const Kinds kinds_;
  const std::array<std::vector<int>, 3> orders_;
  const PartSizes sizes_;
  const Widths widths_;

  int64_t bound_;  // no smaller size will do
  int64_t work_ = 0;
  Packing best_;
};

}  // namespace

std::optional<Packing> PackTensors(absl::Span<const PackedTensor> tensors,
                                   int64_t parts, int64_t part_unit,
                                   int64_t max_part_size) {
  return Packer(tensors, parts, part_unit, max_part_size).Pack();
}

}  // namespace tessera::internal

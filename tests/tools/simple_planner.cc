#include "tests/tools/simple_planner.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <vector>

#include "tessera/base/checked_math.h"
#include "tessera/dbuffer/packing_search.h"

namespace tessera::testing {
namespace {

using internal::PackedTensor;

constexpr int64_t kInfinite = std::numeric_limits<int64_t>::max();

int64_t RoundUp(int64_t value, int64_t unit) {
  return CheckedRoundUp(value, unit).value_or(kInfinite);
}

int64_t LcmOf(int64_t a, int64_t b) {
  return SaturatingMul(a / std::gcd(a, b), b);
}

// In elements, with what aligns it to 16 bytes.
PackedTensor ToPack(const FlatLayout::Tensor& tensor, DType narrowest) {
  const int64_t align = 16 / SizeOf(narrowest);
  const int64_t elements = tensor.shape.num_elements();
  const int64_t granule = tensor.granularity.ElementsOf(tensor.shape);
  const int64_t size = RoundUp(elements, align);
  return {.size = size,
          .granule = granule == elements
                         ? size
                         : std::min(LcmOf(granule, align), size)};
}

// The part size at which a tensor has no two part ends inside, or none where it
// has a single granule.
int64_t FreeFrom(const PackedTensor& tensor) {
  return tensor.granule == tensor.size ? tensor.size : CeilDiv(tensor.size, 2);
}

// That part size or the next larger one that is not ruled out: below FreeFrom,
// a part is a multiple of the tensor's granule.
int64_t NextPossible(absl::Span<const PackedTensor> tensors, int64_t unit,
                     int64_t part) {
  int64_t multiple = unit;
  int64_t first_free = kInfinite;
  for (const PackedTensor& tensor : tensors) {
    const int64_t free_from = FreeFrom(tensor);
    if (free_from <= part) continue;
    multiple = LcmOf(multiple, tensor.granule);
    first_free = std::min(first_free, free_from);
  }
  return std::min(RoundUp(part, multiple), RoundUp(first_free, unit));
}

bool FitInOrder(absl::Span<const PackedTensor> tensors, int64_t ranks,
                int64_t part) {
  int64_t end = 0;
  for (const PackedTensor& tensor : tensors) {
    end = internal::EarliestBegin(tensor, end, part) + tensor.size;
    if (end > ranks * part) return false;
  }
  return true;
}

}  // namespace

std::optional<int64_t> SimplePartSize(
    absl::Span<const FlatLayout::Tensor> tensors, int64_t ranks,
    DType narrowest, int64_t limit) {
  std::array<std::vector<PackedTensor>, 3> orders;
  int64_t total = 0;
  for (const FlatLayout::Tensor& tensor : tensors) {
    orders[0].push_back(ToPack(tensor, narrowest));
    total += tensor.shape.num_elements();
  }
  orders[1] = orders[2] = orders[0];
  std::stable_sort(orders[1].begin(), orders[1].end(),
                   [](const PackedTensor& a, const PackedTensor& b) {
                     return a.granule > b.granule;
                   });
  std::stable_sort(orders[2].begin(), orders[2].end(),
                   [](const PackedTensor& a, const PackedTensor& b) {
                     return a.size > b.size;
                   });
  const int64_t unit = 128 / SizeOf(narrowest);
  int64_t part = RoundUp(CeilDiv(total, ranks), unit);
  while ((part = NextPossible(orders[0], unit, part)) < limit) {
    const bool is_possible = std::all_of(
        orders[0].begin(), orders[0].end(), [&](const PackedTensor& tensor) {
          return internal::FitsParts(tensor, part);
        });
    if (is_possible &&
        std::any_of(orders.begin(), orders.end(), [&](const auto& order) {
          return FitInOrder(order, ranks, part);
        })) {
      return part;
    }
    part += unit;
  }
  return std::nullopt;
}

}  // namespace tessera::testing

#include "tests/dbuffer/reference_packing.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace tessera::internal::testing {
namespace {

bool PlaceAnywhere(absl::Span<const PackedTensor> tensors, int64_t part_size,
                   std::vector<bool>& taken) {
  if (tensors.empty()) return true;
  const PackedTensor& tensor = tensors.front();
  const int64_t last = static_cast<int64_t>(taken.size()) - tensor.size;
  for (int64_t begin = 0; begin <= last; ++begin) {
    if (!MayBegin(tensor, begin, part_size)) continue;
    const auto from = taken.begin() + begin;
    if (std::find(from, from + tensor.size, true) != from + tensor.size) {
      continue;
    }
    std::fill(from, from + tensor.size, true);
    if (PlaceAnywhere(tensors.subspan(1), part_size, taken)) return true;
    std::fill(from, from + tensor.size, false);
  }
  return false;
}

bool FitsInOrder(absl::Span<const PackedTensor> tensors,
                 absl::Span<const int> order, int64_t parts,
                 int64_t part_size) {
  int64_t end = 0;
  for (int i : order) {
    while (!MayBegin(tensors[i], end, part_size)) {
      if (++end >= parts * part_size) return false;
    }
    end += tensors[i].size;
  }
  return end <= parts * part_size;
}

std::vector<int> ListOrder(absl::Span<const PackedTensor> tensors) {
  std::vector<int> order(tensors.size());
  std::iota(order.begin(), order.end(), 0);
  return order;
}

template <typename Fits>
int64_t LeastMultipleThatFits(int64_t unit, Fits&& fits) {
  int64_t size = unit;
  while (!fits(size)) size += unit;
  return size;
}

}  // namespace

bool MayBegin(const PackedTensor& tensor, int64_t begin, int64_t part_size) {
  int64_t part_end = (begin / part_size + 1) * part_size;
  for (; part_end < begin + tensor.size; part_end += part_size) {
    if ((part_end - begin) % tensor.granule != 0) return false;
  }
  return true;
}

int64_t LeastPartSizeOfAnyOffsets(absl::Span<const PackedTensor> tensors,
                                  int64_t parts, int64_t part_unit) {
  return LeastMultipleThatFits(part_unit, [&](int64_t part_size) {
    std::vector<bool> taken(parts * part_size, false);
    return PlaceAnywhere(tensors, part_size, taken);
  });
}

bool FitsInAnyOrder(absl::Span<const PackedTensor> tensors, int64_t parts,
                    int64_t part_size) {
  std::vector<int> order = ListOrder(tensors);
  do {
    if (FitsInOrder(tensors, order, parts, part_size)) return true;
  } while (std::next_permutation(order.begin(), order.end()));
  return false;
}

int64_t LeastPartSizeOfAnyOrder(absl::Span<const PackedTensor> tensors,
                                int64_t parts, int64_t part_unit) {
  int64_t total = 0;
  for (const PackedTensor& tensor : tensors) total += tensor.size;
  return LeastMultipleThatFits(part_unit, [&](int64_t part_size) {
    return part_size * parts >= total &&
           FitsInAnyOrder(tensors, parts, part_size);
  });
}

int64_t PartSizeOfCommonMultiples(absl::Span<const PackedTensor> tensors,
                                  int64_t parts, int64_t part_unit) {
  int64_t multiple = part_unit;
  for (const PackedTensor& tensor : tensors) {
    multiple = std::lcm(multiple, tensor.granule);
  }
  return LeastMultipleThatFits(multiple, [&](int64_t part_size) {
    return FitsInOrder(tensors, ListOrder(tensors), parts, part_size);
  });
}

}  // namespace tessera::internal::testing

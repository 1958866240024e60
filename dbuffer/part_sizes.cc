#include "tessera/dbuffer/part_sizes.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "absl/algorithm/container.h"
#include "tessera/base/checked_math.h"

namespace tessera::internal {
namespace {

// So many kinds, those of the most elements, are looked at in pairs.
constexpr size_t kPairedKinds = 16;

// The least common multiple, and the least multiple of `unit` >= value; the
// greatest int64 where they do not fit.
int64_t SaturatingLcm(int64_t a, int64_t b) {
  return SaturatingMul(a / std::gcd(a, b), b);
}
int64_t SaturatingRoundUp(int64_t value, int64_t unit) {
  return SaturatingMul(CeilDiv(value, unit), unit);
}

int64_t ElementsOf(const PackingKind& kind) {
  return kind.count * kind.tensor.size;
}

// Where a tensor does not fit parts of this size: a lower bound of the larger
// sizes that it fits.
int64_t NextFit(const PackedTensor& tensor, int64_t size) {
  const int64_t granules = size / tensor.granule;
  const int64_t next_multiple = SaturatingMul(granules + 1, tensor.granule);
  const int64_t half = CeilDiv(tensor.size, 2);
  const int64_t in_two =
      half > size ? half : tensor.size - granules * tensor.granule;
  return std::min(next_multiple, in_two);
}

}  // namespace

PartSizes::PartSizes(absl::Span<const PackingKind> kinds, int64_t parts,
                     int64_t part_unit, int64_t max)
    : kinds_(kinds.begin(), kinds.end()),
      part_unit_(part_unit),
      max_(max),
      grid_(part_unit),
      all_granules_(part_unit) {
  const int64_t elements = ElementsInUnitsOf(1);
  for (int64_t unit : Units()) {
    const int64_t in_units = ElementsInUnitsOf(unit);
    least_ =
        std::max(least_, SaturatingRoundUp(CeilDiv(in_units, parts), unit));
    if (in_units >= elements - elements / 8) {
      grid_ = std::max(grid_, SaturatingLcm(unit, part_unit));
    }
  }
  for (const PackingKind& kind : kinds) {
    all_granules_ = SaturatingLcm(all_granules_, kind.tensor.granule);
  }
  least_ = FirstFrom(least_);
}

// 1, the largest unit of each kind, and of pairs of the largest kinds.
std::vector<int64_t> PartSizes::Units() const {
  std::vector<std::pair<int64_t, int64_t>> kinds;  // elements, unit
  for (const PackingKind& kind : kinds_) {
    kinds.emplace_back(ElementsOf(kind),
                       std::gcd(kind.tensor.size, kind.tensor.granule));
  }
  absl::c_sort(kinds, std::greater<>());
  std::vector<int64_t> units = {1};
  for (const auto& [elements, unit] : kinds) units.push_back(unit);
  const size_t paired = std::min(kinds.size(), kPairedKinds);
  for (size_t a = 0; a < paired; ++a) {
    for (size_t b = 0; b < a; ++b) {
      units.push_back(std::gcd(kinds[a].second, kinds[b].second));
    }
  }
  absl::c_sort(units);
  units.erase(std::unique(units.begin(), units.end()), units.end());
  return units;
}

int64_t PartSizes::ElementsInUnitsOf(int64_t unit) const {
  int64_t elements = 0;
  for (const PackingKind& kind : kinds_) {
    const PackedTensor& tensor = kind.tensor;
    if (tensor.size % unit == 0 && tensor.granule % unit == 0) {
      elements += ElementsOf(kind);
    }
  }
  return elements;
}

int64_t PartSizes::SoftElements(int64_t size) const {
  int64_t elements = 0;
  for (const PackingKind& kind : kinds_) {
    if (size % kind.tensor.granule == 0) elements += ElementsOf(kind);
  }
  return elements;
}

int64_t PartSizes::FirstFrom(int64_t size) const {
  size = SaturatingRoundUp(size, part_unit_);
  while (size < max_) {
    const int64_t next = SkipTo(size);
    if (next == size) return size;
    size = next;
  }
  return std::min(size, max_);
}

// `size`, if every tensor fits, else a larger one, with none between that they
// all fit.
int64_t PartSizes::SkipTo(int64_t size) const {
  int64_t least = size;
  // Up to where the first tensor is no longer larger than two parts, sizes are
  // multiples of the granules of those that are.
  int64_t multiple = part_unit_;
  int64_t up_to = max_;
  for (const PackingKind& kind : kinds_) {
    const PackedTensor& tensor = kind.tensor;
    if (!FitsParts(tensor, size)) {
      least = std::max(least, NextFit(tensor, size));
    }
    const int64_t half = CeilDiv(tensor.size, 2);
    if (half <= size) continue;
    multiple = SaturatingLcm(multiple, tensor.granule);
    up_to = std::min(up_to, half);
  }
  if (least == size) return size;
  const int64_t next_multiple = SaturatingRoundUp(size + 1, multiple);
  return SaturatingRoundUp(std::max(least, std::min(next_multiple, up_to)),
                           part_unit_);
}

int64_t PartSizes::FirstMultiple(int64_t from, int64_t unit) const {
  return FirstFrom(SaturatingRoundUp(from, SaturatingLcm(unit, part_unit_)));
}

int64_t PartSizes::NextOnGrid(int64_t size) const {
  return FirstMultiple(size + 1, grid_);
}

int64_t PartSizes::NextMultipleOfAll(int64_t size) const {
  return FirstMultiple(size + 1, all_granules_);
}

int64_t PartSizes::Softest(int64_t from, int64_t to) const {
  int64_t softest = to;
  int64_t most = -1;
  const auto consider = [&](int64_t unit) {
    const int64_t size = FirstMultiple(from, unit);
    if (size >= to) return;
    const int64_t elements = SoftElements(size);
    if (elements < most || (elements == most && size >= softest)) return;
    softest = size;
    most = elements;
  };
  consider(1);
  int64_t multiple = 1;
  for (const PackingKind& kind : kinds_) {
    consider(kind.tensor.granule);
    multiple = SaturatingLcm(multiple, kind.tensor.granule);
    consider(multiple);
  }
  return softest;
}

}  // namespace tessera::internal

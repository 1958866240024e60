#include "tools/models/padding_rules.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <list>
#include <numeric>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tessera/base/checked_math.h"

namespace tessera::tools {
namespace {

constexpr int64_t kTooLarge = std::numeric_limits<int64_t>::max();

// Takes away the sizes that have room, in their order.
void FillWith(std::vector<int64_t>& sizes, int64_t room) {
  const auto filled = [&](int64_t size) {
    if (size > room) return false;
    room -= size;
    return true;
  };
  sizes.erase(std::remove_if(sizes.begin(), sizes.end(), filled), sizes.end());
}

// How many cells the parameters take.
int64_t CountCells(const Model::Unit& unit, int64_t cell) {
  std::list<int64_t> large;
  std::vector<int64_t> small;
  for (const Model::Param& param : unit.params) {
    const int64_t size = param.shape.num_elements();
    size < cell ? small.push_back(size) : large.push_back(size);
  }
  absl::c_sort(small, std::greater<>());
  int64_t cells = 0;
  while (!large.empty()) {
    const int64_t size = large.front();
    large.pop_front();
    cells += CeilDiv(size, cell);
    if (size % cell == 0) continue;
    int64_t room = cell - size % cell;
    const auto other = absl::c_find_if(large, [&](int64_t another) {
      return another % cell != 0 && another % cell <= room;
    });
    if (other != large.end()) {
      cells += *other / cell;
      room -= *other % cell;
      large.erase(other);
    }
    FillWith(small, room);
  }
  for (; !small.empty(); ++cells) FillWith(small, cell);
  return cells;
}

absl::StatusOr<int64_t> PaddingOf(const Model::Unit& unit, int64_t ranks,
                                  int64_t buffer_elements) {
  if (buffer_elements < kTooLarge) {
    return buffer_elements - unit.num_elements();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unit '", unit.name, "' over ", ranks,
                   " ranks is larger than int64 can count by another rule"));
}

}  // namespace

absl::StatusOr<int64_t> MegatronPadding(const Model::Unit& unit, int64_t ranks,
                                        const Granularity& granularity,
                                        int64_t align) {
  int64_t cell = align;
  for (const Model::Param& param : unit.params) {
    const int64_t granule = granularity.ElementsOf(param.shape);
    cell = SaturatingMul(cell / std::gcd(cell, granule), granule);
  }
  const int64_t per_rank = CeilDiv(CountCells(unit, cell), ranks);
  return PaddingOf(unit, ranks,
                   SaturatingMul(ranks, SaturatingMul(per_rank, cell)));
}

absl::StatusOr<int64_t> Fsdp2Padding(const Model::Unit& unit, int64_t ranks) {
  int64_t elements = 0;
  for (const Model::Param& param : unit.params) {
    const int64_t row = Granularity::Row().ElementsOf(param.shape);
    const int64_t rows = CeilDiv(param.shape.num_elements() / row, ranks);
    elements =
        SaturatingAdd(elements, SaturatingMul(SaturatingMul(rows, row), ranks));
  }
  return PaddingOf(unit, ranks, elements);
}

}  // namespace tessera::tools

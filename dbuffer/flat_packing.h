#ifndef TESSERA_DBUFFER_FLAT_PACKING_H_
#define TESSERA_DBUFFER_FLAT_PACKING_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"

namespace tessera::internal {

// A tensor as packing sees it. All sizes here are in one unit, that of the
// alignment of tensors.
struct PackedTensor {
  int64_t size = 1;  // at least 1
  // A part may end inside the tensor only at multiples of this from its begin;
  // nowhere, where it is no less than `size`. At least 1.
  int64_t granule = 1;
};

// Where tensors lie in a sequence of equal parts.
//
//   POST: [offsets[i], offsets[i] + size) do not overlap and end within
//         parts * part_size; for every multiple b of part_size strictly inside
//         one of them, (b - offsets[i]) % granule == 0;
//         part_size_bound <= part_size
struct Packing {
  std::vector<int64_t> offsets;
  int64_t part_size = 0;
  // Proven: no packing of these tensors has smaller parts.
  int64_t part_size_bound = 0;
};

// A packing into `parts` parts, each a multiple of `part_unit`, that are as
// small as can be found; tensors lie in any order, in list order where that is
// as good. Pure: the same arguments give the same packing. Nullopt where the
// parts would be larger than max_part_size.
//
// Finding the smallest parts is NP-hard (Partition is a special case), and a
// size may be feasible while a larger one is not. What is known:
//
//   1. A tensor larger than two parts has two part ends inside, so the part
//      size is a multiple of its granule; one larger than one part has one end
//      inside, which cuts it in two pieces, neither larger than a part. Part
//      sizes that fail this are skipped.
//   2. For a given part size and order, placing each tensor as early as it can
//      be is optimal; a tensor placed behind a nearer end itself ends no
//      later. So of all orders of one set of tensors only the one that ends
//      first counts, and tensors of the same size and granule are alike.
//   3. Where the part size is a multiple of all granules, any order will do.
//
// Part sizes are tried in ascending order: list order and two sorted orders
// first, then a search over sets of tensors, one tensor larger in each round,
// that keeps the most promising sets. Where it could keep all of them and
// found nothing, the part size is proven impossible; so small instances are
// solved exactly. The bound is the first size that is not.
//
// COST: a few placements of all tensors where an order fits at once, else at
// most about a million placements (tens of milliseconds).
//
// REQUIRES: at least one tensor; parts, part_unit >= 1; the sum of sizes, and
// (parts + 2) * max_part_size, fit int64.
std::optional<Packing> PackTensors(absl::Span<const PackedTensor> tensors,
                                   int64_t parts, int64_t part_unit,
                                   int64_t max_part_size);

}  // namespace tessera::internal

#endif  // TESSERA_DBUFFER_FLAT_PACKING_H_

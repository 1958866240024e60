#ifndef TESSERA_DBUFFER_PACKING_SEARCH_H_
#define TESSERA_DBUFFER_PACKING_SEARCH_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "tessera/dbuffer/flat_packing.h"

namespace tessera::internal {

// The least begin >= `at` where the tensor may lie, in parts of this size.
// REQUIRES: there is one (see FitsParts); at >= 0.
int64_t EarliestBegin(const PackedTensor& tensor, int64_t at,
                      int64_t part_size);

// Whether the tensor fits parts of this size at all, however many there are.
bool FitsParts(const PackedTensor& tensor, int64_t part_size);

// Tensors of one size and granule.
struct PackingKind {
  PackedTensor tensor;
  int count = 0;
};

struct PackingSearchOptions {
  int width = 16;  // sets that a round keeps
  // Tensors whose granule divides the part size are soft: they fill any gap.
  // A set that has used them up early has little waste to show and much to
  // come, so each element of theirs counts as 1 / soft_divisor of waste.
  int64_t soft_divisor = 32;
};

struct PackingSearchResult {
  // A kind for each tensor, by which they fit one behind the other.
  std::optional<std::vector<int>> order = std::nullopt;
  bool proven_impossible = false;
  int64_t work = 0;  // tensors placed on trial
};

// An order in which all tensors fit into `parts` parts of this size, if one is
// found. Round k makes sets of k tensors out of those of the round before.
// REQUIRES: FitsParts for every kind.
PackingSearchResult SearchPacking(absl::Span<const PackingKind> kinds,
                                  int64_t parts, int64_t part_size,
                                  const PackingSearchOptions& options);

}  // namespace tessera::internal

#endif  // TESSERA_DBUFFER_PACKING_SEARCH_H_

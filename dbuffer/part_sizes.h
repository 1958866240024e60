#ifndef TESSERA_DBUFFER_PART_SIZES_H_
#define TESSERA_DBUFFER_PART_SIZES_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "tessera/dbuffer/packing_search.h"

namespace tessera::internal {

// Which part sizes are worth a try. Sizes are multiples of the part unit; none
// is above `max`, which stands for all larger ones as well. A value;
// thread-safe.
class PartSizes {
 public:
  // REQUIRES: as PackTensors.
  PartSizes(absl::Span<const PackingKind> kinds, int64_t parts,
            int64_t part_unit, int64_t max);

  // No smaller size will do. What bounds it:
  //
  //   1. All tensors have room in the parts.
  //   2. Tensors whose sizes and granules are multiples of some u lie in every
  //      part in a multiple of u: so many such multiples have room in it.
  int64_t Least() const { return least_; }

  // The first size >= `size` at which each tensor by itself fits.
  int64_t FirstFrom(int64_t size) const;

  // The first such size > `size` on the grid: the largest unit, as u above, of
  // nearly all elements. Sizes between hardly hold more.
  int64_t NextOnGrid(int64_t size) const;

  // Of the sizes in [from, to) the one that the granules of the most elements
  // divide, as far as can be seen; `to` where there is none.
  int64_t Softest(int64_t from, int64_t to) const;

  // The first such size > `size` that all granules divide: any order will do
  // there, if there is room.
  int64_t NextMultipleOfAll(int64_t size) const;

 private:
  int64_t ElementsInUnitsOf(int64_t unit) const;
  int64_t SoftElements(int64_t size) const;
  int64_t SkipTo(int64_t size) const;
  int64_t FirstMultiple(int64_t from, int64_t unit) const;
  std::vector<int64_t> Units() const;

  std::vector<PackingKind> kinds_;
  int64_t part_unit_;
  int64_t max_;
  int64_t least_ = 0;
  int64_t grid_;
  int64_t all_granules_;
};

}  // namespace tessera::internal

#endif  // TESSERA_DBUFFER_PART_SIZES_H_

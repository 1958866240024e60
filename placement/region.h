#ifndef TESSERA_PLACEMENT_REGION_H_
#define TESSERA_PLACEMENT_REGION_H_

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>

#include "absl/container/inlined_vector.h"
#include "tessera/tensor/index.h"
#include "tessera/tensor/shape.h"

namespace tessera {

// Which elements of a tensor one rank holds: a box, one interval of global
// indices per tensor dim, and, where a ragged cut applies, one interval of
// that box's row-major flattening. Defined for every rank, empty ones
// included. A plain value.
struct Region {
  absl::InlinedVector<Interval, 4> box;
  std::optional<Interval> flat;  // of the box's flattening; nullopt: all of it

  // Elements of the box, and elements held.
  int64_t box_elements() const;
  int64_t num_elements() const {
    return flat.has_value() ? flat->size() : box_elements();
  }

  // The shape of the dense tensor that holds this region: the box's extents,
  // or with a ragged cut one dim of num_elements().
  Shape LocalShape() const;

  std::string ToString() const;  // "[0,2)x[0,4)" or "[0,2)x[0,4) flat [3,5)"

  friend bool operator==(const Region&, const Region&) = default;
  friend std::ostream& operator<<(std::ostream& os, const Region& r) {
    return os << r.ToString();
  }
};

}  // namespace tessera

#endif  // TESSERA_PLACEMENT_REGION_H_

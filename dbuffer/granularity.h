#ifndef TESSERA_DBUFFER_GRANULARITY_H_
#define TESSERA_DBUFFER_GRANULARITY_H_

#include <cstdint>
#include <ostream>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tessera/tensor/shape.h"

namespace tessera {

// Where a part of a flat buffer may end inside a tensor: only between granules,
// which are
//
//   element     single elements: anywhere
//   inner-row   rows along the last dim: [a,b,c] has a*b rows of c elements
//   row         rows along dim 0: [a,b,c] has a rows of b*c elements
//   rows:K      blocks of K rows along dim 0, the last one maybe shorter
//
// A tensor of one dim has a row per element, either way; one of none has one
// element. Immutable value; thread-safe.
class Granularity {
 public:
  Granularity() = default;  // element
  static Granularity Element() { return {}; }
  static Granularity InnerRow() { return Granularity(Kind::kInnerRow); }
  static Granularity Row() { return Granularity(Kind::kRow); }
  // ERRORS: InvalidArgument for rows < 1.
  static absl::StatusOr<Granularity> Rows(int64_t rows);

  // The inverse of ToString. ERRORS: InvalidArgument for any other text, with
  // what there is.
  static absl::StatusOr<Granularity> Parse(absl::string_view text);

  // Elements of a granule of a tensor of this shape (of all but the last one,
  // for blocks of rows). At most num_elements(), where that is not 0.
  int64_t ElementsOf(const Shape& shape) const;

  // The first of the dims that a granule spans whole, num_dims() for single
  // elements. Where shards differ along one of these dims, so do their
  // granules.
  int FirstWholeDim(const Shape& shape) const;

  std::string ToString() const;  // "rows:128"

  friend bool operator==(const Granularity&, const Granularity&) = default;
  friend std::ostream& operator<<(std::ostream& os, const Granularity& g) {
    return os << g.ToString();
  }

 private:
  enum class Kind : uint8_t { kElement, kInnerRow, kRow };
  explicit Granularity(Kind kind, int64_t rows = 1)
      : kind_(kind), rows_(rows) {}

  Kind kind_ = Kind::kElement;
  int64_t rows_ = 1;  // kRow only: per block
};

}  // namespace tessera

#endif  // TESSERA_DBUFFER_GRANULARITY_H_

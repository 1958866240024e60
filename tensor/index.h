#ifndef TESSERA_TENSOR_INDEX_H_
#define TESSERA_TENSOR_INDEX_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tessera/base/checked_math.h"

namespace tessera {

// The integers in [begin, end). REQUIRES: begin <= end. Two empty intervals
// at different places are different values.
struct Interval {
  int64_t begin = 0;
  int64_t end = 0;

  constexpr int64_t size() const { return end - begin; }
  constexpr bool empty() const { return begin == end; }
  friend constexpr bool operator==(const Interval&, const Interval&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Interval& i) {
    return H::combine(std::move(h), i.begin, i.end);
  }
  std::string ToString() const;  // "[2,5)"
  friend std::ostream& operator<<(std::ostream& os, const Interval& i) {
    return os << i.ToString();
  }
};

// What both hold; where that is nothing, an empty interval.
constexpr Interval Intersect(const Interval& a, const Interval& b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

// Piece `index` of the shard rule for an extent cut over `parts`: with
// c = ceil(extent / parts), [min(extent, index*c), min(extent, (index+1)*c)).
// The last pieces may be shorter or empty; an empty one begins at `extent`.
// REQUIRES: extent >= 0, 0 <= index < parts.
//
//   CeilSplit(5, 4, i): [0,2) [2,4) [4,5) [5,5)
constexpr Interval CeilSplit(int64_t extent, int64_t parts, int64_t index) {
  const int64_t chunk = CeilDiv(extent, parts);
  // index * chunk cannot overflow where it stays below extent.
  const int64_t begin = chunk != 0 && index >= CeilDiv(extent, chunk)
                            ? extent
                            : std::min(extent, index * chunk);
  return {begin, begin + std::min(chunk, extent - begin)};
}

// How one extent is divided over the ranks of a group, in rank order: by the
// shard rule (any extent, any group, no memory), or by explicit sizes, which
// copies share: copying allocates nothing. A value type; thread-safe.
class ExtentSplit {
 public:
  // By CeilSplit. Equal pieces where the number of ranks divides the extent.
  ExtentSplit() = default;

  // Piece i has sizes[i] elements; they lie one behind the other.
  // ERRORS: InvalidArgument for no sizes, a negative one, or a sum beyond
  // int64.
  static absl::StatusOr<ExtentSplit> Explicit(absl::Span<const int64_t> sizes);

  // Piece `index` of `extent` over `parts`. REQUIRES: Fits(extent, parts).
  Interval Piece(int64_t extent, int64_t parts, int64_t index) const {
    if (is_ceil()) return CeilSplit(extent, parts, index);
    return {index == 0 ? 0 : (*ends_)[index - 1], (*ends_)[index]};
  }

  // True if this divides `extent` over `parts`: always for the shard rule,
  // else if there are `parts` sizes that add up to `extent`.
  bool Fits(int64_t extent, int64_t parts) const {
    if (is_ceil()) return extent >= 0 && parts > 0;
    return parts == static_cast<int64_t>(ends_->size()) &&
           ends_->back() == extent;
  }

  bool is_ceil() const { return ends_ == nullptr; }
  std::string ToString() const;  // "ceil" or "(2,1,1)"

  friend bool operator==(const ExtentSplit& a, const ExtentSplit& b) {
    if (a.ends_ == b.ends_) return true;
    return !a.is_ceil() && !b.is_ceil() && *a.ends_ == *b.ends_;
  }

 private:
  std::shared_ptr<const std::vector<int64_t>> ends_;  // null: the shard rule
};

}  // namespace tessera

#endif  // TESSERA_TENSOR_INDEX_H_

#ifndef TESSERA_DBUFFER_BUFFER_PLACEMENT_H_
#define TESSERA_DBUFFER_BUFFER_PLACEMENT_H_

#include <cstdint>
#include <ostream>
#include <string>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tessera/tensor/reduce_op.h"

namespace tessera {

// What a flat buffer does along one data-parallel mesh axis.
//
//   R       every coordinate holds the same
//   Flat    the coordinates hold equal parts, one behind the other
//   P(op)   the value is `op` over what the coordinates hold
//
// Immutable value; thread-safe.
class BufferPlacement {
 public:
  BufferPlacement() = default;  // R
  static BufferPlacement Replicate() { return {}; }
  static BufferPlacement Flat() { return BufferPlacement(Kind::kFlat); }
  static BufferPlacement Partial(ReduceOp op = ReduceOp::kSum) {
    return BufferPlacement(Kind::kPartial, op);
  }

  bool is_replicate() const { return kind_ == Kind::kReplicate; }
  bool is_flat() const { return kind_ == Kind::kFlat; }
  bool is_partial() const { return kind_ == Kind::kPartial; }
  ReduceOp op() const { return op_; }  // Partial only

  std::string ToString() const;  // "R", "Flat", "P(sum)"

  friend bool operator==(const BufferPlacement&,
                         const BufferPlacement&) = default;

 private:
  enum class Kind : uint8_t { kReplicate, kFlat, kPartial };
  explicit BufferPlacement(Kind kind, ReduceOp op = ReduceOp::kSum)
      : kind_(kind), op_(op) {}

  Kind kind_ = Kind::kReplicate;
  ReduceOp op_ = ReduceOp::kSum;
};

// One entry per data-parallel axis, in the order in which the caller listed
// the axes.
using BufferPlacements = absl::InlinedVector<BufferPlacement, 4>;

// "[P(sum), Flat]", and back; "P" stands for "P(sum)".
// ERRORS: InvalidArgument, quoting the part that does not parse.
std::string BufferPlacementsToString(
    absl::Span<const BufferPlacement> placements);
absl::StatusOr<BufferPlacements> ParseBufferPlacements(absl::string_view text);

}  // namespace tessera

#endif  // TESSERA_DBUFFER_BUFFER_PLACEMENT_H_

#ifndef TESSERA_PLACEMENT_PLACEMENT_H_
#define TESSERA_PLACEMENT_PLACEMENT_H_

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tessera/tensor/index.h"
#include "tessera/tensor/reduce_op.h"

namespace tessera {

// One joint cut, over one or several mesh axes, of the row-major flattening
// of what the Shard axes of a layout left. Piece i is [bound(i), bound(i+1)),
// clipped to what there is to cut. Immutable value with cheap copies.
class RaggedCut {
 public:
  // Piece i is [bounds[i], bounds[i+1]).
  // ERRORS: InvalidArgument for fewer than two bounds, descending bounds, or a
  // first one that is not 0.
  static absl::StatusOr<RaggedCut> Explicit(absl::Span<const int64_t> bounds);

  // Piece i is [first + i*step, first + (i+1)*step): the part of a tensor at
  // offset -first in a flat buffer of which every rank holds `step` elements.
  // ERRORS: InvalidArgument for first > 0 or step < 1.
  static absl::StatusOr<RaggedCut> Affine(int64_t first, int64_t step);

  // Piece `index` of [0, extent). REQUIRES: index >= 0; for explicit bounds
  // also index + 1 < number of bounds. An empty piece is [extent, extent).
  Interval Piece(int64_t index, int64_t extent) const;

  // The index of the piece that holds `element`; what does not fit int64 counts
  // as its greatest value.
  // REQUIRES: element >= 0; for explicit bounds also element < bounds().back().
  int64_t PieceWith(int64_t element) const;

  // The size of the largest of pieces 0 to parts - 1 of [0, extent).
  // REQUIRES: parts >= 1; explicit bounds are of at least so many pieces.
  // COST: constant, for explicit bounds `parts`.
  int64_t LargestPiece(int64_t parts, int64_t extent) const;

  // True if `parts` pieces hold all of [0, extent), and, for explicit bounds,
  // there are exactly `parts`.
  bool Covers(int64_t parts, int64_t extent) const;

  bool is_affine() const { return bounds_ == nullptr; }
  int64_t first() const { return first_; }    // affine only
  int64_t step() const { return step_; }      // affine only
  absl::Span<const int64_t> bounds() const {  // explicit only
    return bounds_ == nullptr ? absl::Span<const int64_t>() : *bounds_;
  }

  std::string ToString() const;  // "0,3,7,10" or "-6+4"

  friend bool operator==(const RaggedCut& a, const RaggedCut& b);
  template <typename H>
  friend H AbslHashValue(H h, const RaggedCut& c) {
    return H::combine(std::move(h), c.first_, c.step_, c.bounds());
  }

 private:
  RaggedCut() = default;

  int64_t first_ = 0;
  int64_t step_ = 0;
  std::shared_ptr<const std::vector<int64_t>> bounds_;  // null: affine
};

// What a tensor does along one mesh axis.
//
//   R           every coordinate holds the same
//   S(d)        the coordinates hold pieces of tensor dim d
//   P(op)       the value is `op` over what the coordinates hold
//   Ragged(c)   the coordinates hold pieces of the flattened tensor; several
//               axes may share one cut c, each naming its position: the axis
//               at position 0 is the major one
//
// Immutable value; thread-safe.
class Placement {
 public:
  Placement() = default;  // R
  static Placement Replicate() { return Placement(); }
  // `dim` may be negative; a Layout counts it from the end.
  static Placement Shard(int dim) { return Placement(Sharded{dim}); }
  static Placement Partial(ReduceOp op = ReduceOp::kSum) {
    return Placement(Pending{op});
  }
  static Placement Ragged(RaggedCut cut, int position = 0) {
    return Placement(RaggedShard{std::move(cut), position});
  }

  bool is_replicate() const { return Is<Replicated>(); }
  bool is_shard() const { return Is<Sharded>(); }
  bool is_shard(int dim) const { return is_shard() && this->dim() == dim; }
  bool is_partial() const { return Is<Pending>(); }
  bool is_ragged() const { return Is<RaggedShard>(); }

  int dim() const { return std::get<Sharded>(value_).dim; }     // Shard only
  ReduceOp op() const { return std::get<Pending>(value_).op; }  // Partial only
  const RaggedCut& cut() const {                                // Ragged only
    return std::get<RaggedShard>(value_).cut;
  }
  int position() const {  // Ragged only
    return std::get<RaggedShard>(value_).position;
  }

  // "R", "S(0)", "P(sum)", "Ragged(0,3,7)[1]", "Ragged(-6+4)[0]"; the position
  // of a ragged cut is always written.
  std::string ToString() const;

  friend bool operator==(const Placement&, const Placement&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Placement& p) {
    if (p.is_shard()) h = H::combine(std::move(h), p.dim());
    if (p.is_partial()) h = H::combine(std::move(h), p.op());
    if (p.is_ragged()) h = H::combine(std::move(h), p.cut(), p.position());
    // Last, so that no placement hashes as the end of another.
    return H::combine(std::move(h), p.value_.index());
  }
  friend std::ostream& operator<<(std::ostream& os, const Placement& p) {
    return os << p.ToString();
  }

 private:
  struct Replicated {
    friend bool operator==(const Replicated&, const Replicated&) = default;
  };
  struct Sharded {
    int dim;
    friend bool operator==(const Sharded&, const Sharded&) = default;
  };
  struct Pending {
    ReduceOp op;
    friend bool operator==(const Pending&, const Pending&) = default;
  };
  struct RaggedShard {
    RaggedCut cut;
    int position;
    friend bool operator==(const RaggedShard&, const RaggedShard&) = default;
  };
  using Value = std::variant<Replicated, Sharded, Pending, RaggedShard>;

  explicit Placement(Value value) : value_(std::move(value)) {}
  template <typename T>
  bool Is() const {
    return std::holds_alternative<T>(value_);
  }

  Value value_;
};

}  // namespace tessera

#endif  // TESSERA_PLACEMENT_PLACEMENT_H_

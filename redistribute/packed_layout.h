#ifndef TESSERA_REDISTRIBUTE_PACKED_LAYOUT_H_
#define TESSERA_REDISTRIBUTE_PACKED_LAYOUT_H_

#include <array>
#include <cstdint>

#include "tessera/tensor/reduce_op.h"

namespace tessera::internal {

// A placement without ragged cut, and its place in the cutting order of its
// dim, in one byte.
class AxisState {
 public:
  static constexpr int kMaxDims = 26;      // tensor dims that fit
  static constexpr int kMaxPositions = 8;  // axes per dim that fit

  constexpr AxisState() = default;  // R
  static constexpr AxisState Partial(ReduceOp op) {
    return AxisState(kFirstOp + static_cast<int>(op), 0);
  }
  static constexpr AxisState Shard(int dim, int position) {
    return AxisState(kFirstDim + dim, position);
  }

  constexpr bool is_replicate() const { return code_ == 0; }
  constexpr bool is_partial() const {
    return code_ >= kFirstOp && code_ < kFirstDim;
  }
  constexpr bool is_shard() const { return code_ >= kFirstDim; }
  constexpr bool is_shard(int dim) const { return code_ == kFirstDim + dim; }

  // Partial only; Shard only.
  constexpr ReduceOp op() const {
    return static_cast<ReduceOp>(code_ - kFirstOp);
  }
  constexpr int dim() const { return code_ - kFirstDim; }
  constexpr int position() const { return position_; }

  friend constexpr bool operator==(AxisState, AxisState) = default;

 private:
  static constexpr int kFirstOp = 1;
  static constexpr int kFirstDim = 6;

  constexpr AxisState(int code, int position)
      : code_(static_cast<uint8_t>(code)),
        position_(static_cast<uint8_t>(position)) {}

  uint8_t code_ : 5 = 0;
  uint8_t position_ : 3 = 0;
};

// Mesh axes that a packed layout has room for.
inline constexpr int kMaxMovingAxes = AxisState::kMaxPositions;

// One entry per axis that a LayoutGraph moves; R behind the last.
using PackedLayout = std::array<AxisState, kMaxMovingAxes>;

}  // namespace tessera::internal

#endif  // TESSERA_REDISTRIBUTE_PACKED_LAYOUT_H_

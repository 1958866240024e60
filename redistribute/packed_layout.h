#ifndef TESSERA_REDISTRIBUTE_PACKED_LAYOUT_H_
#define TESSERA_REDISTRIBUTE_PACKED_LAYOUT_H_

#include <array>
#include <bit>
#include <cstdint>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/types/span.h"
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

// Sets of packed axes.
using AxisMask = uint32_t;
inline constexpr AxisMask kNoAxes = 0;
inline constexpr AxisMask kAllAxes = (AxisMask{1} << kMaxMovingAxes) - 1;

// Some packed axes, in order: a small vector that is copied like a number.
struct AxisList {
  std::array<uint8_t, kMaxMovingAxes> axes = {};
  uint8_t size = 0;

  void push_back(int axis) { axes[size++] = static_cast<uint8_t>(axis); }
  absl::Span<const uint8_t> span() const { return {axes.data(), size}; }
};

inline int CountShards(const PackedLayout& layout, int dim) {
  return static_cast<int>(absl::c_count_if(
      layout, [&](AxisState state) { return state.is_shard(dim); }));
}

inline bool IsMinorMost(const PackedLayout& layout, int i) {
  return layout[i].position() + 1 == CountShards(layout, layout[i].dim());
}

// True if every dim is cut by its axes in ascending order.
inline bool IsInAxisOrder(const PackedLayout& layout) {
  std::array<uint8_t, AxisState::kMaxDims> cuts = {};  // by dim, so far
  return absl::c_all_of(layout, [&](AxisState state) {
    return !state.is_shard() || state.position() == cuts[state.dim()]++;
  });
}

inline AxisList SingleAxis(int i) {
  AxisList list;
  list.push_back(i);
  return list;
}

inline AxisMask MaskOf(const AxisList& axes) {
  AxisMask mask = kNoAxes;
  for (int i : axes.span()) mask |= AxisMask{1} << i;
  return mask;
}

// The axes of `mask`, in ascending order.
inline AxisList AxesOf(AxisMask mask) {
  AxisList list;
  for (int i = 0; i < kMaxMovingAxes; ++i) {
    if ((mask >> i & 1) != 0) list.push_back(i);
  }
  return list;
}

inline PackedLayout WithAxes(const PackedLayout& layout, const AxisList& axes,
                             AxisState state) {
  PackedLayout result = layout;
  for (int i : axes.span()) result[i] = state;
  return result;
}

// Makes `axes` the last that cut `dim`, from `position` on.
// REQUIRES: so many axes shard `dim`, none of these.
inline void Shard(const AxisList& axes, int dim, int position,
                  PackedLayout& layout) {
  for (int i : axes.span()) layout[i] = AxisState::Shard(dim, position++);
}

// `layout` with R along axis i.
inline PackedLayout Without(const PackedLayout& layout, int i) {
  PackedLayout result = layout;
  const AxisState removed = std::exchange(result[i], AxisState());
  for (AxisState& state : result) {
    if (!removed.is_shard() || !state.is_shard(removed.dim())) continue;
    if (state.position() < removed.position()) continue;
    state = AxisState::Shard(state.dim(), state.position() - 1);
  }
  return result;
}

// `layout` with axis i at this place in the cutting order of `dim`.
// REQUIRES: the axis is R.
inline PackedLayout WithShardAt(const PackedLayout& layout, int i, int dim,
                                int position) {
  PackedLayout result = layout;
  for (AxisState& state : result) {
    if (!state.is_shard(dim) || state.position() < position) continue;
    state = AxisState::Shard(dim, state.position() + 1);
  }
  result[i] = AxisState::Shard(dim, position);
  return result;
}

// `layout` without the cuts by other axes than `axes` that come last.
inline PackedLayout WithoutMinorCuts(const PackedLayout& layout,
                                     AxisMask axes) {
  PackedLayout result = layout;
  for (bool changed = true; changed;) {
    changed = false;
    for (int i = 0; i < kMaxMovingAxes; ++i) {
      const bool goes = (axes >> i & 1) == 0 && result[i].is_shard() &&
                        IsMinorMost(result, i);
      if (!goes) continue;
      result[i] = AxisState();
      changed = true;
    }
  }
  return result;
}

// `layout` with R in place of P: ranks hold the same elements.
inline PackedLayout WithoutPartial(PackedLayout layout) {
  for (AxisState& state : layout) {
    if (state.is_partial()) state = AxisState();
  }
  return layout;
}

// One byte per axis, 0 for R, and where two layouts agree.
inline uint64_t BytesOf(const PackedLayout& layout) {
  return std::bit_cast<uint64_t>(layout);
}
inline uint64_t Difference(const PackedLayout& a, const PackedLayout& b) {
  return BytesOf(a) ^ BytesOf(b);
}

// True if slices alone lead from one to the other. REQUIRES: no Partial.
inline bool OnlySlices(const PackedLayout& from, const PackedLayout& to) {
  const auto high_bits = [](uint64_t bytes) {  // of those that are not 0
    constexpr uint64_t kHigh = 0x8080808080808080;
    return (((bytes & ~kHigh) + ~kHigh) | bytes) & kHigh;
  };
  return (high_bits(BytesOf(from)) & high_bits(Difference(from, to))) == 0;
}

// True if they differ along one axis alone, which then comes last in the
// cutting orders of its dims.
inline bool DifferAlongOneAxis(const PackedLayout& a, const PackedLayout& b) {
  const uint64_t bytes = Difference(a, b);
  const int first = std::countr_zero(bytes) / 8;
  return bytes != 0 && bytes >> first * 8 <= 0xff;
}

inline bool HasPartial(const PackedLayout& layout) {
  return absl::c_any_of(layout, [](AxisState s) { return s.is_partial(); });
}

}  // namespace tessera::internal

#endif  // TESSERA_REDISTRIBUTE_PACKED_LAYOUT_H_

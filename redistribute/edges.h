#ifndef TESSERA_REDISTRIBUTE_EDGES_H_
#define TESSERA_REDISTRIBUTE_EDGES_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "tessera/mesh/topology.h"
#include "tessera/placement/layout.h"
#include "tessera/redistribute/plan.h"
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

// One entry per axis that a LayoutGraph moves; R behind the last.
using PackedLayout = std::array<AxisState, AxisState::kMaxPositions>;

// What a step costs, as in Step.
struct Cost {
  int64_t bytes_received = 0;
  int64_t messages = 0;
  int64_t time_ps = 0;

  friend bool operator==(const Cost&, const Cost&) = default;
};

struct Edge {
  StepKind kind;
  int axis;  // of the mesh
  PackedLayout after;
  Cost cost;
};

// The layouts of one tensor on one mesh, and the steps between them along one
// mesh axis each. This is the one list of what a plan may do. Along an axis of
// n coordinates, with N elements in the largest local piece before a step, M
// after it:
//
//   step  before  after   legal where              received  messages  hops
//   ----  ------  ------  -----------------------  --------  --------  ------
//   SL    R       S(d)    always (+)                                          *
//   FI    R       P(op)   op is explored, mixes                               *
//   FI    S(d)    P(sum)  minor-most; as above                                *
//   SC    P(sum)  P(avg)  op is explored, floats                              *
//   SC    P(avg)  P(sum)  op is explored, floats                              *
//   AR    P(op)   R       always                   (a)       n-1       2(n-1)
//   RS    P(op)   S(d)    always (+)               (n-1)*M   n-1       n-1
//   AG    S(d)    R       minor-most               (b)       n-1       n-1
//   A2A   S(d)    S(e)    minor-most, e != d (+)   (c)       n-1       n-1
//
//   minor-most  the axis is the last in the cutting order of d
//   (+)         the axis becomes the last in the cutting order of its new dim
//   explored    op is in the source or the target; sum also where avg is
//   mixes       no other axis is P of an op that does not commute with it
//   (a)  a reduce-scatter and an all-gather of N in CeilSplit pieces:
//        N + (n-2) * ceil(N/n)
//   (b)  M less the least piece of it
//   (c)  the most, over the coordinates, of the new piece less what of it was
//        there already
//
// Received counts elements and is the most over all ranks; it is exact for
// uneven and empty pieces. Time:
//
//   local (*)      M * element size / memory bandwidth
//   communicating  launch + hops * latency + received bytes / link bandwidth
//
// rounded up to a picosecond. Values that do not fit int64 become its greatest.
//
// Axes of size 1 and ragged cuts stay as they are. Beside a ragged cut Shard
// placements stay too, so that every layout gives a rank the same elements;
// of the steps only FI from R, SC and AR are left.
//
// Value type; thread-safe.
class LayoutGraph {
 public:
  // REQUIRES: source and target agree in meta, mesh and all that stays.
  // ERRORS: Unimplemented for more than AxisState::kMaxPositions axes of size
  // above 1, or more than AxisState::kMaxDims dims.
  static absl::StatusOr<LayoutGraph> Create(const Layout& source,
                                            const Layout& target,
                                            const Topology& topology);

  // REQUIRES: `layout` agrees with the source in meta, mesh and all that
  // stays.
  PackedLayout Pack(const Layout& layout) const;
  // REQUIRES: `packed` comes from Pack or EdgesFrom.
  Layout Unpack(const PackedLayout& packed) const;

  // All edges that leave `from`, in the order of mesh axes, for each axis in
  // the order of the table's new placements: R, P(op), S(0), S(1), ...
  void EdgesFrom(const PackedLayout& from, std::vector<Edge>& edges) const;

 private:
  struct Axis {
    int index;  // in the mesh
    int64_t size;
    Link link;
  };

  LayoutGraph(const Layout& source, const Topology& topology);

  int num_dims() const { return source_.shape().num_dims(); }
  bool MayBecomePartial(const PackedLayout& from, int i, ReduceOp op) const;
  // The largest extent per dim of what a rank holds.
  Dims LocalExtents(const PackedLayout& packed) const;
  // The most elements that a rank holds.
  int64_t LocalElements(const PackedLayout& packed) const;
  // The most elements that a rank receives in a step along axes_[i].
  int64_t ReceivedElements(StepKind kind, const PackedLayout& before,
                           const PackedLayout& after, int i) const;
  Cost CostOf(StepKind kind, const PackedLayout& before,
              const PackedLayout& after, int i) const;

  Layout source_;
  std::vector<Axis> axes_;  // those that move
  absl::InlinedVector<ReduceOp, 2> partial_ops_;
  bool has_ragged_ = false;
  int64_t ragged_elements_ = 0;  // the most that a rank holds; has_ragged_
  int64_t launch_ps_;
  int64_t memory_bytes_per_second_;
};

}  // namespace tessera::internal

#endif  // TESSERA_REDISTRIBUTE_EDGES_H_

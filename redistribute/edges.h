#ifndef TESSERA_REDISTRIBUTE_EDGES_H_
#define TESSERA_REDISTRIBUTE_EDGES_H_

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tessera/base/checked_math.h"
#include "tessera/base/rate.h"
#include "tessera/mesh/topology.h"
#include "tessera/placement/layout.h"
#include "tessera/redistribute/cut_layout.h"
#include "tessera/redistribute/overlap.h"
#include "tessera/redistribute/packed_layout.h"
#include "tessera/redistribute/plan.h"
#include "tessera/tensor/reduce_op.h"

namespace tessera::internal {

// What a step costs, as in Step.
struct Cost {
  int64_t bytes_received = 0;
  int64_t messages = 0;
  int64_t time_ps = 0;

  friend bool operator==(const Cost&, const Cost&) = default;
};

struct Edge {
  StepKind kind = StepKind::kRelabel;
  AxisList axes = {};  // packed
  PackedLayout after = {};
  Cost cost = {};
};

// The layouts of one tensor on one mesh, and the steps between them. This is
// the one list of what a plan may do. Along one axis of n coordinates, or
// several that count as one of n = the product of theirs, with N elements in
// the largest local piece before a step, M after it:
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
//   XC    any     any     no Partial (e)           (d)       (d)       (d)
//
//   minor-most  the axes are the last in the cutting order of d
//   (+)         the axes become the last in the cutting order of the new dim
//   explored    op is in the source or the target; sum also where avg is
//   mixes       no other axis is P of an op that does not commute with it
//   (a)  a reduce-scatter and an all-gather of N in CeilSplit pieces:
//        N + (n-2) * ceil(N/n)
//   (b)  M less the least piece of it
//   (c)  the most, over the coordinates, of the new piece less what of it was
//        there already
//   (d)  what of a rank's new piece it did not have; the pieces that this comes
//        in, one message and one hop for each
//   (e)  and some rank needs something of another. Of at most
//        kMaxFromEverywhere layouts without Partial (two mesh axes and six
//        tensor dims, say), from any to any other. Of more, from any to the
//        target, or to what FI and SC alone turn into the target (or, if these
//        are more than kMaxFilled, the one with R in place of P); to any that
//        differs from it only in where one axis is; and from the source to any
//        other (of at most kMaxFromSource). So there is always a direct way,
//        and what is left out are stops on the way that only an exchange leads
//        to.
//
// Several axes. The local steps take one axis each. AR and RS take any axes
// that are P of the same op. RS cuts in mesh-axis order; of two or three axes,
// in any order. AG and A2A take the last axes of a cutting order, and leave
// them in this order; A2A of more than kMaxRanksTried coordinates only where
// they cut both dims evenly (an exchange does what is left out). Whether one
// launch over all axes or several in turn are cheaper, and so hierarchical
// reductions, is for the search to find.
//
// Time:
//
//   local (*)      M * element size / memory bandwidth
//   communicating  launch + hops * latency + received bytes / link bandwidth
//
// rounded up to a picosecond. A message costs what the slowest axis costs
// along which its ends differ; axes are slower by bandwidth, then by latency.
// Should a faster axis among those that the step's messages may cross have a
// higher latency, then this counts.
// In a group over several axes a rank so has messages of several prices: n-1 in
// all, of which those that stay within the faster axes are the cheaper ones.
// Bytes are shared out to them, the most expensive ones first, none larger than
// the largest.
//
// An exchange gets each piece from a rank that has the receiver's own
// coordinates along all axes that do not cut the tensor before: no replica is
// nearer. Received and messages are each the most over all ranks, the time is
// that of the rank for which it is longest. They are exact where the axes that
// cut a dim otherwise before than after have no more than kMaxRanksTried
// coordinates together. Beyond, where all cuts are even, and of the old and the
// new piece of each dim one divides the other, received and messages are exact,
// and so is the time where all links are alike; else no rank receives more,
// longer, or from more ranks: the largest new piece is set against the least
// that any rank has of one.
//
// Workspace: the piece before, where it lies in a buffer of its own, and the
// piece after, where it goes to a new one. Neither is the case for source and
// target, see StorageOfSteps: slices of the source are views of it, AR, SC and
// FI from R work in place, and the last step that changes what ranks hold
// writes to the target.
//
// Axes of size 1 and ragged cuts stay as they are. Beside a ragged cut Shard
// placements stay too, so that every layout gives a rank the same elements;
// of the steps only FI from R, SC and AR are left.
//
// Received counts elements. Values that do not fit int64 become its greatest.
//
// Which edges there are is in edges.cc, what they cost in edge_costs.cc, the
// bound that the search goes by in least_time.cc.
//
// Value type; thread-safe.
class LayoutGraph {
 public:
  // Coordinates tried one by one to price a step exactly.
  static constexpr int64_t kMaxRanksTried = 64;
  // See (e).
  static constexpr size_t kMaxFromEverywhere = 64;
  static constexpr size_t kMaxFromSource = 20'000;
  static constexpr size_t kMaxFilled = 256;
  // A reduce-scatter over that many axes may leave them in any order.
  static constexpr int kMaxAxesPermuted = 3;

  // REQUIRES: source and target agree in meta, mesh and all that stays.
  // ERRORS: Unimplemented for more than kMaxMovingAxes axes of size above 1, or
  // more than AxisState::kMaxDims dims.
  static absl::StatusOr<LayoutGraph> Create(const Layout& source,
                                            const Layout& target,
                                            const Topology& topology);

  // REQUIRES: `layout` agrees with the source in meta, mesh and all that
  // stays.
  PackedLayout Pack(const Layout& layout) const;
  // REQUIRES: `packed` comes from Pack or EdgesFrom.
  Layout Unpack(const PackedLayout& packed) const;

  // All edges that leave `from`, but exchanges of more than one axis: those
  // along one axis in the order of mesh axes, for each axis in the order of the
  // table's new placements, R, P(op), S(0), S(1), ...; those along several;
  // exchanges.
  void EdgesFrom(const PackedLayout& from, std::vector<Edge>& edges) const;

  // The same without costs, for a search that does not need all of them: the
  // steps but exchanges; and exchanges, without axes, some of which may turn
  // out not to be edges.
  void UnpricedEdgesFrom(const CutLayout& from, std::vector<Edge>& edges) const;
  void AddUnpricedMovesFrom(const CutLayout& from,
                            std::vector<Edge>& edges) const;
  // What prices and bounds ask for. LIFETIME: that of the graph.
  CutLayout Cut(const PackedLayout& layout) const {
    return CutLayout(extents_, axis_sizes_, layout);
  }
  // Adds the cost; false for an exchange in which no rank needs anything of
  // another, which is no edge. REQUIRES: to.layout == edge.after.
  bool Price(const CutLayout& from, const CutLayout& to, Edge& edge) const;
  // Adds the axes of an exchange.
  void AddAxes(const PackedLayout& from, Edge& edge) const;
  // No edge to `to` takes less time, by whether it communicates.
  struct LeastEdge {
    int64_t local = 0;
    int64_t communicating = 0;

    int64_t For(StepKind kind) const {
      return Communicates(kind) ? communicating : local;
    }
  };
  LeastEdge LeastEdgeTo(const CutLayout& to) const;

  // No exchange, all-gather or all-to-all between them takes less time.
  int64_t LeastExchange(const CutLayout& from, const CutLayout& to) const;

  // True if there is no exchange between them, for slices do, or one that costs
  // as much as a collective along one axis. REQUIRES: MayExchange of both.
  bool HasSliceOrCollective(const CutLayout& from, const CutLayout& to) const;

  // True if exchanges may lead from and to it.
  bool MayExchange(const PackedLayout& layout) const;
  // Nullopt where no rank needs anything of another.
  // REQUIRES: MayExchange of both ends.
  std::optional<Edge> Exchange(const PackedLayout& from,
                               const PackedLayout& to) const;
  // Those from which fills and scales alone, if anything, lead to `to`, in a
  // fixed order; of more than kMaxFilled only the one with R in place of P.
  std::vector<PackedLayout> FilledTo(const PackedLayout& to) const;
  // How many layouts exchanges lead to; all of them, in a fixed order; none if
  // there are more than kMaxFromSource.
  size_t NumExchangeable() const;
  std::vector<PackedLayout> AllExchangeable() const;

  // No way from `from` to `to` takes less time than this.
  int64_t LeastTime(const CutLayout& from, const CutLayout& to) const;

  // The most bytes that a rank holds.
  int64_t PieceBytes(const CutLayout& layout) const;

  // As axes of the mesh, in the same order.
  absl::InlinedVector<int, 2> MeshAxes(const AxisList& axes) const;

 private:
  struct Axis {
    int index;  // in the mesh
    int64_t size;
    int tier;  // of tiers_
  };
  // Axes with the same link.
  struct Tier {
    Link link;
    Rate rate;
    AxisMask within;  // the axes of all tiers up to this one
    int64_t sharers;  // ranks that the others separate
  };
  // The ranks that some axes separate.
  struct Group {
    // Those that one of them sends to all others over the links of a tier.
    struct Messages {
      int64_t count;
      int64_t latency_ps;
      Rate rate;
    };

    int64_t size = 1;
    absl::InlinedVector<Messages, 2> messages;  // the slowest first
  };

  LayoutGraph(const Layout& source, const Topology& topology);
  void AddTiers(absl::Span<const Link> links);
  void AddGroups();
  void AddBounds();

  int num_axes() const { return static_cast<int>(axes_.size()); }
  int num_dims() const { return static_cast<int>(extents_.size()); }
  Overlap OverlapOf(const CutLayout& before, const CutLayout& after) const {
    return Overlap(axis_sizes_, before, after);
  }

  void SingleAxisEdges(const CutLayout& from, int i,
                       std::vector<Edge>& edges) const;
  void ReductionEdges(const CutLayout& from, AxisMask axes,
                      std::vector<Edge>& edges) const;
  void ShardEdges(const CutLayout& from, int dim,
                  std::vector<Edge>& edges) const;
  void MoveEdges(const CutLayout& from, int i, std::vector<Edge>& edges) const;

  bool MayBecomePartial(const PackedLayout& from, int i, ReduceOp op) const;
  // The most elements that a rank holds.
  int64_t LocalElements(const CutLayout& layout) const;
  int64_t GroupSize(AxisMask axes) const { return groups_[axes].size; }
  int64_t GroupSize(const AxisList& axes) const {
    return GroupSize(MaskOf(axes));
  }
  // Calls `visit` with all coordinates along `axes`, 0 along the others.
  void ForEachCoords(const AxisList& axes,
                     absl::FunctionRef<void(const PackedCoords&)> visit) const;
  bool CutsEvenly(int64_t extent, const AxisList& axes) const;
  // The least piece of `extent` that is left after cuts by `axes`, one after
  // the other.
  int64_t LeastNestedPiece(int64_t extent,
                           absl::Span<const uint8_t> axes) const;
  // The most elements that a rank receives in an all-to-all over n ranks from
  // dim extents `gathered` to dim extents `cut`, per element of the other dims.
  int64_t MostExchanged(int64_t gathered, int64_t cut, const AxisList& axes,
                        int64_t n) const;
  // The same where those cuts are still to come that `axes` make, of what a
  // rank has of both dims.
  struct Pieces {
    int64_t own;  // of the gathered dim
    int64_t cut;
  };
  int64_t MostExchanged(int64_t gathered, const Pieces& pieces,
                        absl::Span<const uint8_t> axes) const;

  // Elements that a rank receives in a collective over n ranks.
  struct Load {
    int64_t total = 0;
    int64_t largest_message = 0;
  };
  Load LoadOf(StepKind kind, const CutLayout& before, const CutLayout& after,
              const AxisList& axes, int64_t n) const;
  Cost LocalCost(const CutLayout& after) const;
  Cost CollectiveCost(StepKind kind, const CutLayout& before,
                      const CutLayout& after, const AxisList& axes) const;
  // Those that messages cross, the slowest first; of equally slow ones those
  // that cut the tensor before.
  AxisList ExchangeAxes(const Overlap& overlap, const PackedLayout& from) const;
  Cost ExchangeCost(const Overlap& overlap) const;
  // Of the rank at these coordinates.
  Cost ExchangeCostAt(const Overlap& overlap, const PackedCoords& coords,
                      AxisMask crossed) const;
  // Adds that a rank looks for `needed`, finds that much of it without the
  // links of a tier, and gets the rest over these.
  void AddMessages(const Tier& tier, AxisMask crossed, const Share& needed,
                   const Share& found, Cost& cost) const;
  // Of a message over the links of a tier, which may cross those of faster
  // ones among the axes `crossed`.
  int64_t LatencyOf(const Tier& tier, AxisMask crossed) const;
  // What has to become of `axes` between two layouts, by the number of
  // coordinates along those of a kind. What is Partial before and after stays
  // so but along the axes `refilled`: there it is reduced, and filled again.
  struct Changes {
    int64_t addends = 1;        // that are reduced over
    int64_t copies = 1;         // that hold the same in the end; if reduced
    int64_t sharers = 1;        // that become Partial
    AxisMask filled = kNoAxes;  // the axes of these
    int64_t keepers = 1;        // that stay Partial

    bool is_reduced() const { return addends > 1; }
  };
  Changes ChangesOf(const CutLayout& from, const CutLayout& to, AxisMask axes,
                    AxisMask refilled) const;
  // Of a rank, or of ranks that count as one, whom much is missing: what it
  // shall hold, and what it and those that it shares with find of that, which
  // is nothing where that is reduced. Where all ranks are alike, all shall hold
  // as much, and none finds more than the most.
  struct Need {
    Share held = {};
    Share found = {};
    int64_t most_found = 0;
    bool all_alike = false;
  };
  Need NeedOf(const Overlap& overlap, const Changes& changes) const;
  // Of ranks that have the same coordinates along `within` count as one, with
  // the changes of these axes.
  Need NeedTogether(const Overlap& overlap, const CutLayout& from,
                    const CutLayout& to, AxisMask within,
                    const Changes& changes) const;
  struct Ends {
    const CutLayout& from;
    const CutLayout& to;
    const Overlap& overlap;
    AxisMask refilled;
    const Changes& changes;
    const Need& need;
  };
  // Elements that no way does without that ranks receive on average for a
  // reduction.
  int64_t LeastReduced(const Changes& changes) const;
  // Those that some rank receives, where so many ranks count as one.
  int64_t LeastReceived(const Need& need, const Changes& changes,
                        int64_t ranks) const;
  // What fills take.
  struct Filling {
    int64_t time = 0;     // with what is received before and between them
    int64_t written = 0;  // alone
  };
  // No less, where sharers shall hold so many elements, and find so many.
  Filling LeastFilling(int64_t all, int64_t found,
                       const Changes& changes) const;
  // That of ways on which sharers know so many until they learn all.
  Filling FillingFrom(int64_t known, int64_t all, int64_t found,
                      const Changes& changes) const;
  // All transfers and fills take no less time.
  int64_t LeastTransfer(const Ends& ends) const;
  // The same, from what has to cross the links of a tier and slower ones:
  // ranks that only faster ones separate count as one, and share it.
  int64_t LeastTransfer(const Ends& ends, const Tier& tier,
                        const Filling& filling) const;
  // Rounded down.
  int64_t TimeFor(const Rate& rate, int64_t elements) const;
  int64_t LeastTime(const CutLayout& from, const CutLayout& to,
                    const Overlap& overlap, AxisMask refilled) const;
  int64_t LeastLatency(int bits) const;

  Layout source_;
  Dims extents_;
  int64_t num_elements_;
  int64_t element_size_;
  absl::InlinedVector<Axis, kMaxMovingAxes> axes_;  // those that move
  absl::InlinedVector<int64_t, kMaxMovingAxes> axis_sizes_;
  absl::InlinedVector<Tier, 2> tiers_;    // the slowest first
  absl::InlinedVector<Group, 8> groups_;  // by AxisMask
  bool latencies_descend_ = true;         // from tier to tier
  absl::InlinedVector<ReduceOp, 2> partial_ops_;
  bool has_ragged_ = false;
  int64_t ragged_elements_ = 0;  // the most that a rank holds; has_ragged_
  int64_t launch_ps_;
  Rate memory_rate_;
  int64_t least_latency_ps_ = 0;  // of any axis
  Rate best_rate_;                // of any axis
  int64_t num_ranks_ = 1;         // that the axes span
  AxisList by_size_;              // all, the smallest first
  bool all_halve_ = false;  // all cuts there may be halve, some several times
  // The latencies without which no rank learns of 2^i ranks, by i.
  absl::InlinedVector<int64_t, 16> least_latencies_;
};

}  // namespace tessera::internal

#endif  // TESSERA_REDISTRIBUTE_EDGES_H_

#include "tessera/redistribute/edges.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tessera/base/checked_math.h"
#include "tessera/tensor/index.h"

namespace tessera::internal {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

// The ops whose Partial states are worth exploring, in the order of the enum.
// The way between S(d) and P(avg) leads over P(sum).
absl::InlinedVector<ReduceOp, 2> ExploredOps(const Layout& source,
                                             const Layout& target) {
  const auto contains = [&](ReduceOp op) {
    const Placement partial = Placement::Partial(op);
    return absl::c_linear_search(source.placements(), partial) ||
           absl::c_linear_search(target.placements(), partial);
  };
  absl::InlinedVector<ReduceOp, 2> ops;
  for (ReduceOp op : kAllReduceOps) {
    const bool on_the_way = op == ReduceOp::kSum && contains(ReduceOp::kAvg);
    if (contains(op) || on_the_way) ops.push_back(op);
  }
  return ops;
}

int CountShards(const PackedLayout& layout, int dim) {
  return static_cast<int>(absl::c_count_if(
      layout, [&](AxisState state) { return state.is_shard(dim); }));
}

bool IsMinorMost(const PackedLayout& layout, int i) {
  return layout[i].position() + 1 == CountShards(layout, layout[i].dim());
}

AxisList SingleAxis(int i) {
  AxisList list;
  list.push_back(i);
  return list;
}

AxisMask MaskOf(const AxisList& axes) {
  AxisMask mask = kNoAxes;
  for (int i : axes.span()) mask |= AxisMask{1} << i;
  return mask;
}

// The axes of `mask`, in ascending order.
AxisList AxesOf(AxisMask mask) {
  AxisList list;
  for (int i = 0; i < kMaxMovingAxes; ++i) {
    if ((mask >> i & 1) != 0) list.push_back(i);
  }
  return list;
}

// The last `count` axes in the cutting order of `dim`.
AxisList MinorAxes(const PackedLayout& layout, int dim, int count) {
  const int first = CountShards(layout, dim) - count;
  AxisList list;
  list.size = static_cast<uint8_t>(count);
  for (int i = 0; i < kMaxMovingAxes; ++i) {
    if (!layout[i].is_shard(dim) || layout[i].position() < first) continue;
    list.axes[layout[i].position() - first] = static_cast<uint8_t>(i);
  }
  return list;
}

PackedLayout WithAxes(const PackedLayout& layout, const AxisList& axes,
                      AxisState state) {
  PackedLayout result = layout;
  for (int i : axes.span()) result[i] = state;
  return result;
}

// `layout` with `axes` as the last that cut `dim`.
// REQUIRES: none of them shards `dim`.
PackedLayout WithShards(const PackedLayout& layout, const AxisList& axes,
                        int dim) {
  PackedLayout result = layout;
  int position = CountShards(layout, dim);
  for (int i : axes.span()) result[i] = AxisState::Shard(dim, position++);
  return result;
}

// `layout` with R along axis i.
PackedLayout Without(const PackedLayout& layout, int i) {
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
PackedLayout WithShardAt(const PackedLayout& layout, int i, int dim,
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
PackedLayout WithoutMinorCuts(const PackedLayout& layout, AxisMask axes) {
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
PackedLayout WithoutPartial(PackedLayout layout) {
  for (AxisState& state : layout) {
    if (state.is_partial()) state = AxisState();
  }
  return layout;
}

bool HasPartial(const PackedLayout& layout) {
  return absl::c_any_of(layout, [](AxisState s) { return s.is_partial(); });
}

int64_t Product(const Dims& extents) {
  int64_t product = 1;
  for (int64_t extent : extents) product *= extent;
  return product;
}

int64_t HopsOf(StepKind kind, int64_t group_size) {
  return kind == StepKind::kAllReduce ? 2 * (group_size - 1) : group_size - 1;
}

// The least sum of `count` factors of at least 2 with a product of at least
// 2^`bits`.
int64_t LeastSumOfFactors(int bits, int count) {
  const int64_t product = int64_t{1} << bits;
  const auto power = [](int64_t base, int exponent) {
    int64_t result = 1;
    for (int i = 0; i < exponent; ++i) result = SaturatingMul(result, base);
    return result;
  };
  // The least factor that suffices, some of them then one smaller.
  int64_t factor = int64_t{1} << (bits / count);
  while (power(factor, count) < product) ++factor;
  factor = std::max<int64_t>(factor, 2);
  int smaller = 0;
  while (factor > 2 && smaller < count &&
         SaturatingMul(power(factor - 1, smaller + 1),
                       power(factor, count - smaller - 1)) >= product) {
    ++smaller;
  }
  return count * factor - smaller;
}

}  // namespace

LayoutGraph::LayoutGraph(const Layout& source, const Topology& topology)
    : source_(source),
      extents_(source.shape().extents().begin(),
               source.shape().extents().end()),
      num_elements_(Product(extents_)),
      element_size_(SizeOf(source.dtype())),
      has_ragged_(!source.RaggedAxes().empty()),
      launch_ps_(topology.launch_ps()),
      memory_rate_(topology.memory_bytes_per_second()) {
  if (has_ragged_) ragged_elements_ = source.MostElements();
  absl::InlinedVector<Link, kMaxMovingAxes> links;
  for (int index = 0; index < source.mesh().num_axes(); ++index) {
    const MeshAxis& axis = source.mesh().axis(index);
    const Placement& placement = source.placement(index);
    const bool stays = placement.is_ragged() ||
                       (has_ragged_ && placement.is_shard()) || axis.size == 1;
    if (stays) continue;
    axes_.push_back({index, axis.size, 0});
    axis_sizes_.push_back(axis.size);
    links.push_back(topology.LinkOf(source.mesh(), index));
  }
  AddTiers(links);
  AddBounds();
}

void LayoutGraph::AddTiers(absl::Span<const Link> links) {
  const auto is_slower = [](const Link& a, const Link& b) {
    return std::tuple(a.bytes_per_second, -a.latency_ps) <
           std::tuple(b.bytes_per_second, -b.latency_ps);
  };
  absl::InlinedVector<Link, kMaxMovingAxes> sorted(links.begin(), links.end());
  absl::c_sort(sorted, is_slower);
  AxisMask within = kNoAxes;
  for (const Link& link : sorted) {
    if (!tiers_.empty() && tiers_.back().link == link) continue;
    for (size_t i = 0; i < links.size(); ++i) {
      if (links[i] != link) continue;
      axes_[i].tier = static_cast<int>(tiers_.size());
      within |= AxisMask{1} << i;
    }
    tiers_.push_back({link, Rate(link.bytes_per_second), within});
  }
  if (tiers_.empty()) return;
  best_rate_ = tiers_.back().rate;
  for (size_t tier = 1; tier < tiers_.size(); ++tier) {
    latencies_descend_ =
        latencies_descend_ &&
        tiers_[tier].link.latency_ps <= tiers_[tier - 1].link.latency_ps;
  }
  least_latency_ps_ = kMax;
  for (const Link& link : links) {
    least_latency_ps_ = std::min(least_latency_ps_, link.latency_ps);
  }
}

void LayoutGraph::AddBounds() {
  for (const Axis& axis : axes_) {
    num_ranks_ *= axis.size;
    largest_axis_ = std::max(largest_axis_, axis.size);
  }
  all_halve_ =
      !has_ragged_ && std::has_single_bit(static_cast<uint64_t>(num_ranks_)) &&
      absl::c_all_of(extents_,
                     [&](int64_t extent) { return extent % num_ranks_ == 0; });
  for (Tier& tier : tiers_) {
    for (int i = 0; i < num_axes(); ++i) {
      if ((tier.within >> i & 1) == 0) tier.sharers *= axes_[i].size;
    }
  }
  for (int bits = 0; int64_t{1} << bits <= num_ranks_; ++bits) {
    least_latencies_.push_back(bits == 0 ? 0 : LeastLatency(bits));
  }
}

absl::StatusOr<LayoutGraph> LayoutGraph::Create(const Layout& source,
                                                const Layout& target,
                                                const Topology& topology) {
  int moving = 0;
  for (const MeshAxis& axis : source.mesh().axes()) moving += axis.size > 1;
  if (moving > kMaxMovingAxes) {
    return absl::UnimplementedError(
        absl::StrCat("redistribute: want at most ", kMaxMovingAxes,
                     " mesh axes of size above 1, found ", moving, " in mesh '",
                     source.mesh().ToString(), "'"));
  }
  if (source.shape().num_dims() > AxisState::kMaxDims) {
    return absl::UnimplementedError(
        absl::StrCat("redistribute: want at most ", AxisState::kMaxDims,
                     " tensor dims, found ", source.shape().num_dims()));
  }
  LayoutGraph graph(source, topology);
  graph.partial_ops_ = ExploredOps(source, target);
  return graph;
}

PackedLayout LayoutGraph::Pack(const Layout& layout) const {
  PackedLayout packed;
  for (size_t i = 0; i < axes_.size(); ++i) {
    const int axis = axes_[i].index;
    const Placement& placement = layout.placement(axis);
    if (placement.is_partial()) {
      packed[i] = AxisState::Partial(placement.op());
    } else if (placement.is_shard()) {
      packed[i] =
          AxisState::Shard(placement.dim(), layout.order_position(axis));
    }
  }
  return packed;
}

Layout LayoutGraph::Unpack(const PackedLayout& packed) const {
  Placements placements(source_.placements().begin(),
                        source_.placements().end());
  std::vector<Layout::DimOrder> order;
  for (int dim = 0; dim < num_dims(); ++dim) {
    order.push_back({dim, has_ragged_ ? source_.ShardAxes(dim)
                                      : MeshCoords(CountShards(packed, dim))});
  }
  for (size_t i = 0; i < axes_.size(); ++i) {
    const AxisState state = packed[i];
    Placement& placement = placements[axes_[i].index];
    if (state.is_replicate()) {
      placement = Placement::Replicate();
    } else if (state.is_partial()) {
      placement = Placement::Partial(state.op());
    } else {
      placement = Placement::Shard(state.dim());
      order[state.dim()].axes[state.position()] = axes_[i].index;
    }
  }
  return source_.With(placements, order).value();
}

void LayoutGraph::EdgesFrom(const PackedLayout& from,
                            std::vector<Edge>& edges) const {
  UnpricedEdgesFrom(from, edges);
  const auto is_idle = [&](Edge& edge) { return !Price(from, edge); };
  edges.erase(std::remove_if(edges.begin(), edges.end(), is_idle), edges.end());
  for (Edge& edge : edges) AddAxes(from, edge);
}

bool LayoutGraph::Price(const PackedLayout& from, Edge& edge) const {
  if (edge.kind == StepKind::kExchange) {
    edge.cost = ExchangeCost(OverlapOf(from, edge.after));
    return edge.cost.messages > 0;
  }
  edge.cost = Communicates(edge.kind)
                  ? CollectiveCost(edge.kind, from, edge.after, edge.axes)
                  : LocalCost(edge.after);
  return true;
}

LayoutGraph::LeastEdge LayoutGraph::LeastEdgeTo(const PackedLayout& to) const {
  const int64_t bytes = PieceBytes(to);
  const int64_t messages = SaturatingAdd(launch_ps_, least_latency_ps_);
  // Where cuts halve, a rank that lacks something lacks half at least.
  const int64_t received = all_halve_ ? bytes / 2 : 0;
  return {memory_rate_.TimeFor(bytes),
          SaturatingAdd(messages, best_rate_.TimeFor(received))};
}

void LayoutGraph::AddAxes(const PackedLayout& from, Edge& edge) const {
  if (edge.kind != StepKind::kExchange) return;
  edge.axes = ExchangeAxes(OverlapOf(from, edge.after), from);
}

void LayoutGraph::UnpricedEdgesFrom(const PackedLayout& from,
                                    std::vector<Edge>& edges) const {
  edges.clear();
  for (int i = 0; i < num_axes(); ++i) SingleAxisEdges(from, i, edges);
  for (ReduceOp op : partial_ops_) {
    AxisMask axes = kNoAxes;
    for (int i = 0; i < num_axes(); ++i) {
      if (from[i] == AxisState::Partial(op)) axes |= AxisMask{1} << i;
    }
    ReductionEdges(from, axes, edges);
  }
  if (has_ragged_) return;
  for (int dim = 0; dim < num_dims(); ++dim) ShardEdges(from, dim, edges);
  if (HasPartial(from)) return;
  for (int i = 0; i < num_axes(); ++i) MoveEdges(from, i, edges);
}

void LayoutGraph::SingleAxisEdges(const PackedLayout& from, int i,
                                  std::vector<Edge>& edges) const {
  const AxisState state = from[i];
  if (state.is_shard() && !IsMinorMost(from, i)) return;
  const AxisList axis = SingleAxis(i);
  if (!state.is_replicate()) {
    edges.push_back(
        {state.is_partial() ? StepKind::kAllReduce : StepKind::kAllGather, axis,
         WithAxes(from, axis, AxisState())});
  }
  for (ReduceOp op : partial_ops_) {
    if (!MayBecomePartial(from, i, op)) continue;
    edges.push_back({state.is_partial() ? StepKind::kScale : StepKind::kFill,
                     axis, WithAxes(from, axis, AxisState::Partial(op))});
  }
  if (has_ragged_) return;
  const StepKind to_shard = state.is_replicate() ? StepKind::kSlice
                            : state.is_partial() ? StepKind::kReduceScatter
                                                 : StepKind::kAllToAll;
  for (int dim = 0; dim < num_dims(); ++dim) {
    if (state.is_shard(dim)) continue;
    edges.push_back({to_shard, axis, WithShards(from, axis, dim)});
  }
}

// All-reduces and reduce-scatters over two or more of `axes`, which are P of
// one op.
void LayoutGraph::ReductionEdges(const PackedLayout& from, AxisMask axes,
                                 std::vector<Edge>& edges) const {
  for (AxisMask chosen = 1; chosen <= axes; ++chosen) {
    if ((chosen & axes) != chosen || std::has_single_bit(chosen)) continue;
    AxisList list = AxesOf(chosen);
    edges.push_back(
        {StepKind::kAllReduce, list, WithAxes(from, list, AxisState())});
    if (has_ragged_) continue;
    const auto begin = list.axes.begin();
    do {
      for (int dim = 0; dim < num_dims(); ++dim) {
        edges.push_back(
            {StepKind::kReduceScatter, list, WithShards(from, list, dim)});
      }
    } while (list.size <= kMaxAxesPermuted &&
             std::next_permutation(begin, begin + list.size));
  }
}

// All-gathers and all-to-alls over two or more of the axes that cut `dim`.
void LayoutGraph::ShardEdges(const PackedLayout& from, int dim,
                             std::vector<Edge>& edges) const {
  const int cuts = CountShards(from, dim);
  for (int count = 2; count <= cuts; ++count) {
    const AxisList axes = MinorAxes(from, dim, count);
    const PackedLayout gathered = WithAxes(from, axes, AxisState());
    edges.push_back({StepKind::kAllGather, axes, gathered});
    const Dims extents = LocalExtents(gathered);
    const bool few = GroupSize(axes) <= kMaxRanksTried;
    for (int other = 0; other < num_dims(); ++other) {
      if (other == dim) continue;
      const bool is_legal = few || (CutsEvenly(extents[dim], axes) &&
                                    CutsEvenly(extents[other], axes));
      if (!is_legal) continue;
      edges.push_back(
          {StepKind::kAllToAll, axes, WithShards(gathered, axes, other)});
    }
  }
}

// Exchanges that take one axis out of a cutting order or put it into one, other
// than at the end of both.
void LayoutGraph::MoveEdges(const PackedLayout& from, int i,
                            std::vector<Edge>& edges) const {
  const AxisState state = from[i];
  const bool was_last = !state.is_shard() || IsMinorMost(from, i);
  const PackedLayout without = Without(from, i);
  const auto add = [&](const PackedLayout& after) {
    edges.push_back({StepKind::kExchange, {}, after});
  };
  if (!was_last) add(without);
  for (int dim = 0; dim < num_dims(); ++dim) {
    const int cuts = CountShards(without, dim);
    for (int at = 0; at <= cuts; ++at) {
      if (state == AxisState::Shard(dim, at)) continue;
      const bool is_collective = was_last && at == cuts;
      if (is_collective) continue;
      add(WithShardAt(without, i, dim, at));
    }
  }
}

bool LayoutGraph::MayBecomePartial(const PackedLayout& from, int i,
                                   ReduceOp op) const {
  const AxisState state = from[i];
  if (state.is_partial()) {  // becomes the other of sum and avg
    return state.op() != op && MayMix(state.op(), op);
  }
  if (state.is_shard() && op != ReduceOp::kSum) return false;
  return absl::c_all_of(from, [&](AxisState other) {
    return !other.is_partial() || MayMix(other.op(), op);
  });
}

bool LayoutGraph::MayExchange(const PackedLayout& layout) const {
  return !has_ragged_ && !HasPartial(layout);
}

std::optional<Edge> LayoutGraph::Exchange(const PackedLayout& from,
                                          const PackedLayout& to) const {
  Edge edge = {StepKind::kExchange, {}, to};
  if (!Price(from, edge)) return std::nullopt;
  AddAxes(from, edge);
  return edge;
}

AxisList LayoutGraph::ExchangeAxes(const Overlap& overlap,
                                   const PackedLayout& from) const {
  AxisList axes = AxesOf(overlap.CrossedAxes());
  const auto rank = [&](uint8_t i) {
    return std::tuple(axes_[i].tier, !from[i].is_shard(), i);
  };
  std::sort(axes.axes.begin(), axes.axes.begin() + axes.size,
            [&](uint8_t a, uint8_t b) { return rank(a) < rank(b); });
  return axes;
}

absl::InlinedVector<int, 2> LayoutGraph::MeshAxes(const AxisList& axes) const {
  absl::InlinedVector<int, 2> result;
  for (int i : axes.span()) result.push_back(axes_[i].index);
  return result;
}

std::vector<PackedLayout> LayoutGraph::FilledTo(const PackedLayout& to) const {
  std::vector<PackedLayout> found = {to};
  absl::flat_hash_set<uint64_t> known;
  // Each axis in turn, until no new layout comes up: any may be filled last.
  for (size_t at = 0; at < found.size(); ++at) {
    if (found.size() > kMaxFilled) return {WithoutPartial(to)};
    const PackedLayout layout = found[at];
    const auto add = [&](const PackedLayout& before) {
      const bool is_new = known.insert(std::bit_cast<uint64_t>(before)).second;
      if (is_new) found.push_back(before);
    };
    for (int i = 0; i < num_axes(); ++i) {
      if (!layout[i].is_partial()) continue;
      add(Without(layout, i));
      if (!IsLinear(layout[i].op())) continue;
      for (int dim = 0; dim < num_dims(); ++dim) {
        add(WithShards(layout, SingleAxis(i), dim));
      }
    }
  }
  found.erase(std::remove_if(found.begin(), found.end(), HasPartial),
              found.end());
  return found;
}

size_t LayoutGraph::NumExchangeable() const {
  // By the number of axes that cut: one more goes to any of these places.
  std::array<size_t, kMaxMovingAxes + 1> counts = {1};
  for (int axes = 1; axes <= num_axes(); ++axes) {
    for (int cuts = axes; cuts > 0; --cuts) {
      counts[cuts] += counts[cuts - 1] * (num_dims() + cuts - 1);
    }
  }
  return std::accumulate(counts.begin(), counts.end(), size_t{0});
}

std::vector<PackedLayout> LayoutGraph::AllExchangeable() const {
  if (NumExchangeable() > kMaxFromSource) return {};
  // Axis by axis: R, or at any place in the cutting order of any dim.
  std::vector<PackedLayout> layouts = {PackedLayout()};
  for (int i = 0; i < num_axes(); ++i) {
    std::vector<PackedLayout> longer;
    for (const PackedLayout& layout : layouts) {
      longer.push_back(layout);
      for (int dim = 0; dim < num_dims(); ++dim) {
        for (int at = CountShards(layout, dim); at >= 0; --at) {
          longer.push_back(WithShardAt(layout, i, dim, at));
        }
      }
    }
    layouts = std::move(longer);
  }
  return layouts;
}

Dims LayoutGraph::LocalExtents(const PackedLayout& packed) const {
  Dims extents = extents_;
  // Nested cuts divide by the axes' sizes in turn, in whichever order: at
  // coordinate 0 of every axis lies ceil(extent / product of the sizes).
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (!packed[i].is_shard()) continue;
    int64_t& extent = extents[packed[i].dim()];
    extent = CeilDiv(extent, axes_[i].size);
  }
  return extents;
}

int64_t LayoutGraph::LocalElements(const PackedLayout& packed) const {
  return has_ragged_ ? ragged_elements_ : Product(LocalExtents(packed));
}

int64_t LayoutGraph::AverageElements(const PackedLayout& packed) const {
  int64_t elements = has_ragged_ ? ragged_elements_ : num_elements_;
  for (int i = 0; i < num_axes(); ++i) {
    if (packed[i].is_shard()) elements /= axes_[i].size;
  }
  return elements;
}

int64_t LayoutGraph::PieceBytes(const PackedLayout& packed) const {
  return LocalElements(packed) * element_size_;
}

int64_t LayoutGraph::GroupSize(const AxisList& axes) const {
  int64_t size = 1;
  for (int i : axes.span()) size *= axes_[i].size;
  return size;
}

void LayoutGraph::ForEachCoords(
    const AxisList& axes,
    absl::FunctionRef<void(const PackedCoords&)> visit) const {
  PackedCoords coords = {};
  int at = 0;
  while (at < axes.size) {
    visit(coords);
    for (at = 0; at < axes.size; ++at) {
      const int axis = axes.axes[at];
      if (++coords[axis] < axes_[axis].size) break;
      coords[axis] = 0;
    }
  }
  if (axes.size == 0) visit(coords);
}

bool LayoutGraph::CutsEvenly(int64_t extent, const AxisList& axes) const {
  return extent % GroupSize(axes) == 0;
}

int64_t LayoutGraph::NestedPiece(int64_t extent, const AxisList& axes,
                                 const PackedCoords& coords) const {
  for (int i : axes.span()) {
    extent = CeilSplit(extent, axes_[i].size, coords[i]).size();
  }
  return extent;
}

int64_t LayoutGraph::LeastNestedPiece(int64_t extent,
                                      absl::Span<const uint8_t> axes) const {
  if (axes.empty()) return extent;
  // No part but the last is smaller than the first; cut again, a larger part
  // may have the smaller pieces.
  const int64_t size = axes_[axes[0]].size;
  const auto least_of = [&](int64_t i) {
    return LeastNestedPiece(CeilSplit(extent, size, i).size(), axes.subspan(1));
  };
  return std::min(least_of(0), least_of(size - 1));
}

int64_t LayoutGraph::MostExchanged(int64_t gathered, int64_t cut,
                                   const AxisList& axes) const {
  const auto exchanged = [&](const PackedCoords& coords) {
    return (gathered - NestedPiece(gathered, axes, coords)) *
           NestedPiece(cut, axes, coords);
  };
  if (gathered == 0 || cut == 0) return 0;
  PackedCoords coords = {};
  if (CutsEvenly(gathered, axes) && CutsEvenly(cut, axes)) {
    return exchanged(coords);
  }
  if (axes.size == 1) {
    // What is missing grows with the coordinate, and the new piece shrinks: it
    // is whole up to some coordinate, a remainder there, then empty.
    const int axis = axes.axes[0];
    const int64_t remainder =
        std::min(cut / CeilDiv(cut, axes_[axis].size), axes_[axis].size - 1);
    coords[axis] = remainder;
    const int64_t at_remainder = exchanged(coords);
    coords[axis] = std::max<int64_t>(remainder - 1, 0);
    return std::max(at_remainder, exchanged(coords));
  }
  int64_t most = 0;
  ForEachCoords(axes, [&](const PackedCoords& at) {
    most = std::max(most, exchanged(at));
  });
  return most;
}

LayoutGraph::Load LayoutGraph::LoadOf(StepKind kind, const PackedLayout& before,
                                      const PackedLayout& after,
                                      const AxisList& axes) const {
  const int64_t n = GroupSize(axes);
  switch (kind) {
    case StepKind::kAllReduce: {
      const int64_t elements = LocalElements(before);
      const int64_t piece = CeilDiv(elements, n);
      return {SaturatingAdd(elements, SaturatingMul(n - 2, piece)),
              SaturatingMul(2, piece)};
    }
    case StepKind::kReduceScatter: {
      const int64_t piece = LocalElements(after);
      return {SaturatingMul(n - 1, piece), piece};
    }
    case StepKind::kAllGather: {
      // No other rank has larger extents than the one at coordinate 0 of the
      // other axes, and what is missing grows with each of them.
      Dims extents = LocalExtents(after);
      const int64_t gathered =
          std::exchange(extents[before[axes.axes[0]].dim()], 1);
      const int64_t others = Product(extents);
      return {(gathered - LeastNestedPiece(gathered, axes.span())) * others,
              NestedPiece(gathered, axes, {}) * others};
    }
    case StepKind::kAllToAll: {
      Dims extents = LocalExtents(WithAxes(after, axes, AxisState()));
      const int64_t gathered =
          std::exchange(extents[before[axes.axes[0]].dim()], 1);
      const int64_t cut = std::exchange(extents[after[axes.axes[0]].dim()], 1);
      const int64_t others = Product(extents);
      return {MostExchanged(gathered, cut, axes) * others,
              NestedPiece(gathered, axes, {}) * NestedPiece(cut, axes, {}) *
                  others};
    }
    case StepKind::kExchange:
    case StepKind::kRelabel:
    case StepKind::kSlice:
    case StepKind::kFill:
    case StepKind::kScale:
      return {};
  }
  return {};
}

Cost LayoutGraph::LocalCost(const PackedLayout& after) const {
  return {.time_ps = memory_rate_.TimeFor(PieceBytes(after))};
}

int64_t LayoutGraph::LatencyOf(size_t tier, AxisMask crossed) const {
  int64_t latency = tiers_[tier].link.latency_ps;
  if (latencies_descend_) return latency;
  for (int i = 0; i < num_axes(); ++i) {
    const Tier& other = tiers_[axes_[i].tier];
    const bool counts =
        (crossed >> i & 1) != 0 && axes_[i].tier > static_cast<int>(tier);
    if (counts) latency = std::max(latency, other.link.latency_ps);
  }
  return latency;
}

Cost LayoutGraph::CollectiveCost(StepKind kind, const PackedLayout& before,
                                 const PackedLayout& after,
                                 const AxisList& axes) const {
  const Load load = LoadOf(kind, before, after, axes);
  const int64_t n = GroupSize(axes);
  const int64_t hops_per_message = HopsOf(kind, n) / (n - 1);
  const int64_t largest = SaturatingMul(load.largest_message, element_size_);
  Cost cost = {.bytes_received = SaturatingMul(load.total, element_size_),
               .messages = n - 1,
               .time_ps = launch_ps_};
  const AxisMask crossed = MaskOf(axes);
  int64_t bytes = cost.bytes_received;
  int64_t within = n;  // ranks that no tier looked at so far separates
  for (size_t tier = 0; tier < tiers_.size() && within > 1; ++tier) {
    int64_t nearer = within;
    for (int i : axes.span()) {
      if (axes_[i].tier == static_cast<int>(tier)) nearer /= axes_[i].size;
    }
    const int64_t messages = within - nearer;
    within = nearer;
    if (messages == 0) continue;
    const int64_t carried =
        within == 1 ? bytes : std::min(bytes, SaturatingMul(messages, largest));
    bytes -= carried;
    const int64_t latency =
        SaturatingMul(hops_per_message * messages, LatencyOf(tier, crossed));
    cost.time_ps = SaturatingAdd(
        cost.time_ps,
        SaturatingAdd(latency, tiers_[tier].rate.TimeFor(carried)));
  }
  return cost;
}

Cost LayoutGraph::ExchangeCost(const Overlap& overlap) const {
  const AxisMask crossed = overlap.AxesLeft();
  const AxisList decisive = AxesOf(overlap.DecisiveAxes());
  absl::InlinedVector<Share, 2> found(tiers_.size());
  const bool is_regular = absl::c_all_of(
      tiers_, [&](const Tier& tier) { return overlap.IsRegular(tier.within); });
  if (is_regular || GroupSize(decisive) > kMaxRanksTried) {
    for (size_t tier = 0; tier < tiers_.size(); ++tier) {
      found[tier] = overlap.Least(tiers_[tier].within);
    }
    return ExchangeCost(overlap.Most(), found, crossed);
  }
  Cost most;
  ForEachCoords(decisive, [&](const PackedCoords& coords) {
    for (size_t tier = 0; tier < tiers_.size(); ++tier) {
      found[tier] = overlap.FoundAt(coords, tiers_[tier].within);
    }
    const Cost cost =
        ExchangeCost(overlap.FoundAt(coords, kNoAxes), found, crossed);
    most.bytes_received = std::max(most.bytes_received, cost.bytes_received);
    most.messages = std::max(most.messages, cost.messages);
    most.time_ps = std::max(most.time_ps, cost.time_ps);
  });
  return most;
}

Cost LayoutGraph::ExchangeCost(const Share& needed,
                               absl::Span<const Share> found,
                               AxisMask crossed) const {
  Cost cost = {.time_ps = launch_ps_};
  Share at_hand = needed;  // within the tiers looked at so far
  for (size_t tier = 0; tier < found.size(); ++tier) {
    const int64_t messages = at_hand.pieces - found[tier].pieces;
    const int64_t bytes =
        (at_hand.elements - found[tier].elements) * element_size_;
    at_hand = found[tier];
    cost.messages += messages;
    cost.bytes_received += bytes;
    const int64_t latency = SaturatingMul(messages, LatencyOf(tier, crossed));
    cost.time_ps = SaturatingAdd(
        cost.time_ps, SaturatingAdd(latency, tiers_[tier].rate.TimeFor(bytes)));
  }
  return cost;
}

// What a rank shall hold depends on what other ranks hold. In a step in which
// it gets m messages, the ranks that it knows of become m + 1 times as many.
int64_t LayoutGraph::LeastLatency(int bits) const {
  int64_t least = kMax;
  // Once there is one hop a launch, more launches save nothing.
  for (int launches = 1; launches <= bits; ++launches) {
    const int64_t hops = LeastSumOfFactors(bits, launches) - launches;
    least =
        std::min(least, SaturatingAdd(SaturatingMul(launches, launch_ps_),
                                      SaturatingMul(hops, least_latency_ps_)));
  }
  return least;
}

LayoutGraph::Changes LayoutGraph::ChangesOf(const PackedLayout& from,
                                            const PackedLayout& to,
                                            AxisMask axes) const {
  Changes changes;
  for (int i = 0; i < num_axes(); ++i) {
    if ((axes >> i & 1) == 0) continue;
    const int64_t size = axes_[i].size;
    if (to[i].is_replicate()) changes.copies *= size;
    if (!to[i].is_partial()) {
      if (from[i].is_partial()) changes.addends *= size;
    } else if (!from[i].is_partial()) {
      changes.filled |= AxisMask{1} << i;
      changes.sharers *= size;
    } else {
      changes.least_kept = std::min(changes.least_kept, size);
      changes.keepers *= size;
    }
  }
  return changes;
}

LayoutGraph::Need LayoutGraph::NeedOf(const Overlap& overlap,
                                      AxisMask own) const {
  if (has_ragged_) {
    const Share all = {ragged_elements_, 1};
    return {all, all};
  }
  if (overlap.IsRegular(own)) {
    const Share most = overlap.Most();
    return {most, overlap.Least(own), most.elements, overlap.MostFoundAtHome()};
  }
  const PackedCoords coords = overlap.NeedyRank();
  return {overlap.FoundAt(coords, kNoAxes), overlap.FoundAt(coords, own)};
}

LayoutGraph::Need LayoutGraph::NeedTogether(const Overlap& overlap,
                                            const PackedLayout& from,
                                            const PackedLayout& to,
                                            AxisMask within,
                                            AxisMask own) const {
  if (has_ragged_) return NeedOf(overlap, own);
  if (overlap.IsEven()) {
    return {{overlap.HeldTogether(own), 1}, {overlap.FoundTogether(own), 1}};
  }
  const Overlap joined = OverlapOf(from, WithoutMinorCuts(to, within));
  const PackedCoords coords = joined.NeedyRank();
  return {joined.FoundAt(coords, kNoAxes), joined.FoundAt(coords, own)};
}

int64_t LayoutGraph::LeastReceived(const Need& need, const Changes& changes,
                                   int64_t ranks, bool is_refilled) const {
  if (need.held.elements == 0) return 0;
  // Whatever the way, addends - 1 receipts bring the addends of an element
  // together, and one more makes each other copy; spread over all ranks.
  const auto receipts = [&](int64_t addends, int64_t copies) {
    const int64_t all = has_ragged_ ? ragged_elements_ : num_elements_;
    return SaturatingMul(all, addends + copies - 2) / num_ranks_;
  };
  const bool is_reduced = changes.addends > 1;
  const int64_t missing =
      need.held.elements - (is_reduced ? 0 : need.found.elements);
  int64_t sharers = SaturatingMul(ranks, changes.sharers);
  if (is_refilled) {
    sharers = SaturatingMul(sharers, changes.keepers);
    return std::max(missing / sharers, receipts(changes.least_kept, 1));
  }
  const int64_t received = missing / sharers;
  return is_reduced
             ? std::max(received, receipts(changes.addends, changes.copies))
             : received;
}

int64_t LayoutGraph::LeastTransfer(int64_t received, int64_t counted,
                                   const Fills& fills) const {
  const auto time = [&](int64_t elements) {
    int64_t sum = best_rate_.LeastTimeFor((elements - counted) * element_size_);
    int64_t least = fills.least_written;
    int64_t piece = fills.held;
    for (int i = 0; i < fills.count; ++i) {
      const int64_t written = std::max(piece - elements, least);
      sum = SaturatingAdd(sum,
                          memory_rate_.LeastTimeFor(written * element_size_));
      least = 0;
      piece /= largest_axis_;
    }
    return sum;
  };
  // Its minimum is where one of the fills stops to write less.
  int64_t least = time(received);
  int64_t turn = fills.held - fills.least_written;
  int64_t piece = fills.held;
  for (int i = 0; i < fills.count && piece > received; ++i) {
    if (turn > received) least = std::min(least, time(turn));
    piece /= largest_axis_;
    turn = piece;
  }
  return least;
}

int64_t LayoutGraph::LeastTransfer(const Ends& ends, bool is_refilled) const {
  const Changes& changes = ends.changes;
  const Need& need = ends.need;
  const bool all_alike = need.everywhere > 0;
  const int64_t held =
      all_alike ? need.everywhere
                : std::min(need.held.elements, AverageElements(ends.to));
  const Fills fills = {
      .count = std::popcount(changes.filled) + (is_refilled ? 1 : 0),
      .held = held,
      .least_written =
          held / (num_ranks_ / (changes.sharers * changes.keepers))};
  int64_t least =
      LeastTransfer(LeastReceived(need, changes, 1, is_refilled), 0, fills);
  // What ranks receive on average; the sharers of an element as many as one.
  int64_t everywhere = 0;
  if (!is_refilled) {
    everywhere = changes.addends > 1
                     ? need.everywhere / changes.sharers
                     : need.everywhere / changes.sharers - need.found_at_home;
  }
  // What has to cross slower links: ranks that only faster ones separate count
  // as one, and share it.
  for (size_t i = 0; i + 1 < tiers_.size() && ends.ranks > 1; ++i) {
    const Tier& tier = tiers_[i];
    const Changes slow = ChangesOf(ends.from, ends.to, tier.within);
    const Need group = NeedTogether(ends.overlap, ends.from, ends.to,
                                    tier.within, tier.within & ~slow.filled);
    const bool refills_slow = is_refilled && slow.keepers > 1;
    const int64_t share =
        LeastReceived(group, slow, tier.sharers, refills_slow);
    const int64_t time =
        SaturatingAdd(tier.rate.LeastTimeFor(share * element_size_),
                      LeastTransfer(std::max(share, everywhere), share,
                                    all_alike ? fills : Fills()));
    least = std::max(least, time);
  }
  return least;
}

int64_t LayoutGraph::LeastTime(const PackedLayout& from,
                               const PackedLayout& to) const {
  const Overlap overlap = OverlapOf(from, to);
  const Changes changes = ChangesOf(from, to, kAllAxes);
  const Need need = NeedOf(overlap, kAllAxes & ~changes.filled);
  if (need.held.elements == 0) return 0;
  int64_t ranks = need.held.pieces - need.found.pieces + 1;
  if (changes.addends > 1) {
    ranks =
        SaturatingMul(std::max<int64_t>(need.held.pieces, 1), changes.addends);
  }
  ranks = CeilDiv(ranks, changes.sharers * changes.keepers);
  const size_t bits = std::bit_width(static_cast<uint64_t>(ranks)) - 1;
  const int64_t latency =
      least_latencies_[std::min(bits, least_latencies_.size() - 1)];

  const Ends ends = {from, to, overlap, changes, need, ranks};
  int64_t transfer = LeastTransfer(ends, /*is_refilled=*/false);
  if (changes.keepers > 1) {
    transfer = std::min(transfer, LeastTransfer(ends, /*is_refilled=*/true));
  }
  return SaturatingAdd(latency, transfer);
}

}  // namespace tessera::internal

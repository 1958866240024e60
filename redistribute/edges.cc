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
#include "tessera/mesh/collective_time.h"

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

Placement PlacementOf(AxisState state) {
  if (state.is_partial()) return Placement::Partial(state.op());
  return state.is_shard() ? Placement::Shard(state.dim())
                          : Placement::Replicate();
}

// Appends an edge, to be completed where it is: to copy an object that has just
// been written bit by bit takes longer.
Edge& AddEdge(StepKind kind, const AxisList& axes, const PackedLayout& after,
              std::vector<Edge>& edges) {
  Edge& edge = edges.emplace_back();
  edge.kind = kind;
  edge.axes = axes;
  edge.after = after;
  return edge;
}

}  // namespace

LayoutGraph::LayoutGraph(const Layout& source, const Topology& topology)
    : source_(source),
      extents_(source.shape().extents().begin(),
               source.shape().extents().end()),
      num_elements_(source.shape().num_elements()),
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
  AddGroups();
  AddBounds();
}

void LayoutGraph::AddTiers(absl::Span<const Link> links) {
  absl::InlinedVector<Link, kMaxMovingAxes> sorted(links.begin(), links.end());
  absl::c_sort(sorted, IsSlower);
  AxisMask within = kNoAxes;
  for (const Link& link : sorted) {
    if (!tiers_.empty() && tiers_.back().link == link) continue;
    for (size_t i = 0; i < links.size(); ++i) {
      if (links[i] != link) continue;
      axes_[i].tier = static_cast<int>(tiers_.size());
      within |= AxisMask{1} << i;
    }
    tiers_.push_back({link, Rate(link.bytes_per_second), within, 1});
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

void LayoutGraph::AddGroups() {
  const AxisMask all = (AxisMask{1} << num_axes()) - 1;
  groups_.resize(all + 1);
  for (AxisMask axes = 1; axes <= all; ++axes) {
    Group& group = groups_[axes];
    group.size =
        GroupSize(axes & (axes - 1)) * axes_[std::countr_zero(axes)].size;
    int64_t within = group.size;  // ranks that no tier so far separates
    for (const Tier& tier : tiers_) {
      const int64_t nearer = GroupSize(axes & ~tier.within);
      if (nearer == within) continue;
      group.messages.push_back(
          {within - nearer, LatencyOf(tier, axes), tier.rate});
      within = nearer;
    }
  }
  for (Tier& tier : tiers_) tier.sharers = GroupSize(all & ~tier.within);
  num_ranks_ = GroupSize(all);
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
  for (size_t i = 0; i < axes_.size(); ++i) {
    placements[axes_[i].index] = PlacementOf(packed[i]);
  }
  if (!has_ragged_ && IsInAxisOrder(packed)) {
    return source_.With(placements).value();
  }
  std::vector<Layout::DimOrder> order;
  for (int dim = 0; dim < num_dims(); ++dim) {
    order.push_back({dim, has_ragged_ ? source_.ShardAxes(dim)
                                      : MeshCoords(CountShards(packed, dim))});
  }
  for (size_t i = 0; i < axes_.size(); ++i) {
    const AxisState state = packed[i];
    if (!state.is_shard()) continue;
    order[state.dim()].axes[state.position()] = axes_[i].index;
  }
  return source_.With(placements, order).value();
}

void LayoutGraph::EdgesFrom(const PackedLayout& from,
                            std::vector<Edge>& edges) const {
  const CutLayout start = Cut(from);
  UnpricedEdgesFrom(start, edges);
  AddUnpricedMovesFrom(start, edges);
  const auto is_idle = [&](Edge& edge) {
    return !Price(start, Cut(edge.after), edge);
  };
  edges.erase(std::remove_if(edges.begin(), edges.end(), is_idle), edges.end());
  for (Edge& edge : edges) AddAxes(from, edge);
}

bool LayoutGraph::Price(const CutLayout& from, const CutLayout& to,
                        Edge& edge) const {
  if (edge.kind == StepKind::kExchange) {
    edge.cost = ExchangeCost(OverlapOf(from, to));
    return edge.cost.messages > 0;
  }
  edge.cost = Communicates(edge.kind)
                  ? CollectiveCost(edge.kind, from, to, edge.axes)
                  : LocalCost(to);
  return true;
}

LayoutGraph::LeastEdge LayoutGraph::LeastEdgeTo(const CutLayout& to) const {
  const int64_t bytes = PieceBytes(to);
  const int64_t messages = SaturatingAdd(launch_ps_, least_latency_ps_);
  // Where cuts halve, a rank that lacks something lacks half at least.
  const int64_t received = all_halve_ ? bytes / 2 : 0;
  return {memory_rate_.TimeFor(bytes),
          SaturatingAdd(messages, best_rate_.TimeFor(received))};
}

void LayoutGraph::AddAxes(const PackedLayout& from, Edge& edge) const {
  if (edge.kind != StepKind::kExchange) return;
  const CutLayout start = Cut(from);
  const CutLayout end = Cut(edge.after);
  edge.axes = ExchangeAxes(OverlapOf(start, end), from);
}

void LayoutGraph::UnpricedEdgesFrom(const CutLayout& from,
                                    std::vector<Edge>& edges) const {
  edges.clear();
  for (int i = 0; i < num_axes(); ++i) SingleAxisEdges(from, i, edges);
  for (ReduceOp op : partial_ops_) {
    AxisMask axes = kNoAxes;
    for (int i = 0; i < num_axes(); ++i) {
      if (from.layout[i] == AxisState::Partial(op)) axes |= AxisMask{1} << i;
    }
    ReductionEdges(from, axes, edges);
  }
  if (has_ragged_) return;
  for (int dim = 0; dim < num_dims(); ++dim) ShardEdges(from, dim, edges);
}

void LayoutGraph::AddUnpricedMovesFrom(const CutLayout& from,
                                       std::vector<Edge>& edges) const {
  if (!MayExchange(from.layout)) return;
  for (int i = 0; i < num_axes(); ++i) MoveEdges(from, i, edges);
}

void LayoutGraph::SingleAxisEdges(const CutLayout& from, int i,
                                  std::vector<Edge>& edges) const {
  const AxisState state = from.layout[i];
  if (state.is_shard() && !from.IsMinorMost(i)) return;
  const AxisList axis = SingleAxis(i);
  const auto add = [&](StepKind kind, AxisState after) {
    AddEdge(kind, axis, from.layout, edges).after[i] = after;
  };
  if (!state.is_replicate()) {
    add(state.is_partial() ? StepKind::kAllReduce : StepKind::kAllGather,
        AxisState());
  }
  for (ReduceOp op : partial_ops_) {
    if (!MayBecomePartial(from.layout, i, op)) continue;
    add(state.is_partial() ? StepKind::kScale : StepKind::kFill,
        AxisState::Partial(op));
  }
  if (has_ragged_) return;
  const StepKind to_shard = state.is_replicate() ? StepKind::kSlice
                            : state.is_partial() ? StepKind::kReduceScatter
                                                 : StepKind::kAllToAll;
  for (int dim = 0; dim < num_dims(); ++dim) {
    if (state.is_shard(dim)) continue;
    add(to_shard, AxisState::Shard(dim, from.num_cuts(dim)));
  }
}

// All-reduces and reduce-scatters over two or more of `axes`, which are P of
// one op.
void LayoutGraph::ReductionEdges(const CutLayout& from, AxisMask axes,
                                 std::vector<Edge>& edges) const {
  for (AxisMask chosen = 1; chosen <= axes; ++chosen) {
    if ((chosen & axes) != chosen || std::has_single_bit(chosen)) continue;
    AxisList list = AxesOf(chosen);
    const PackedLayout reduced = WithAxes(from.layout, list, AxisState());
    AddEdge(StepKind::kAllReduce, list, reduced, edges);
    if (has_ragged_) continue;
    const auto begin = list.axes.begin();
    do {
      for (int dim = 0; dim < num_dims(); ++dim) {
        Edge& edge = AddEdge(StepKind::kReduceScatter, list, reduced, edges);
        Shard(list, dim, from.num_cuts(dim), edge.after);
      }
    } while (list.size <= kMaxAxesPermuted &&
             std::next_permutation(begin, begin + list.size));
  }
}

// All-gathers and all-to-alls over two or more of the axes that cut `dim`.
void LayoutGraph::ShardEdges(const CutLayout& from, int dim,
                             std::vector<Edge>& edges) const {
  for (int count = 2; count <= from.num_cuts(dim); ++count) {
    const AxisList axes = MinorAxes(from.dims[dim], count);
    const PackedLayout gathered = WithAxes(from.layout, axes, AxisState());
    AddEdge(StepKind::kAllGather, axes, gathered, edges);
    const bool few = GroupSize(axes) <= kMaxRanksTried;
    const bool is_cut_evenly =
        !few && CutsEvenly(from.PieceBefore(axes.axes[0]), axes);
    for (int other = 0; other < num_dims(); ++other) {
      if (other == dim) continue;
      const bool is_legal =
          few || (is_cut_evenly && CutsEvenly(from.dims[other].piece, axes));
      if (!is_legal) continue;
      Edge& edge = AddEdge(StepKind::kAllToAll, axes, gathered, edges);
      Shard(axes, other, from.num_cuts(other), edge.after);
    }
  }
}

// Exchanges that take one axis out of a cutting order or put it into one, other
// than at the end of both.
void LayoutGraph::MoveEdges(const CutLayout& from, int i,
                            std::vector<Edge>& edges) const {
  const AxisState state = from.layout[i];
  const bool was_last = !state.is_shard() || from.IsMinorMost(i);
  const PackedLayout without = Without(from.layout, i);
  if (!was_last) AddEdge(StepKind::kExchange, {}, without, edges);
  for (int dim = 0; dim < num_dims(); ++dim) {
    const AxisList others = AxesBut(from.dims[dim], i);
    for (int at = 0; at <= others.size; ++at) {
      const bool is_collective = was_last && at == others.size;
      if (state == AxisState::Shard(dim, at) || is_collective) continue;
      Edge& edge = AddEdge(StepKind::kExchange, {}, without, edges);
      edge.after[i] = AxisState::Shard(dim, at);
      for (int behind = at; behind < others.size; ++behind) {
        edge.after[others.axes[behind]] = AxisState::Shard(dim, behind + 1);
      }
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

bool LayoutGraph::HasSliceOrCollective(const CutLayout& from,
                                       const CutLayout& to) const {
  if (OnlySlices(from.layout, to.layout)) return true;
  const auto is_even = [](const CutLayout::Dim& dim) { return dim.is_even; };
  return DifferAlongOneAxis(from.layout, to.layout) &&
         absl::c_all_of(from.dims, is_even) && absl::c_all_of(to.dims, is_even);
}

bool LayoutGraph::MayExchange(const PackedLayout& layout) const {
  return !has_ragged_ && !HasPartial(layout);
}

std::optional<Edge> LayoutGraph::Exchange(const PackedLayout& from,
                                          const PackedLayout& to) const {
  Edge edge = {StepKind::kExchange, {}, to};
  if (!Price(Cut(from), Cut(to), edge)) return std::nullopt;
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
        PackedLayout before = layout;
        before[i] = AxisState::Shard(dim, CountShards(layout, dim));
        add(before);
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
  const size_t count = NumExchangeable();
  if (count > kMaxFromSource) return {};
  // Axis by axis: R, or at any place in the cutting order of any dim.
  std::vector<PackedLayout> layouts = {PackedLayout()};
  std::vector<PackedLayout> longer;
  layouts.reserve(count);
  longer.reserve(count);
  for (int i = 0; i < num_axes(); ++i) {
    longer.clear();
    for (const PackedLayout& layout : layouts) {
      longer.push_back(layout);
      for (int dim = 0; dim < num_dims(); ++dim) {
        for (int at = CountShards(layout, dim); at >= 0; --at) {
          longer.push_back(WithShardAt(layout, i, dim, at));
        }
      }
    }
    std::swap(layouts, longer);
  }
  return layouts;
}

}  // namespace tessera::internal

#include "tessera/redistribute/edges.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tessera/base/checked_math.h"
#include "tessera/tensor/index.h"

namespace tessera::internal {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kPicosecondsPerSecond = 1'000'000'000'000;

// In picoseconds, rounded up.
int64_t TransferTime(int64_t bytes, int64_t bytes_per_second) {
  const __int128 time = static_cast<__int128>(bytes) * kPicosecondsPerSecond;
  const __int128 rounded_up = (time + bytes_per_second - 1) / bytes_per_second;
  return static_cast<int64_t>(std::min<__int128>(rounded_up, kMax));
}

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

PackedLayout WithAxis(const PackedLayout& layout, int i, AxisState state) {
  PackedLayout result = layout;
  result[i] = state;
  return result;
}

// `layout` with axis `i` as the last that cuts `dim`.
// REQUIRES: axis i does not shard `dim`.
PackedLayout WithShard(const PackedLayout& layout, int i, int dim) {
  return WithAxis(layout, i, AxisState::Shard(dim, CountShards(layout, dim)));
}

int64_t Product(const Dims& extents) {
  int64_t product = 1;
  for (int64_t extent : extents) product *= extent;
  return product;
}

// The most elements of one dim of `extent`, cut over `parts`, that are new to
// a rank which gathers the dim having one of its pieces.
int64_t MostGathered(int64_t extent, int64_t parts) {
  return extent - CeilSplit(extent, parts, parts - 1).size();
}

// The most that a rank receives, per element of the other dims, when shards of
// a dim of extent `gathered` become shards of a dim of extent `cut`.
int64_t MostExchanged(int64_t gathered, int64_t cut, int64_t parts) {
  const auto exchanged = [&](int64_t i) {
    return (gathered - CeilSplit(gathered, parts, i).size()) *
           CeilSplit(cut, parts, i).size();
  };
  // What is missing grows with the coordinate, and the new piece shrinks: it
  // is whole up to some coordinate, a remainder there, then empty.
  const int64_t chunk = CeilDiv(cut, parts);
  if (chunk == 0) return 0;
  const int64_t remainder = std::min(cut / chunk, parts - 1);
  return std::max(exchanged(std::max<int64_t>(remainder - 1, 0)),
                  exchanged(remainder));
}

int64_t HopsOf(StepKind kind, int64_t group_size) {
  return kind == StepKind::kAllReduce ? 2 * (group_size - 1) : group_size - 1;
}

}  // namespace

LayoutGraph::LayoutGraph(const Layout& source, const Topology& topology)
    : source_(source),
      has_ragged_(!source.RaggedAxes().empty()),
      launch_ps_(topology.launch_ps()),
      memory_bytes_per_second_(topology.memory_bytes_per_second()) {
  if (has_ragged_) ragged_elements_ = source.MostElements();
  for (int index = 0; index < source.mesh().num_axes(); ++index) {
    const MeshAxis& axis = source.mesh().axis(index);
    const Placement& placement = source.placement(index);
    const bool stays = placement.is_ragged() ||
                       (has_ragged_ && placement.is_shard()) || axis.size == 1;
    if (stays) continue;
    axes_.push_back({index, axis.size, topology.LinkOf(source.mesh(), index)});
  }
}

absl::StatusOr<LayoutGraph> LayoutGraph::Create(const Layout& source,
                                                const Layout& target,
                                                const Topology& topology) {
  LayoutGraph graph(source, topology);
  graph.partial_ops_ = ExploredOps(source, target);
  if (graph.axes_.size() > AxisState::kMaxPositions) {
    return absl::UnimplementedError(
        absl::StrCat("redistribute: want at most ", AxisState::kMaxPositions,
                     " mesh axes of size above 1, found ", graph.axes_.size(),
                     " in mesh '", source.mesh().ToString(), "'"));
  }
  if (graph.num_dims() > AxisState::kMaxDims) {
    return absl::UnimplementedError(
        absl::StrCat("redistribute: want at most ", AxisState::kMaxDims,
                     " tensor dims, found ", graph.num_dims()));
  }
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
  edges.clear();
  for (int i = 0; i < static_cast<int>(axes_.size()); ++i) {
    const AxisState state = from[i];
    if (state.is_shard() && !IsMinorMost(from, i)) continue;
    const auto add = [&](StepKind kind, const PackedLayout& after) {
      edges.push_back(
          {kind, axes_[i].index, after, CostOf(kind, from, after, i)});
    };

    if (!state.is_replicate()) {
      add(state.is_partial() ? StepKind::kAllReduce : StepKind::kAllGather,
          WithAxis(from, i, AxisState()));
    }
    for (ReduceOp op : partial_ops_) {
      if (!MayBecomePartial(from, i, op)) continue;
      add(state.is_partial() ? StepKind::kScale : StepKind::kFill,
          WithAxis(from, i, AxisState::Partial(op)));
    }
    if (has_ragged_) continue;
    const StepKind to_shard = state.is_replicate() ? StepKind::kSlice
                              : state.is_partial() ? StepKind::kReduceScatter
                                                   : StepKind::kAllToAll;
    for (int dim = 0; dim < num_dims(); ++dim) {
      if (!state.is_shard(dim)) add(to_shard, WithShard(from, i, dim));
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

Dims LayoutGraph::LocalExtents(const PackedLayout& packed) const {
  Dims extents(source_.shape().extents().begin(),
               source_.shape().extents().end());
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

int64_t LayoutGraph::ReceivedElements(StepKind kind, const PackedLayout& before,
                                      const PackedLayout& after, int i) const {
  const int64_t n = axes_[i].size;
  switch (kind) {
    case StepKind::kAllReduce: {
      const int64_t elements = LocalElements(before);
      return SaturatingAdd(elements,
                           SaturatingMul(n - 2, CeilDiv(elements, n)));
    }
    case StepKind::kReduceScatter:
      return SaturatingMul(n - 1, LocalElements(after));
    case StepKind::kAllGather: {
      // No other rank has larger extents than the one at coordinate 0 of the
      // other axes, and what is missing grows with each of them.
      Dims extents = LocalExtents(after);
      int64_t& gathered = extents[before[i].dim()];
      gathered = MostGathered(gathered, n);
      return Product(extents);
    }
    case StepKind::kAllToAll: {
      Dims extents = LocalExtents(WithAxis(after, i, AxisState()));
      const int64_t gathered = std::exchange(extents[before[i].dim()], 1);
      const int64_t cut = std::exchange(extents[after[i].dim()], 1);
      return MostExchanged(gathered, cut, n) * Product(extents);
    }
    case StepKind::kExchange:
    case StepKind::kRelabel:
    case StepKind::kSlice:
    case StepKind::kFill:
    case StepKind::kScale:
      return 0;
  }
  return 0;
}

Cost LayoutGraph::CostOf(StepKind kind, const PackedLayout& before,
                         const PackedLayout& after, int i) const {
  const int64_t element_size = SizeOf(source_.dtype());
  if (!Communicates(kind)) {
    const int64_t bytes = LocalElements(after) * element_size;
    return {.time_ps = TransferTime(bytes, memory_bytes_per_second_)};
  }
  const Axis& axis = axes_[i];
  const int64_t bytes =
      SaturatingMul(ReceivedElements(kind, before, after, i), element_size);
  const int64_t latency =
      SaturatingMul(HopsOf(kind, axis.size), axis.link.latency_ps);
  const int64_t transfer = TransferTime(bytes, axis.link.bytes_per_second);
  return {
      .bytes_received = bytes,
      .messages = axis.size - 1,
      .time_ps = SaturatingAdd(SaturatingAdd(launch_ps_, latency), transfer)};
}

}  // namespace tessera::internal

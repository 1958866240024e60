#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "tessera/base/checked_math.h"
#include "tessera/mesh/collective_time.h"
#include "tessera/redistribute/edges.h"
#include "tessera/tensor/index.h"

namespace tessera::internal {

int64_t LayoutGraph::LocalElements(const CutLayout& layout) const {
  return has_ragged_ ? ragged_elements_ : layout.num_elements;
}

int64_t LayoutGraph::PieceBytes(const CutLayout& layout) const {
  return LocalElements(layout) * element_size_;
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
                                   const AxisList& axes, int64_t n) const {
  if (gathered % n == 0 && cut % n == 0) {
    return (gathered - gathered / n) * (cut / n);
  }
  return MostExchanged(gathered, {gathered, cut}, axes.span());
}

int64_t LayoutGraph::MostExchanged(int64_t gathered, const Pieces& pieces,
                                   absl::Span<const uint8_t> axes) const {
  if (pieces.cut == 0) return 0;
  if (axes.empty()) return (gathered - pieces.own) * pieces.cut;
  const int64_t size = axes_[axes[0]].size;
  int64_t most = 0;
  const auto try_part = [&](int64_t i) {
    if (i >= size) return;
    const Pieces parts = {CeilSplit(pieces.own, size, i).size(),
                          CeilSplit(pieces.cut, size, i).size()};
    most = std::max(most, MostExchanged(gathered, parts, axes.subspan(1)));
  };
  // Some parts are whole, the next one is what remains, the others are empty.
  // Of those that are alike, one will do.
  try_part(0);
  for (int64_t extent : {pieces.own, pieces.cut}) {
    if (extent == 0) continue;
    const int64_t whole = extent / CeilDiv(extent, size);
    try_part(whole);
    try_part(whole + 1);
  }
  return most;
}

LayoutGraph::Load LayoutGraph::LoadOf(StepKind kind, const CutLayout& before,
                                      const CutLayout& after,
                                      const AxisList& axes, int64_t n) const {
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
      const int dim = before.layout[axes.axes[0]].dim();
      const int64_t gathered = after.dims[dim].piece;
      int64_t others = 1;
      for (int i = 0; i < num_dims(); ++i) {
        if (i != dim) others *= after.dims[i].piece;
      }
      const int64_t least = gathered % n == 0
                                ? gathered / n
                                : LeastNestedPiece(gathered, axes.span());
      return {(gathered - least) * others, before.dims[dim].piece * others};
    }
    case StepKind::kAllToAll: {
      const int from = before.layout[axes.axes[0]].dim();
      const int to = after.layout[axes.axes[0]].dim();
      const int64_t gathered = after.dims[from].piece;
      const int64_t cut = before.dims[to].piece;
      int64_t others = 1;
      for (int i = 0; i < num_dims(); ++i) {
        if (i != from && i != to) others *= before.dims[i].piece;
      }
      return {MostExchanged(gathered, cut, axes, n) * others,
              before.dims[from].piece * after.dims[to].piece * others};
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

Cost LayoutGraph::LocalCost(const CutLayout& after) const {
  return {.time_ps = memory_rate_.TimeFor(PieceBytes(after))};
}

int64_t LayoutGraph::LatencyOf(const Tier& tier, AxisMask crossed) const {
  int64_t latency = tier.link.latency_ps;
  if (latencies_descend_) return latency;
  const AxisList within_faster = AxesOf(crossed & ~tier.within);
  for (int i : within_faster.span()) {
    latency = std::max(latency, tiers_[axes_[i].tier].link.latency_ps);
  }
  return latency;
}

Cost LayoutGraph::CollectiveCost(StepKind kind, const CutLayout& before,
                                 const CutLayout& after,
                                 const AxisList& axes) const {
  const Group& group = groups_[MaskOf(axes)];
  const int64_t n = group.size;
  const Load load = LoadOf(kind, before, after, axes, n);
  Cost cost = {.bytes_received = SaturatingMul(load.total, element_size_),
               .messages = n - 1};
  CollectiveTime time(
      {.messages = n - 1,
       .hops_per_message = kind == StepKind::kAllReduce ? 2 : 1,
       .bytes = cost.bytes_received,
       .largest_message = SaturatingMul(load.largest_message, element_size_)});
  for (const Group::Messages& messages : group.messages) {
    time.Add(messages.count, messages.latency_ps, messages.rate);
  }
  cost.time_ps = SaturatingAdd(launch_ps_, time.picoseconds());
  return cost;
}

Cost LayoutGraph::ExchangeCost(const Overlap& overlap) const {
  // Where latencies descend, the crossed axes do not matter.
  const AxisMask crossed = latencies_descend_ ? kNoAxes : overlap.AxesLeft();
  Cost cost = {.time_ps = launch_ps_};
  Share at_hand = overlap.Most();  // within the tiers looked at so far
  bool is_exact = true;
  for (const Tier& tier : tiers_) {
    const Overlap::Finding least = overlap.Least(tier.within);
    is_exact = is_exact && least.is_exact;
    AddMessages(tier, crossed, at_hand, least.share, cost);
    at_hand = least.share;
  }
  if (is_exact) return cost;
  const AxisMask decisive = overlap.DecisiveAxes();
  if (GroupSize(decisive) > kMaxRanksTried) return cost;
  Cost most;
  ForEachCoords(AxesOf(decisive), [&](const PackedCoords& coords) {
    const Cost at_rank = ExchangeCostAt(overlap, coords, crossed);
    most.bytes_received = std::max(most.bytes_received, at_rank.bytes_received);
    most.messages = std::max(most.messages, at_rank.messages);
    most.time_ps = std::max(most.time_ps, at_rank.time_ps);
  });
  return most;
}

Cost LayoutGraph::ExchangeCostAt(const Overlap& overlap,
                                 const PackedCoords& coords,
                                 AxisMask crossed) const {
  Cost cost = {.time_ps = launch_ps_};
  Share at_hand = overlap.FoundAt(coords, kNoAxes);
  for (const Tier& tier : tiers_) {
    const Share found = overlap.FoundAt(coords, tier.within);
    AddMessages(tier, crossed, at_hand, found, cost);
    at_hand = found;
  }
  return cost;
}

void LayoutGraph::AddMessages(const Tier& tier, AxisMask crossed,
                              const Share& needed, const Share& found,
                              Cost& cost) const {
  const int64_t messages = needed.pieces - found.pieces;
  const int64_t bytes = (needed.elements - found.elements) * element_size_;
  cost.messages += messages;
  cost.bytes_received += bytes;
  const int64_t latency = SaturatingMul(messages, LatencyOf(tier, crossed));
  cost.time_ps = SaturatingAdd(
      cost.time_ps, SaturatingAdd(latency, tier.rate.TimeFor(bytes)));
}

}  // namespace tessera::internal

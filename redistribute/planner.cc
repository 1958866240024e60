#include "tessera/redistribute/planner.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "tessera/base/checked_math.h"
#include "tessera/base/status_macros.h"
#include "tessera/redistribute/crossing.h"
#include "tessera/redistribute/edges.h"
#include "tessera/redistribute/unit_axes.h"

namespace tessera {
namespace {

using internal::Edge;
using internal::LayoutGraph;
using internal::PackedLayout;
using internal::WithoutPartial;
using internal::WithoutUnitAxes;

absl::Status CheckSameTensor(const Layout& source, const Layout& target) {
  if (source.meta() != target.meta()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "redistribute: want source and target of one dtype and shape, found ",
        source.meta().ToString(), " and ", target.meta().ToString()));
  }
  return absl::OkStatus();
}

// True if nothing changes along `axis`, its place in a cutting order included.
bool SamePlacement(const Layout& a, const Layout& b, int axis) {
  return a.placement(axis) == b.placement(axis) &&
         (!a.placement(axis).is_shard() ||
          a.order_position(axis) == b.order_position(axis));
}

// True if a ragged cut of either, or what shards beside one, changes.
// REQUIRES: one mesh.
bool MovesRaggedCut(const Layout& source, const Layout& target) {
  if (source.RaggedAxes().empty() && target.RaggedAxes().empty()) return false;
  const auto holds_a_piece = [](const Placement& placement) {
    return placement.is_ragged() || placement.is_shard();
  };
  for (int axis = 0; axis < source.mesh().num_axes(); ++axis) {
    const bool counts = holds_a_piece(source.placement(axis)) ||
                        holds_a_piece(target.placement(axis));
    if (counts && !SamePlacement(source, target, axis)) return true;
  }
  return false;
}

// The shortest path from `source` to `target`: A* over layouts, whose distance
// to the target is bounded from below by what ranks need. Where workspace
// counts, also over where the value lies: see StorageOfSteps.
class Search {
 public:
  Search(const LayoutGraph& graph, const PackedLayout& source,
         const PackedLayout& target)
      : graph_(graph),
        source_(source),
        target_(target),
        are_few_(graph.NumExchangeable() <= LayoutGraph::kMaxFromEverywhere) {
    nodes_.reserve(kFewNodes);
    index_.reserve(kFewNodes);
    edges_.reserve(kFewNodes);
  }

  // Of the ways whose steps need at most that much workspace; empty if there
  // are none. REQUIRES: source != target.
  std::vector<Edge> CheapestPath(std::optional<int64_t> max_workspace) {
    max_workspace_ = max_workspace;
    return Path();
  }

  // The least workspace with which there is a way. REQUIRES: source != target.
  int64_t LeastWorkspace() {
    max_workspace_ = std::numeric_limits<int64_t>::max();
    counts_workspace_ = true;
    Path();
    return nodes_[best_].rank.cost;
  }

 private:
  // Enough for most searches on two mesh axes.
  static constexpr size_t kFewNodes = 32;

  // Where the value lies. Without a limit all of it counts as workspace.
  enum class Place : uint8_t { kSource, kWorkspace, kTarget };

  struct State {
    PackedLayout layout = {};
    Place place = Place::kWorkspace;

    friend bool operator==(const State&, const State&) = default;
    template <typename H>
    friend H AbslHashValue(H h, const State& s) {
      return H::combine(std::move(h), std::bit_cast<uint64_t>(s.layout),
                        s.place);
    }
  };

  // What makes a way better than another, first to last.
  struct Rank {
    int64_t cost = std::numeric_limits<int64_t>::max();  // time, or workspace
    int steps = std::numeric_limits<int>::max();
    int exchanges = 0;  // of the steps

    friend auto operator<=>(const Rank&, const Rank&) = default;
  };
  // From the source.
  struct Way {
    Rank rank = {};
    int parent = -1;  // the node before the last edge
    Edge edge = {};   // the last
  };
  struct Node : Way {  // the best known
    State state = {};
    int64_t bound = 0;  // on the cost of the rest
    LayoutGraph::LeastEdge least_edge = {};
  };

  // The order of the search: bound on the whole cost, steps, then which node
  // was found first. That depends on the order of edges alone; the hash map is
  // only looked up.
  struct Entry {
    int64_t bound;
    int steps;
    int node;
    Rank rank;  // the node's; another one by now: the entry is void

    friend auto operator<=>(const Entry&, const Entry&) = default;
  };

  // Where an exchange may lead.
  struct Stop {
    int node;
    int64_t bound;  // on the cost of the exchange and the way from there
  };

  bool has_limit() const { return max_workspace_.has_value(); }

  std::vector<Edge> Path() {
    Reach(NodeOf({source_, has_limit() ? Place::kSource : Place::kWorkspace}),
          {.rank = {.cost = 0, .steps = 0}});
    stops_ =
        StopsAt(are_few_ ? graph_.AllExchangeable() : graph_.FilledTo(target_));
    while (!queue_.empty()) {
      const Entry entry = queue_.top();
      queue_.pop();
      const Node& node = nodes_[entry.node];
      if (node.rank == entry.rank) {
        if (IsGoal(node.state)) return PathEndingAt(entry.node);
        Expand(entry.node);
      }
      TryFirstStops();
    }
    return {};
  }

  bool IsGoal(const State& state) const {
    return state.layout == target_ &&
           (!has_limit() || state.place == Place::kTarget);
  }

  void Expand(int at) {
    // Copied, for Follow may move the nodes.
    const PackedLayout layout = nodes_[at].state.layout;
    const bool may_exchange = graph_.MayExchange(layout);
    // First, for the direct way bounds all others.
    if (may_exchange) TryStops(at);
    graph_.UnpricedEdgesFrom(layout, edges_);
    if (!are_few_) graph_.AddUnpricedMovesFrom(layout, edges_);
    for (Edge& edge : edges_) Try(at, NodeOf({edge.after}), edge);
    const bool is_source = nodes_[at].parent < 0;
    if (is_source && may_exchange && !are_few_) {
      first_stops_ = StopsAt(graph_.AllExchangeable());
    }
  }

  void TryStops(int at) {
    for (const Stop& stop : stops_) {
      if (Sum(nodes_[at].rank.cost, stop.bound) > BestCost()) break;
      Edge edge = ExchangeTo(stop);
      Try(at, stop.node, edge);
    }
  }

  Edge ExchangeTo(const Stop& stop) const {
    return {.kind = StepKind::kExchange,
            .after = nodes_[stop.node].state.layout};
  }

  // The layouts from which the way to the target may be short, in the order of
  // bounds.
  std::vector<Stop> StopsAt(absl::Span<const PackedLayout> layouts) {
    std::vector<Stop> stops;
    stops.reserve(layouts.size());
    for (const PackedLayout& layout : layouts) {
      const int at = NodeOf({layout});
      const int64_t exchange =
          counts_workspace_ ? 0 : nodes_[at].least_edge.communicating;
      const int64_t bound = Sum(exchange, nodes_[at].bound);
      if (bound <= BestCost()) stops.push_back({at, bound});
    }
    absl::c_stable_sort(
        stops, [](const Stop& a, const Stop& b) { return a.bound < b.bound; });
    return stops;
  }

  // Exchanges may lead from the source to anywhere. Those layouts are tried
  // once the search has come as far as they are.
  void TryFirstStops() {
    for (; next_stop_ < first_stops_.size(); ++next_stop_) {
      const Stop& stop = first_stops_[next_stop_];
      if (!queue_.empty() && stop.bound > queue_.top().bound) return;
      Edge edge = ExchangeTo(stop);
      if (!graph_.Price(source_, edge)) continue;
      if (counts_workspace_ ||
          Sum(edge.cost.time_ps, nodes_[stop.node].bound) <= BestCost()) {
        Follow(0, edge);
      }
    }
  }

  // Prices an edge between two nodes and takes it, if that may be of use.
  void Try(int at, int to, Edge& edge) {
    if (!has_limit() && !MayHelp(at, to, edge.kind)) return;
    if (graph_.Price(nodes_[at].state.layout, edge)) Follow(at, edge);
  }

  // Whether a step, as cheap as it can be, is on a way to its end that is
  // better than those known, and may be part of one to the target.
  bool MayHelp(int at, int to, StepKind kind) const {
    if (!MayHelp(at, to, kind, nodes_[to].least_edge.For(kind))) return false;
    return kind != StepKind::kExchange ||
           MayHelp(at, to, kind, LeastExchange(at, to));
  }
  bool MayHelp(int at, int to, StepKind kind, int64_t cost) const {
    const Rank rank = Behind(nodes_[at], kind, cost);
    return rank < nodes_[to].rank &&
           Sum(rank.cost, nodes_[to].bound) <= BestCost();
  }
  int64_t LeastExchange(int at, int to) const {
    return graph_.LeastExchange(NearExtents(at), NearExtents(to));
  }
  absl::Span<const int64_t> NearExtents(int at) const {
    const size_t size = near_extents_.size() / nodes_.size();
    return absl::MakeConstSpan(near_extents_).subspan(at * size, size);
  }

  // The rank of the way to a node and a step of this cost from there.
  Rank Behind(const Node& node, StepKind kind, int64_t cost) const {
    const bool is_exchange = kind == StepKind::kExchange;
    return {.cost = counts_workspace_ ? std::max(node.rank.cost, cost)
                                      : Sum(node.rank.cost, cost),
            .steps = node.rank.steps + 1,
            .exchanges = node.rank.exchanges + (is_exchange ? 1 : 0)};
  }

  // Takes an edge from a node to wherever it may leave the value.
  void Follow(int at, const Edge& edge) {
    if (!has_limit()) {
      Take(at, edge, Place::kWorkspace, 0);
      return;
    }
    const State from = nodes_[at].state;
    const bool moves =
        WithoutPartial(from.layout) != WithoutPartial(edge.after);
    const bool arrives = WithoutPartial(edge.after) == WithoutPartial(target_);
    const int64_t held =
        from.place == Place::kWorkspace ? graph_.PieceBytes(from.layout) : 0;
    if (from.place == Place::kTarget) {
      if (!moves) Take(at, edge, Place::kTarget, 0);
      return;
    }
    const bool never_moved = from.place == Place::kSource;
    if (arrives && (moves || never_moved)) {
      Take(at, edge, Place::kTarget, held);
    }
    if (never_moved && edge.kind == StepKind::kSlice) {
      Take(at, edge, Place::kSource, 0);
      return;
    }
    const bool in_place = !moves && from.place == Place::kWorkspace;
    Take(at, edge, Place::kWorkspace,
         in_place ? held : held + graph_.PieceBytes(edge.after));
  }

  void Take(int at, const Edge& edge, Place place, int64_t workspace) {
    if (has_limit() && workspace > *max_workspace_) return;
    const int64_t cost = counts_workspace_ ? workspace : edge.cost.time_ps;
    Reach(NodeOf({edge.after, place}),
          {.rank = Behind(nodes_[at], edge.kind, cost),
           .parent = at,
           .edge = edge});
  }

  // Notes a way to a node, if it is the first or better than those known, and
  // may be part of a better way to the target than those known.
  void Reach(int at, const Way& way) {
    Node& node = nodes_[at];
    const int64_t bound = Sum(way.rank.cost, node.bound);
    if (bound > BestCost() || way.rank >= node.rank) return;
    static_cast<Way&>(node) = way;
    if (IsGoal(node.state)) best_ = at;
    queue_.push({.bound = bound,
                 .steps = way.rank.steps,
                 .node = at,
                 .rank = way.rank});
  }

  // The node of a state, to which there may be no way yet.
  int NodeOf(const State& state) {
    const auto [entry, is_new] =
        index_.try_emplace(state, static_cast<int>(nodes_.size()));
    if (is_new) {
      Node& node = nodes_.emplace_back();
      node.state = state;
      node.bound = Bound(state.layout);
      node.least_edge = graph_.LeastEdgeTo(state.layout);
      graph_.AddNearExtents(state.layout, near_extents_);
    }
    return entry->second;
  }

  int64_t BestCost() const {
    return best_ < 0 ? std::numeric_limits<int64_t>::max()
                     : nodes_[best_].rank.cost;
  }
  int64_t Bound(const PackedLayout& layout) const {
    return counts_workspace_ ? 0 : graph_.LeastTime(layout, target_);
  }
  static int64_t Sum(int64_t a, int64_t b) { return SaturatingAdd(a, b); }

  std::vector<Edge> PathEndingAt(int at) const {
    std::vector<Edge> path;
    for (int parent; (parent = nodes_[at].parent) >= 0; at = parent) {
      path.push_back(nodes_[at].edge);
      graph_.AddAxes(nodes_[parent].state.layout, path.back());
    }
    absl::c_reverse(path);
    return path;
  }

  const LayoutGraph& graph_;
  const PackedLayout source_;
  const PackedLayout target_;
  const bool are_few_;  // exchanges lead from any layout to any other
  std::optional<int64_t> max_workspace_;
  bool counts_workspace_ = false;  // as the cost
  std::vector<Node> nodes_;
  std::vector<int64_t> near_extents_;  // of nodes_, one after the other
  int best_ = -1;  // the node of the target, once there is one
  absl::flat_hash_map<State, int> index_;  // into nodes_
  std::priority_queue<Entry, std::vector<Entry>, std::greater<Entry>> queue_;
  std::vector<Stop> first_stops_;  // of exchanges from the source
  size_t next_stop_ = 0;
  std::vector<Stop> stops_;  // of exchanges from anywhere
  std::vector<Edge> edges_;
};

absl::StatusOr<std::vector<Edge>> FindPath(const LayoutGraph& graph,
                                           const PackedLayout& source,
                                           const PackedLayout& target,
                                           const PlanOptions& options) {
  const std::optional<int64_t> limit = options.max_workspace_bytes;
  std::vector<Edge> path = Search(graph, source, target).CheapestPath(limit);
  if (!path.empty()) return path;
  return absl::ResourceExhaustedError(absl::StrCat(
      "redistribute: from ", graph.Unpack(source).ToString(), " to ",
      graph.Unpack(target).PlacementsToString(), " on mesh '",
      graph.Unpack(source).mesh().ToString(), "' want a workspace of at least ",
      Search(graph, source, target).LeastWorkspace(),
      " bytes, found a limit of ", limit.value_or(0)));
}

Step Relabelling(const Layout& before, const Layout& after) {
  Step step;
  step.kind = StepKind::kRelabel;
  step.before = before;
  step.after = after;
  for (int axis = 0; axis < before.mesh().num_axes(); ++axis) {
    if (!SamePlacement(before, after, axis)) step.axes.push_back(axis);
  }
  return step;
}

}  // namespace

absl::StatusOr<Plan> MakePlan(const Layout& source, const Layout& target,
                              const Topology& topology,
                              const PlanOptions& options) {
  TESSERA_RETURN_IF_ERROR(CheckSameTensor(source, target));
  if (options.max_workspace_bytes.value_or(0) < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "redistribute: want a workspace limit of at least 0 bytes, found ",
        *options.max_workspace_bytes));
  }
  const auto within = [&](const Layout& from, const Layout& to) {
    return MakePlan(from, to, topology);
  };
  if (source.mesh() != target.mesh()) {
    return internal::PlanCrossing(source, target, topology, options, within);
  }
  const Layout first = WithoutUnitAxes(source);
  const Layout last = WithoutUnitAxes(target);
  if (MovesRaggedCut(first, last)) {
    return internal::PlanCrossing(source, target, topology, options, within);
  }

  std::vector<Step> steps;
  if (source == target) return Plan(source, target, std::move(steps));
  if (first == last) {
    steps.push_back(Relabelling(source, target));
    return Plan(source, target, std::move(steps));
  }
  TESSERA_ASSIGN_OR_RETURN(const LayoutGraph graph,
                           LayoutGraph::Create(first, last, topology));
  TESSERA_ASSIGN_OR_RETURN(
      const std::vector<Edge> path,
      FindPath(graph, graph.Pack(first), graph.Pack(last), options));
  if (source != first) steps.push_back(Relabelling(source, first));
  Layout before = first;
  for (const Edge& edge : path) {
    Layout after = graph.Unpack(edge.after);
    steps.push_back({.kind = edge.kind,
                     .axes = graph.MeshAxes(edge.axes),
                     .before = std::move(before),
                     .after = after,
                     .bytes_received = edge.cost.bytes_received,
                     .messages = edge.cost.messages,
                     .time_ps = edge.cost.time_ps});
    before = std::move(after);
  }
  if (last != target) steps.push_back(Relabelling(last, target));
  return Plan(source, target, std::move(steps));
}

}  // namespace tessera

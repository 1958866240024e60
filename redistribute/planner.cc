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

using internal::CutLayout;
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
        end_(graph.Cut(target)),
        are_few_(graph.NumExchangeable() <= LayoutGraph::kMaxFromEverywhere) {
    nodes_.reserve(are_few_ ? kFewNodes : kManyNodes);
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
    return best_cost_;
  }

 private:
  // Enough for most searches on two mesh axes.
  static constexpr size_t kFewNodes = 32;
  static constexpr size_t kManyNodes = 256;  // on three

  // Where the value lies. Without a limit all of it counts as workspace.
  enum class Place : uint8_t { kSource, kWorkspace, kTarget };

  struct State {
    PackedLayout layout = {};
    Place place = Place::kWorkspace;

    friend bool operator==(const State&, const State&) = default;
    template <typename H>
    friend H AbslHashValue(H h, const State& s) {
      // Few states differ by place alone.
      return H::combine(std::move(h), internal::BytesOf(s.layout));
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
  struct Node {
    Node(const LayoutGraph& graph, const State& state_in)
        : state(state_in), cuts(graph.Cut(state_in.layout)) {}

    Way way;               // the best known
    bool is_open = false;  // that has not been gone on from
    State state;
    CutLayout cuts;
    int64_t bound = 0;  // on the cost of the rest
    LayoutGraph::LeastEdge least_edge;
  };

  // The order of the search: bound on the whole cost, steps, then which node
  // was found first. That depends on the order of edges alone; the hash map is
  // only looked up.
  // A node has one for each better way to it; the first to come up counts.
  struct Entry {
    Entry(int64_t bound_in, int steps, int node)
        : bound(bound_in),
          steps_and_node(uint64_t{static_cast<uint32_t>(steps)} << 32 |
                         static_cast<uint32_t>(node)) {}
    int node() const { return static_cast<int>(steps_and_node & 0xffffffff); }

    int64_t bound;
    uint64_t steps_and_node;  // for a quick comparison

    friend auto operator<=>(const Entry&, const Entry&) = default;
  };

  using Queue =
      std::priority_queue<Entry, std::vector<Entry>, std::greater<Entry>>;

  static Queue EmptyQueue() {
    std::vector<Entry> entries;
    entries.reserve(kFewNodes);
    return Queue({}, std::move(entries));
  }

  // A node that exchanges may lead to.
  struct Stop {
    int64_t bound;  // on the cost of an exchange and the way from there
    int node;

    friend auto operator<=>(const Stop&, const Stop&) = default;
  };
  // A layout that an exchange from the source may lead to. No node: there may
  // be many of them, most of which no way leads to in the end.
  struct FirstStop {
    int64_t bound;
    int64_t rest;  // a bound on the cost of the way from there
    PackedLayout layout;
  };

  bool has_limit() const { return max_workspace_.has_value(); }

  std::vector<Edge> Path() {
    Reach(NodeOf({source_, has_limit() ? Place::kSource : Place::kWorkspace}),
          {.rank = {.cost = 0, .steps = 0}});
    AddStops(are_few_ ? graph_.AllExchangeable() : graph_.FilledTo(target_));
    while (!queue_.empty()) {
      const int at = queue_.top().node();
      queue_.pop();
      Node& node = nodes_[at];
      if (node.is_open) {
        if (IsGoal(node.state)) return PathEndingAt(at);
        node.is_open = false;
        Expand(at);
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
    const bool may_exchange = graph_.MayExchange(nodes_[at].state.layout);
    // First, for the direct way bounds all others.
    if (may_exchange) TryStops(at);
    const CutLayout& cuts = nodes_[at].cuts;  // until a new node comes up
    graph_.UnpricedEdgesFrom(cuts, edges_);
    if (!are_few_) graph_.AddUnpricedMovesFrom(cuts, edges_);
    for (Edge& edge : edges_) Try(at, NodeOf({edge.after}), edge);
    const bool is_source = nodes_[at].way.parent < 0;
    if (is_source && may_exchange && !are_few_) AddFirstStops();
  }

  void TryStops(int at) {
    for (const Stop& stop : stops_) {
      if (Sum(nodes_[at].way.rank.cost, stop.bound) > best_cost_) break;
      Edge edge = {.kind = StepKind::kExchange,
                   .after = nodes_[stop.node].state.layout};
      Try(at, stop.node, edge);
    }
  }

  void AddStops(absl::Span<const PackedLayout> layouts) {
    stops_.reserve(layouts.size());
    for (const PackedLayout& layout : layouts) {
      const int node = NodeOf({layout});
      stops_.push_back(
          {BoundOver(nodes_[node].least_edge, nodes_[node].bound), node});
    }
    last_stop_node_ = static_cast<int>(nodes_.size()) - 1;
    absl::c_sort(stops_);
  }

  // Exchanges may lead from the source to anywhere.
  void AddFirstStops() {
    // One of the stops from anywhere, or the source.
    const auto is_tried = [&](int node) { return node <= last_stop_node_; };
    for (const PackedLayout& layout : graph_.AllExchangeable()) {
      const auto known = index_.find(State{layout});
      if (known != index_.end() && is_tried(known->second)) continue;
      const CutLayout cuts = graph_.Cut(layout);
      const int64_t rest =
          known == index_.end() ? Bound(cuts) : nodes_[known->second].bound;
      if (Sum(LeastFirstExchange(cuts), rest) > best_cost_) continue;
      const int64_t bound = BoundOver(graph_.LeastEdgeTo(cuts), rest);
      first_stops_.push_back({bound, rest, layout});
    }
    absl::c_stable_sort(first_stops_,
                        [](const FirstStop& a, const FirstStop& b) {
                          return a.bound < b.bound;
                        });
  }

  // On the cost of an exchange from the source.
  int64_t LeastFirstExchange(const CutLayout& to) const {
    return counts_workspace_ ? 0 : graph_.LeastExchange(nodes_[0].cuts, to);
  }

  // Tries those that the search has come as far as.
  void TryFirstStops() {
    for (; next_stop_ < first_stops_.size(); ++next_stop_) {
      const FirstStop& stop = first_stops_[next_stop_];
      if (!queue_.empty() && stop.bound > queue_.top().bound) return;
      Edge edge = {.kind = StepKind::kExchange, .after = stop.layout};
      if (!graph_.Price(nodes_[0].cuts, graph_.Cut(stop.layout), edge))
        continue;
      if (counts_workspace_ ||
          Sum(edge.cost.time_ps, stop.rest) <= best_cost_) {
        Follow(0, NodeOf({stop.layout}, stop.rest), edge);
      }
    }
  }

  // On the cost of an exchange over the cheapest edge to some layout, and of
  // the rest of the way.
  int64_t BoundOver(const LayoutGraph::LeastEdge& edge, int64_t rest) const {
    return counts_workspace_ ? rest : Sum(edge.communicating, rest);
  }

  // Prices an edge between two nodes and takes it, if that may be of use.
  void Try(int at, int to, Edge& edge) {
    if (!has_limit() && !MayHelp(at, to, edge.kind)) return;
    if (!graph_.Price(nodes_[at].cuts, nodes_[to].cuts, edge)) return;
    Follow(at, to, edge);
  }

  // Whether a step, as cheap as it can be, is on a way to its end that is
  // better than those known, and may be part of one to the target.
  bool MayHelp(int at, int to, StepKind kind) const {
    if (!MayHelp(at, to, kind, nodes_[to].least_edge.For(kind))) return false;
    const CutLayout& from_cuts = nodes_[at].cuts;
    const CutLayout& to_cuts = nodes_[to].cuts;
    const bool is_exchange = kind == StepKind::kExchange;
    // Of a few, most collectives help.
    const bool moves_pieces =
        is_exchange || (!are_few_ && (kind == StepKind::kAllGather ||
                                      kind == StepKind::kAllToAll));
    if (moves_pieces &&
        !MayHelp(at, to, kind, graph_.LeastExchange(from_cuts, to_cuts))) {
      return false;
    }
    return !is_exchange || !graph_.HasSliceOrCollective(from_cuts, to_cuts);
  }
  bool MayHelp(int at, int to, StepKind kind, int64_t cost) const {
    const Rank rank = Behind(nodes_[at].way.rank, kind, cost);
    return rank < nodes_[to].way.rank &&
           Sum(rank.cost, nodes_[to].bound) <= best_cost_;
  }

  // The rank of a way and a step of this cost behind it.
  Rank Behind(const Rank& way, StepKind kind, int64_t cost) const {
    const bool is_exchange = kind == StepKind::kExchange;
    return {.cost = counts_workspace_ ? std::max(way.cost, cost)
                                      : Sum(way.cost, cost),
            .steps = way.steps + 1,
            .exchanges = way.exchanges + (is_exchange ? 1 : 0)};
  }

  // Takes an edge between two nodes to wherever it may leave the value.
  void Follow(int at, int to, const Edge& edge) {
    if (!has_limit()) {
      Take(at, to, edge, edge.cost.time_ps);
      return;
    }
    const State from = nodes_[at].state;
    const bool moves =
        WithoutPartial(from.layout) != WithoutPartial(edge.after);
    const bool arrives = WithoutPartial(edge.after) == WithoutPartial(target_);
    const int64_t held = from.place == Place::kWorkspace
                             ? graph_.PieceBytes(nodes_[at].cuts)
                             : 0;
    if (from.place == Place::kTarget) {
      if (!moves) TakeWithin(at, edge, Place::kTarget, 0);
      return;
    }
    const bool never_moved = from.place == Place::kSource;
    if (arrives && (moves || never_moved)) {
      TakeWithin(at, edge, Place::kTarget, held);
    }
    if (never_moved && edge.kind == StepKind::kSlice) {
      TakeWithin(at, edge, Place::kSource, 0);
      return;
    }
    const bool in_place = !moves && from.place == Place::kWorkspace;
    TakeWithin(at, edge, Place::kWorkspace,
               in_place ? held : Sum(held, graph_.PieceBytes(nodes_[to].cuts)));
  }

  // The same where that much workspace counts.
  void TakeWithin(int at, const Edge& edge, Place place, int64_t workspace) {
    if (workspace > *max_workspace_) return;
    Take(at, NodeOf({edge.after, place}), edge,
         counts_workspace_ ? workspace : edge.cost.time_ps);
  }

  void Take(int at, int to, const Edge& edge, int64_t cost) {
    Reach(to, {.rank = Behind(nodes_[at].way.rank, edge.kind, cost),
               .parent = at,
               .edge = edge});
  }

  // Notes a way to a node, if it is the first or better than those known, and
  // may be part of a better way to the target than those known.
  void Reach(int at, const Way& way) {
    Node& node = nodes_[at];
    const int64_t bound = Sum(way.rank.cost, node.bound);
    if (bound > best_cost_ || way.rank >= node.way.rank) return;
    node.way = way;
    node.is_open = true;
    if (IsGoal(node.state)) best_cost_ = way.rank.cost;
    queue_.emplace(bound, way.rank.steps, at);
  }

  // The node of a state, to which there may be no way yet. `bound` saves
  // working it out once more.
  int NodeOf(const State& state, std::optional<int64_t> bound = {}) {
    const auto [entry, is_new] =
        index_.try_emplace(state, static_cast<int>(nodes_.size()));
    if (is_new) {
      Node& node = nodes_.emplace_back(graph_, state);
      node.bound = bound.has_value() ? *bound : Bound(node.cuts);
      node.least_edge = graph_.LeastEdgeTo(node.cuts);
    }
    return entry->second;
  }

  int64_t Bound(const CutLayout& from) const {
    return counts_workspace_ ? 0 : graph_.LeastTime(from, end_);
  }
  static int64_t Sum(int64_t a, int64_t b) { return SaturatingAdd(a, b); }

  std::vector<Edge> PathEndingAt(int at) const {
    std::vector<Edge> path;
    for (int parent; (parent = nodes_[at].way.parent) >= 0; at = parent) {
      path.push_back(nodes_[at].way.edge);
      graph_.AddAxes(nodes_[parent].state.layout, path.back());
    }
    absl::c_reverse(path);
    return path;
  }

  const LayoutGraph& graph_;
  const PackedLayout source_;
  const PackedLayout target_;
  const CutLayout end_;  // the target
  const bool are_few_;   // exchanges lead from any layout to any other
  std::optional<int64_t> max_workspace_;
  bool counts_workspace_ = false;  // as the cost
  std::vector<Node> nodes_;
  // Of the best way to the target so far.
  int64_t best_cost_ = std::numeric_limits<int64_t>::max();
  absl::flat_hash_map<State, int> index_;  // into nodes_
  Queue queue_ = EmptyQueue();
  std::vector<FirstStop> first_stops_;
  size_t next_stop_ = 0;
  std::vector<Stop> stops_;  // of exchanges from anywhere
  int last_stop_node_ = 0;   // no later node is one of them
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
  steps.reserve(path.size() + 2);
  if (source != first) steps.push_back(Relabelling(source, first));
  Layout before = first;
  for (const Edge& edge : path) {
    Layout after = &edge == &path.back() ? last : graph.Unpack(edge.after);
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

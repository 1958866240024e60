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
#include "tessera/base/checked_math.h"
#include "tessera/base/status_macros.h"
#include "tessera/redistribute/crossing.h"
#include "tessera/redistribute/edges.h"
#include "tessera/redistribute/unit_axes.h"

namespace tessera {
namespace {

using internal::AxisState;
using internal::Edge;
using internal::LayoutGraph;
using internal::PackedLayout;
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

// Whether ranks hold the same elements, in the same places.
PackedLayout RegionOf(PackedLayout layout) {
  for (AxisState& state : layout) {
    if (state.is_partial()) state = AxisState();
  }
  return layout;
}

// The shortest path from `source` to `target`: A* over layouts, whose distance
// to the target is bounded from below by what ranks need. Where workspace
// counts, also over where the value lies: see StorageOfSteps.
//
class Search {
 public:
  Search(const LayoutGraph& graph, const PackedLayout& source,
         const PackedLayout& target)
      : graph_(graph),
        source_(source),
        target_(target),
        last_(graph.FilledTo(target)) {}

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
    return nodes_[best_].cost;
  }

 private:
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

  struct Node {
    State state = {};
    int64_t cost = 0;   // time, or the most workspace
    int64_t bound = 0;  // on the cost of the rest
    int steps = 0;
    int parent = -1;
    Edge edge = {};  // from the parent
  };

  // The order of the search: bound on the whole cost, steps, then which node
  // was found first. That depends on the order of edges alone; the hash map is
  // only looked up.
  struct Entry {
    int64_t bound;
    int steps;
    int node;
    int64_t cost;  // the node's; another one by now: the entry is void

    friend auto operator<=>(const Entry&, const Entry&) = default;
  };

  bool has_limit() const { return max_workspace_.has_value(); }

  std::vector<Edge> Path() {
    Reach({source_, has_limit() ? Place::kSource : Place::kWorkspace}, {});
    while (!queue_.empty()) {
      const Entry entry = queue_.top();
      queue_.pop();
      const Node& node = nodes_[entry.node];
      if (node.cost != entry.cost) continue;  // a better way was found
      if (node.steps != entry.steps) continue;
      if (IsGoal(node.state)) return PathEndingAt(entry.node);
      Expand(entry.node);
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
    graph_.EdgesFrom(layout, edges_);
    for (const Edge& edge : edges_) Follow(at, edge);
    if (!graph_.MayExchange(layout)) return;
    for (const PackedLayout& last : last_) {
      FollowExchange(at, last);
    }
    if (nodes_[at].parent < 0) ExchangeToAny(at);
  }

  // The nearest to the target first: they are most likely to make others not
  // worth looking at.
  void ExchangeToAny(int at) {
    struct Stop {
      PackedLayout layout;
      int64_t rest;  // a bound on the way from there
    };
    std::vector<Stop> stops;
    for (const PackedLayout& to : graph_.AllExchangeable()) {
      const Stop stop = {to, Bound(to)};
      if (!IsTooFar(graph_.LeastExchangeTime(), stop.rest)) {
        stops.push_back(stop);
      }
    }
    absl::c_stable_sort(
        stops, [](const Stop& a, const Stop& b) { return a.rest < b.rest; });
    for (const Stop& stop : stops) {
      const int64_t exchange = graph_.LeastTime(source_, stop.layout);
      if (!IsTooFar(exchange, stop.rest)) FollowExchange(at, stop.layout);
    }
  }
  bool IsTooFar(int64_t first, int64_t rest) const {
    return !counts_workspace_ && Sum(first, rest) > BestCost();
  }

  void FollowExchange(int at, const PackedLayout& to) {
    if (const auto edge = graph_.Exchange(nodes_[at].state.layout, to)) {
      Follow(at, *edge);
    }
  }

  // Takes an edge from a node to wherever it may leave the value.
  void Follow(int at, const Edge& edge) {
    if (!has_limit()) {
      Take(at, edge, Place::kWorkspace, 0);
      return;
    }
    const State from = nodes_[at].state;
    const bool moves = RegionOf(from.layout) != RegionOf(edge.after);
    const bool arrives = RegionOf(edge.after) == RegionOf(target_);
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
    const int64_t cost = counts_workspace_
                             ? std::max(nodes_[at].cost, workspace)
                             : Sum(nodes_[at].cost, edge.cost.time_ps);
    Reach({edge.after, place}, {.cost = cost,
                                .steps = nodes_[at].steps + 1,
                                .parent = at,
                                .edge = edge});
  }

  // Notes a way to a state, if it is the first or better than those known, and
  // may be part of a better way to the target than those known.
  void Reach(const State& state, Node node) {
    if (node.cost > BestCost()) return;
    const auto [entry, is_new] =
        index_.try_emplace(state, static_cast<int>(nodes_.size()));
    const int at = entry->second;
    node.state = state;
    if (is_new) {
      node.bound = Bound(state.layout);
      nodes_.push_back(node);
    } else if (std::tie(node.cost, node.steps) <
               std::tie(nodes_[at].cost, nodes_[at].steps)) {
      node.bound = nodes_[at].bound;
      nodes_[at] = node;
    } else {
      return;
    }
    if (IsGoal(state)) best_ = at;
    Push({.bound = Sum(node.cost, node.bound),
          .steps = node.steps,
          .node = at,
          .cost = node.cost});
  }

  void Push(const Entry& entry) {
    if (entry.bound <= BestCost()) queue_.push(entry);
  }

  int64_t BestCost() const {
    return best_ < 0 ? std::numeric_limits<int64_t>::max() : nodes_[best_].cost;
  }
  int64_t Bound(const PackedLayout& layout) const {
    return counts_workspace_ ? 0 : graph_.LeastTime(layout, target_);
  }
  static int64_t Sum(int64_t a, int64_t b) { return SaturatingAdd(a, b); }

  std::vector<Edge> PathEndingAt(int at) const {
    std::vector<Edge> path;
    for (; nodes_[at].parent >= 0; at = nodes_[at].parent) {
      path.push_back(nodes_[at].edge);
    }
    absl::c_reverse(path);
    return path;
  }

  const LayoutGraph& graph_;
  const PackedLayout source_;
  const PackedLayout target_;
  const std::vector<PackedLayout> last_;  // that exchanges lead to
  std::optional<int64_t> max_workspace_;
  bool counts_workspace_ = false;  // as the cost
  std::vector<Node> nodes_;
  int best_ = -1;  // the node of the target, once there is one
  absl::flat_hash_map<State, int> index_;  // into nodes_
  std::priority_queue<Entry, std::vector<Entry>, std::greater<Entry>> queue_;
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

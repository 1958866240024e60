#include "tessera/redistribute/planner.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstdint>
#include <functional>
#include <limits>
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
#include "tessera/redistribute/edges.h"

namespace tessera {
namespace {

using internal::Edge;
using internal::LayoutGraph;
using internal::PackedLayout;

absl::Status CheckSameTensor(const Layout& source, const Layout& target) {
  if (source.meta() != target.meta()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "redistribute: want source and target of one dtype and shape, found ",
        source.meta().ToString(), " and ", target.meta().ToString()));
  }
  if (source.mesh() != target.mesh()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "redistribute: want source and target on one mesh, found '",
        source.mesh().ToString(), "' and '", target.mesh().ToString(), "'"));
  }
  return absl::OkStatus();
}

// True if nothing changes along `axis`, its place in a cutting order included.
bool SamePlacement(const Layout& a, const Layout& b, int axis) {
  return a.placement(axis) == b.placement(axis) &&
         (!a.placement(axis).is_shard() ||
          a.order_position(axis) == b.order_position(axis));
}

// Ragged cuts, and the Shard placements beside one, stay where they are.
absl::Status CheckRaggedStays(const Layout& source, const Layout& target) {
  if (source.RaggedAxes().empty() && target.RaggedAxes().empty()) {
    return absl::OkStatus();
  }
  const auto holds_a_piece = [](const Placement& placement) {
    return placement.is_ragged() || placement.is_shard();
  };
  for (int axis = 0; axis < source.mesh().num_axes(); ++axis) {
    if (!holds_a_piece(source.placement(axis)) &&
        !holds_a_piece(target.placement(axis))) {
      continue;
    }
    if (SamePlacement(source, target, axis)) continue;
    return absl::UnimplementedError(absl::StrCat(
        "redistribute: a ragged cut and the shards beside it cannot move yet, "
        "want both ends alike along axis '",
        source.mesh().axis(axis).name, "', found ", source.ToString(), " and ",
        target.ToString()));
  }
  return absl::OkStatus();
}

// `layout` with R along the axes of size 1, ragged ones aside: another name
// for the same.
Layout WithoutUnitAxes(const Layout& layout) {
  const auto is_unit = [&](int axis) {
    return layout.mesh().axis(axis).size == 1;
  };
  Placements placements(layout.placements().begin(), layout.placements().end());
  for (int axis = 0; axis < layout.mesh().num_axes(); ++axis) {
    if (is_unit(axis) && !placements[axis].is_ragged()) {
      placements[axis] = Placement::Replicate();
    }
  }
  std::vector<Layout::DimOrder> order;
  for (int dim = 0; dim < layout.shape().num_dims(); ++dim) {
    order.push_back({dim, layout.ShardAxes(dim)});
    auto& axes = order.back().axes;
    axes.erase(std::remove_if(axes.begin(), axes.end(), is_unit), axes.end());
  }
  return layout.With(placements, order).value();
}

// The shortest path from `source` to `target`.
class Search {
 public:
  Search(const LayoutGraph& graph, const PackedLayout& source) : graph_(graph) {
    Reach(source, {});
  }

  std::vector<Edge> PathTo(const PackedLayout& target) {
    std::vector<Edge> edges;
    while (true) {
      const int at = PopNearest();
      // Copied, for Reach may move the nodes.
      const Node node = nodes_[at];
      if (node.layout == target) return PathEndingAt(at);
      graph_.EdgesFrom(node.layout, edges);
      for (const Edge& edge : edges) {
        const int64_t time_ps =
            CheckedAdd(node.time_ps, edge.cost.time_ps)
                .value_or(std::numeric_limits<int64_t>::max());
        Reach(edge.after, {.time_ps = time_ps,
                           .steps = node.steps + 1,
                           .parent = at,
                           .edge = edge});
      }
    }
  }

 private:
  struct Node {
    PackedLayout layout = {};
    int64_t time_ps = 0;
    int steps = 0;
    int parent = -1;
    Edge edge = {};  // from the parent
  };

  // The order of the search: time, steps, then which node was found first.
  // That depends on the order of edges alone; the hash map is only looked up.
  using Key = std::tuple<int64_t, int, int>;
  Key KeyOf(int at) const { return {nodes_[at].time_ps, nodes_[at].steps, at}; }

  // Notes a way to `layout`, if it is the first or better than those known.
  void Reach(const PackedLayout& layout, Node node) {
    node.layout = layout;
    const auto [entry, is_new] = index_.try_emplace(
        std::bit_cast<uint64_t>(layout), static_cast<int>(nodes_.size()));
    const int at = entry->second;
    if (is_new) {
      nodes_.push_back(node);
    } else if (std::tie(node.time_ps, node.steps) <
               std::tie(nodes_[at].time_ps, nodes_[at].steps)) {
      nodes_[at] = node;
    } else {
      return;
    }
    queue_.push(KeyOf(at));
  }

  // Every layout can be reached from every other, by gathering, reducing, and
  // then slicing and filling: the queue is never empty before the target.
  int PopNearest() {
    while (true) {
      assert(!queue_.empty());
      const Key key = queue_.top();
      queue_.pop();
      const int at = std::get<2>(key);
      if (key == KeyOf(at)) return at;  // else a better way was found later
    }
  }

  std::vector<Edge> PathEndingAt(int at) const {
    std::vector<Edge> path;
    for (; nodes_[at].parent >= 0; at = nodes_[at].parent) {
      path.push_back(nodes_[at].edge);
    }
    absl::c_reverse(path);
    return path;
  }

  const LayoutGraph& graph_;
  std::vector<Node> nodes_;
  absl::flat_hash_map<uint64_t, int> index_;  // into nodes_, by packed layout
  std::priority_queue<Key, std::vector<Key>, std::greater<Key>> queue_;
};

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
                              const Topology& topology) {
  TESSERA_RETURN_IF_ERROR(CheckSameTensor(source, target));
  const Layout first = WithoutUnitAxes(source);
  const Layout last = WithoutUnitAxes(target);
  TESSERA_RETURN_IF_ERROR(CheckRaggedStays(first, last));

  std::vector<Step> steps;
  if (source == target) return Plan(source, target, std::move(steps));
  if (first == last) {
    steps.push_back(Relabelling(source, target));
    return Plan(source, target, std::move(steps));
  }
  TESSERA_ASSIGN_OR_RETURN(const LayoutGraph graph,
                           LayoutGraph::Create(first, last, topology));
  if (source != first) steps.push_back(Relabelling(source, first));
  Layout before = first;
  for (const Edge& edge :
       Search(graph, graph.Pack(first)).PathTo(graph.Pack(last))) {
    Layout after = graph.Unpack(edge.after);
    steps.push_back({.kind = edge.kind,
                     .axes = {edge.axis},
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

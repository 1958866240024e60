#include "tests/redistribute/brute_force.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <string>

#include "absl/algorithm/container.h"
#include "tessera/redistribute/edges.h"

namespace tessera::testing {
namespace {

using internal::Edge;
using internal::LayoutGraph;

// Far enough from the limit for two of them to be added.
constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max() / 4;

// Of so many layouts without Partial, exchanges lead from any to any other.
constexpr int64_t kFew = 64;

using Costs = std::vector<std::vector<int64_t>>;

// The cheapest ways along any number of edges.
Costs Closure(Costs cost) {
  const size_t n = cost.size();
  for (size_t i = 0; i < n; ++i) cost[i][i] = 0;
  for (size_t via = 0; via < n; ++via) {
    for (size_t from = 0; from < n; ++from) {
      for (size_t to = 0; to < n; ++to) {
        cost[from][to] =
            std::min(cost[from][to], cost[from][via] + cost[via][to]);
      }
    }
  }
  return cost;
}

// The cheapest ways along one of either.
Costs Then(const Costs& first, const Costs& second) {
  const size_t n = first.size();
  Costs cost(n, std::vector<int64_t>(n, kUnknown));
  for (size_t from = 0; from < n; ++from) {
    for (size_t via = 0; via < n; ++via) {
      if (first[from][via] >= kUnknown) continue;
      for (size_t to = 0; to < n; ++to) {
        cost[from][to] =
            std::min(cost[from][to], first[from][via] + second[via][to]);
      }
    }
  }
  return cost;
}

Costs Cheaper(Costs a, const Costs& b) {
  for (size_t from = 0; from < a.size(); ++from) {
    for (size_t to = 0; to < a.size(); ++to) {
      a[from][to] = std::min(a[from][to], b[from][to]);
    }
  }
  return a;
}

}  // namespace

std::vector<std::vector<int64_t>> CheapestCosts(
    absl::Span<const Layout> layouts, const Topology& topology) {
  const size_t n = layouts.size();
  std::map<std::string, size_t> index;
  for (size_t i = 0; i < n; ++i) index.emplace(layouts[i].ToString(), i);
  // With every op at some end, every edge is offered.
  std::vector<Layout> ends = {layouts[0]};
  for (ReduceOp op : kAllReduceOps) {
    const auto has_op = [&](const Layout& layout) {
      return absl::c_linear_search(layout.placements(), Placement::Partial(op));
    };
    const auto end = absl::c_find_if(layouts, has_op);
    if (end != layouts.end()) ends.push_back(*end);
  }

  const Costs none(n, std::vector<int64_t>(n, kUnknown));
  Costs steps = none;
  Costs fills = none;
  Costs exchanges = none;
  for (size_t from = 0; from < n; ++from) {
    for (const Layout& end : ends) {
      const LayoutGraph graph =
          LayoutGraph::Create(layouts[from], end, topology).value();
      std::vector<Edge> edges;
      graph.EdgesFrom(graph.Pack(layouts[from]), edges);
      for (const Edge& edge : edges) {
        const auto found = index.find(graph.Unpack(edge.after).ToString());
        if (found == index.end()) continue;
        const size_t to = found->second;
        steps[from][to] = std::min(steps[from][to], edge.cost.time_ps);
        const bool is_fill =
            edge.kind == StepKind::kFill || edge.kind == StepKind::kScale;
        if (is_fill) fills[from][to] = edge.cost.time_ps;
      }
    }
    const LayoutGraph graph =
        LayoutGraph::Create(layouts[from], layouts[from], topology).value();
    for (size_t to = 0; to < n; ++to) {
      if (layouts[from].HasPartial() || layouts[to].HasPartial()) continue;
      const auto edge =
          graph.Exchange(graph.Pack(layouts[from]), graph.Pack(layouts[to]));
      if (edge.has_value()) exchanges[from][to] = edge->cost.time_ps;
    }
  }

  const auto partial_free = absl::c_count_if(
      layouts, [](const Layout& layout) { return !layout.HasPartial(); });
  if (partial_free <= kFew) steps = Cheaper(steps, exchanges);
  const Costs ways = Closure(steps);
  // An exchange to anywhere first, or none; one that only fills follow last.
  const Costs begun = Cheaper(ways, Then(exchanges, ways));
  const Costs ends_of_ways = Then(exchanges, Closure(fills));
  return Cheaper(begun, Then(begun, ends_of_ways));
}

}  // namespace tessera::testing

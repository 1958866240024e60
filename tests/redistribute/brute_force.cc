#include "tests/redistribute/brute_force.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <string>

#include "absl/algorithm/container.h"
#include "tessera/redistribute/edges.h"

namespace tessera::testing {

using internal::Edge;
using internal::LayoutGraph;

std::vector<std::vector<int64_t>> CheapestCosts(
    absl::Span<const Layout> layouts, const Topology& topology) {
  // Far enough from the limit for two of them to be added.
  constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max() / 4;
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

  std::vector<std::vector<int64_t>> cost(n, std::vector<int64_t>(n, kUnknown));
  for (size_t from = 0; from < n; ++from) {
    cost[from][from] = 0;
    const auto relax = [&](size_t to, int64_t time_ps) {
      cost[from][to] = std::min(cost[from][to], time_ps);
    };
    for (const Layout& end : ends) {
      const LayoutGraph graph =
          LayoutGraph::Create(layouts[from], end, topology).value();
      std::vector<Edge> edges;
      graph.EdgesFrom(graph.Pack(layouts[from]), edges);
      for (const Edge& edge : edges) {
        const auto to = index.find(graph.Unpack(edge.after).ToString());
        if (to != index.end()) relax(to->second, edge.cost.time_ps);
      }
    }
    const LayoutGraph graph =
        LayoutGraph::Create(layouts[from], layouts[from], topology).value();
    const auto packed = graph.Pack(layouts[from]);
    for (size_t to = 0; to < n; ++to) {
      const auto end = graph.Pack(layouts[to]);
      if (!graph.MayExchange(packed) || !graph.MayExchange(end)) continue;
      relax(to, graph.Exchange(packed, end).cost.time_ps);
    }
  }
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

}  // namespace tessera::testing

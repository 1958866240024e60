#include "tessera/redistribute/crossing.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "tessera/base/checked_math.h"
#include "tessera/base/rate.h"
#include "tessera/base/status_macros.h"
#include "tessera/mesh/collective_time.h"
#include "tessera/redistribute/edges.h"
#include "tessera/redistribute/exchange.h"
#include "tessera/redistribute/unit_axes.h"

namespace tessera::internal {
namespace {

// `layout` with `placement` for all that is Partial; shards come last in the
// cutting order of their dim.
Layout WithForPartial(const Layout& layout, const Placement& placement) {
  Placements placements(layout.placements().begin(), layout.placements().end());
  std::vector<Layout::DimOrder> order;
  for (int dim = 0; dim < layout.shape().num_dims(); ++dim) {
    order.push_back({dim, layout.ShardAxes(dim)});
  }
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    if (!placements[axis].is_partial()) continue;
    placements[axis] = placement;
    if (!placement.is_shard()) continue;
    order[placement.dim()].axes.push_back(static_cast<int>(axis));
  }
  return layout.With(placements, order).value();
}

// What becomes of `layout` when all that is Partial is reduced, or what it has
// been filled from.
std::vector<Layout> WithoutPartial(const Layout& layout) {
  if (!layout.HasPartial()) return {layout};
  std::vector<Layout> result = {WithForPartial(layout, Placement::Replicate())};
  // Only of sums and averages a shard is an addend.
  const bool is_linear = absl::c_all_of(
      layout.placements(),
      [](const Placement& p) { return !p.is_partial() || IsLinear(p.op()); });
  if (!is_linear || !layout.RaggedAxes().empty()) return result;
  for (int dim = 0; dim < layout.shape().num_dims(); ++dim) {
    result.push_back(WithForPartial(layout, Placement::Shard(dim)));
  }
  return result;
}

// The parts that the Shard axes of `layout` cut `dim` into.
int64_t PartsOf(const Layout& layout, int dim) {
  int64_t parts = 1;
  for (int axis : layout.ShardAxes(dim)) parts *= layout.mesh().axis(axis).size;
  return parts;
}

// The most of `old_parts` that one of `new_parts` has elements of.
int64_t MostOldParts(int64_t extent, int64_t old_parts, int64_t new_parts) {
  const bool is_even = extent % old_parts == 0 && extent % new_parts == 0;
  if (is_even && old_parts % new_parts == 0) return old_parts / new_parts;
  if (is_even && new_parts % old_parts == 0) return 1;
  return std::min(old_parts, CeilDiv(extent, new_parts));
}

// No rank needs elements of more cells of `before` for what it holds in
// `after`.
int64_t MostCells(const Layout& before, const Layout& after) {
  int64_t cells = 1;
  for (int axis : before.RaggedAxes()) {
    cells = SaturatingMul(cells, before.mesh().axis(axis).size);
  }
  // A ragged piece may have elements of everything.
  const bool is_box = after.RaggedAxes().empty();
  for (int dim = 0; dim < before.shape().num_dims(); ++dim) {
    const int64_t extent = before.shape().extent(dim);
    cells =
        SaturatingMul(cells, MostOldParts(extent, PartsOf(before, dim),
                                          is_box ? PartsOf(after, dim) : 1));
  }
  return cells;
}

class Crossing {
 public:
  Crossing(const Layout& source, const Layout& target, const Topology& topology,
           const PlanOptions& options, PlanWithin within)
      : source_(source),
        target_(target),
        topology_(topology),
        limit_(options.max_workspace_bytes),
        within_(within) {}

  absl::StatusOr<Plan> Cheapest() {
    for (const Layout& from : WithoutPartial(source_)) {
      TESSERA_ASSIGN_OR_RETURN(const Plan reduce, within_(source_, from));
      for (const Layout& to : WithoutPartial(target_)) {
        TESSERA_RETURN_IF_ERROR(Try(reduce, to));
      }
      if (limit_.has_value() || !target_.RaggedAxes().empty()) continue;
      if (source_.mesh() == target_.mesh()) continue;
      TESSERA_RETURN_IF_ERROR(TryAll(reduce));
    }
    if (best_.has_value()) return *std::move(best_);
    return absl::ResourceExhaustedError(absl::StrCat(
        "redistribute: from ", source_.ToString(), " on mesh '",
        source_.mesh().ToString(), "' to ", target_.PlacementsToString(),
        " on mesh '", target_.mesh().ToString(),
        "' want a workspace of at least ", least_workspace_,
        " bytes, found a limit of ", *limit_));
  }

 private:
  // Every layout on the target's mesh, the most promising first, until none
  // can be better than the best way known.
  absl::Status TryAll(const Plan& reduce) {
    const Layout end = WithoutUnitAxes(target_);
    const absl::StatusOr<LayoutGraph> made =
        LayoutGraph::Create(end, end, topology_);
    if (!made.ok()) return absl::OkStatus();  // too many axes to look at
    const LayoutGraph& graph = *made;
    struct Stop {
      PackedLayout layout;
      int64_t bound;
    };
    std::vector<Stop> stops;
    const CutLayout last = graph.Cut(graph.Pack(end));
    const Link& link = topology_.inter_mesh_link();
    for (const PackedLayout& layout : graph.AllExchangeable()) {
      const CutLayout cut = graph.Cut(layout);
      const int64_t crossing = PriceOf(graph.PieceBytes(cut), 1, link);
      stops.push_back(
          {layout, SaturatingAdd(crossing, graph.LeastTime(cut, last))});
    }
    absl::c_stable_sort(
        stops, [](const Stop& a, const Stop& b) { return a.bound < b.bound; });
    for (const Stop& stop : stops) {
      if (SaturatingAdd(reduce.time_ps(), stop.bound) >= best_time_) break;
      TESSERA_RETURN_IF_ERROR(Try(reduce, graph.Unpack(stop.layout)));
    }
    return absl::OkStatus();
  }

  // The way over an exchange from where `reduce` ends to `to`.
  absl::Status Try(const Plan& reduce, const Layout& to) {
    Step exchange = ExchangeBetween(reduce.target(), to);
    const int64_t time = SaturatingAdd(reduce.time_ps(), exchange.time_ps);
    if (!limit_.has_value() && IsNoBetter(time)) return absl::OkStatus();
    TESSERA_ASSIGN_OR_RETURN(const Plan fill, within_(to, target_));
    std::vector<Step> steps(reduce.steps().begin(), reduce.steps().end());
    steps.push_back(std::move(exchange));
    steps.insert(steps.end(), fill.steps().begin(), fill.steps().end());
    Plan plan(source_, target_, std::move(steps));
    const int64_t workspace = plan.workspace_bytes();
    least_workspace_ = std::min(least_workspace_, workspace);
    if (workspace > limit_.value_or(workspace)) return absl::OkStatus();
    if (IsNoBetter(plan.time_ps())) return absl::OkStatus();
    best_time_ = plan.time_ps();
    best_ = std::move(plan);
    return absl::OkStatus();
  }

  // Any time is better than none, also one that is too long to count.
  bool IsNoBetter(int64_t time) const {
    return best_.has_value() && time >= best_time_;
  }

  Step ExchangeBetween(const Layout& before, const Layout& after) const {
    Step step;
    step.kind = StepKind::kExchange;
    step.before = before;
    step.after = after;
    const MeshCoords axes = ExchangeAxes(before, after);
    step.axes.assign(axes.begin(), axes.end());
    absl::c_stable_sort(step.axes, [&](int a, int b) {
      const Link link_a = topology_.LinkOf(before.mesh(), a);
      const Link link_b = topology_.LinkOf(before.mesh(), b);
      if (link_a != link_b) return IsSlower(link_a, link_b);
      return !before.placement(a).is_replicate() &&
             before.placement(b).is_replicate();
    });
    const ReceivedMost most = MostReceivedAtMost(before, after);
    step.bytes_received = most.elements * SizeOf(before.dtype());
    step.messages = most.cells;
    step.time_ps = PriceOf(step.bytes_received, step.messages, LinkOf(step));
    return step;
  }

  Link LinkOf(const Step& exchange) const {
    const DeviceMesh& mesh = exchange.before.mesh();
    if (mesh != exchange.after.mesh() || exchange.axes.empty()) {
      return topology_.inter_mesh_link();
    }
    return topology_.LinkOf(mesh, exchange.axes.front());
  }

  static ReceivedMost MostReceivedAtMost(const Layout& before,
                                         const Layout& after) {
    const bool is_ragged =
        !before.RaggedAxes().empty() || !after.RaggedAxes().empty();
    if (is_ragged && after.mesh().size() <= LayoutGraph::kMaxRanksTried) {
      return MostReceived(before, after);
    }
    const int64_t elements = after.MostElements();
    return {elements, std::min(elements, MostCells(before, after))};
  }

  int64_t PriceOf(int64_t bytes, int64_t messages, const Link& link) const {
    const int64_t latency = SaturatingMul(messages, link.latency_ps);
    return SaturatingAdd(SaturatingAdd(topology_.launch_ps(), latency),
                         Rate(link.bytes_per_second).TimeFor(bytes));
  }

  const Layout& source_;
  const Layout& target_;
  const Topology& topology_;
  const std::optional<int64_t> limit_;
  const PlanWithin within_;
  std::optional<Plan> best_;
  int64_t best_time_ = std::numeric_limits<int64_t>::max();
  int64_t least_workspace_ = std::numeric_limits<int64_t>::max();
};

}  // namespace

absl::StatusOr<Plan> PlanCrossing(const Layout& source, const Layout& target,
                                  const Topology& topology,
                                  const PlanOptions& options,
                                  PlanWithin within) {
  return Crossing(source, target, topology, options, within).Cheapest();
}

}  // namespace tessera::internal

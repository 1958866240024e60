#include "tests/redistribute/step_rules.h"

#include <vector>

#include "absl/algorithm/container.h"

namespace tessera::testing {
namespace {

// The cutting order of `dim` without `axes`.
std::vector<int> OrderWithout(const Layout& layout, int dim,
                              const std::vector<int>& axes) {
  std::vector<int> order;
  for (int axis : layout.ShardAxes(dim)) {
    if (!absl::c_linear_search(axes, axis)) order.push_back(axis);
  }
  return order;
}

// The axes along which the placements differ, in mesh-axis order.
std::vector<int> Differences(const Layout& a, const Layout& b) {
  std::vector<int> axes;
  for (int axis = 0; axis < a.mesh().num_axes(); ++axis) {
    if (a.placement(axis) != b.placement(axis)) axes.push_back(axis);
  }
  return axes;
}

// `axes`, all of which shard one dim, in cutting order, if no other axis cuts
// this dim behind them.
std::optional<std::vector<int>> AsLastCuts(const Layout& layout,
                                           const std::vector<int>& axes) {
  const auto cuts = layout.ShardAxes(layout.placement(axes[0]).dim());
  std::vector<int> last(cuts.end() - axes.size(), cuts.end());
  if (!absl::c_is_permutation(last, axes)) return std::nullopt;
  return last;
}

std::optional<StepKind> KindOf(const Placement& before,
                               const Placement& after) {
  if (before.is_replicate()) {
    return after.is_shard() ? StepKind::kSlice : StepKind::kFill;
  }
  if (before.is_shard()) {
    if (after.is_replicate()) return StepKind::kAllGather;
    if (after.is_shard()) return StepKind::kAllToAll;
    if (after.op() == ReduceOp::kSum) return StepKind::kFill;
    return std::nullopt;
  }
  if (after.is_replicate()) return StepKind::kAllReduce;
  if (after.is_shard()) return StepKind::kReduceScatter;
  const auto is_linear = [](ReduceOp op) {
    return op == ReduceOp::kSum || op == ReduceOp::kAvg;
  };
  if (is_linear(before.op()) && is_linear(after.op())) return StepKind::kScale;
  return std::nullopt;
}

}  // namespace

std::optional<NamedStep> LegalStep(const Layout& before, const Layout& after) {
  std::vector<int> axes = Differences(before, after);
  if (axes.empty()) return std::nullopt;
  const Placement& from = before.placement(axes[0]);
  const Placement& to = after.placement(axes[0]);
  for (int axis : axes) {
    if (before.placement(axis) != from) return std::nullopt;
    if (after.placement(axis) != to) return std::nullopt;
  }
  for (int dim = 0; dim < before.shape().num_dims(); ++dim) {
    if (OrderWithout(before, dim, axes) != OrderWithout(after, dim, axes)) {
      return std::nullopt;
    }
  }
  const std::optional<StepKind> kind = KindOf(from, to);
  if (!kind.has_value()) return std::nullopt;
  if (axes.size() > 1 && !Communicates(*kind)) return std::nullopt;

  const std::vector<int> ascending = axes;
  if (from.is_shard()) {
    const auto last = AsLastCuts(before, axes);
    if (!last.has_value()) return std::nullopt;
    axes = *last;
  }
  if (to.is_shard()) {
    const auto last = AsLastCuts(after, ascending);
    if (!last.has_value()) return std::nullopt;
    if (from.is_shard() && *last != axes) return std::nullopt;
    const bool any_order = axes.size() <= 3;
    if (!any_order && *last != ascending) return std::nullopt;
    axes = *last;
  }
  return NamedStep{*kind, axes};
}

}  // namespace tessera::testing

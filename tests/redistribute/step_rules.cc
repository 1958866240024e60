#include "tests/redistribute/step_rules.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "absl/algorithm/container.h"
#include "tests/redistribute/reference.h"

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

// The most elements that a rank receives in a step.
int64_t CountReceived(const Step& step, int64_t group_size) {
  int64_t most = 0;
  for (int rank : RanksOf(step.after.mesh())) {
    const int64_t size =
        static_cast<int64_t>(HeldElements(step.after, rank).size());
    int64_t received = 0;
    if (step.kind == StepKind::kReduceScatter) {
      received = size * (group_size - 1);
    } else if (step.kind == StepKind::kAllReduce) {
      const int64_t own = (size + group_size - 1) / group_size;
      received = own * (group_size - 1) + size - own;
    } else {
      received = CountNewElements(step.before, step.after, rank);
    }
    most = std::max(most, received);
  }
  return most;
}

// The most ranks that a rank gets something from in an exchange: replicas hold
// the same elements, so that it needs one of them.
int64_t CountMessages(const Layout& before, const Layout& after) {
  std::map<int64_t, int> first_holders;
  for (int rank : RanksOf(before.mesh())) {
    for (int64_t element : HeldElements(before, rank)) {
      first_holders.emplace(element, rank);
    }
  }
  int64_t most = 0;
  for (int rank : RanksOf(after.mesh())) {
    std::set<int64_t> had;
    if (before.mesh().Contains(rank)) {
      for (int64_t element : HeldElements(before, rank)) had.insert(element);
    }
    std::set<int> senders;
    for (int64_t element : HeldElements(after, rank)) {
      if (!had.contains(element)) senders.insert(first_holders.at(element));
    }
    most = std::max(most, static_cast<int64_t>(senders.size()));
  }
  return most;
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

Step MakeStep(StepKind kind, absl::Span<const int> axes, const Layout& before,
              const Layout& after) {
  Step step;
  step.kind = kind;
  step.axes.assign(axes.begin(), axes.end());
  step.before = before;
  step.after = after;
  if (!Communicates(kind)) return step;
  int64_t group_size = 1;
  for (int axis : axes) group_size *= before.mesh().axis(axis).size;
  step.bytes_received =
      CountReceived(step, group_size) * SizeOf(before.dtype());
  step.messages = kind == StepKind::kExchange ? CountMessages(before, after)
                                              : group_size - 1;
  return step;
}

}  // namespace tessera::testing

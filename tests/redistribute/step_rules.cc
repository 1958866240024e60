#include "tests/redistribute/step_rules.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "tests/redistribute/reference.h"

namespace tessera::testing {
namespace {

// The cutting order of `dim` without `axis`.
std::vector<int> OrderWithout(const Layout& layout, int dim, int axis) {
  std::vector<int> order;
  for (int other : layout.ShardAxes(dim)) {
    if (other != axis) order.push_back(other);
  }
  return order;
}

// The axis along which alone the placements differ.
std::optional<int> OnlyDifference(const Layout& a, const Layout& b) {
  std::optional<int> found;
  for (int axis = 0; axis < a.mesh().num_axes(); ++axis) {
    if (a.placement(axis) == b.placement(axis)) continue;
    if (found.has_value()) return std::nullopt;
    found = axis;
  }
  return found;
}

// True if `axis` does not shard, or cuts its dim last.
bool CutsLastIfAtAll(const Layout& layout, int axis) {
  const Placement& placement = layout.placement(axis);
  return !placement.is_shard() ||
         layout.ShardAxes(placement.dim()).back() == axis;
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

std::optional<SingleAxisStep> LegalStep(const Layout& before,
                                        const Layout& after) {
  const std::optional<int> axis = OnlyDifference(before, after);
  if (!axis.has_value()) return std::nullopt;
  if (!CutsLastIfAtAll(before, *axis) || !CutsLastIfAtAll(after, *axis)) {
    return std::nullopt;
  }
  for (int dim = 0; dim < before.shape().num_dims(); ++dim) {
    if (OrderWithout(before, dim, *axis) != OrderWithout(after, dim, *axis)) {
      return std::nullopt;
    }
  }
  const std::optional<StepKind> kind =
      KindOf(before.placement(*axis), after.placement(*axis));
  if (!kind.has_value()) return std::nullopt;
  return SingleAxisStep{*kind, *axis};
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

#include "tests/redistribute/step_rules.h"

#include <vector>

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

}  // namespace tessera::testing

#include "tessera/redistribute/alternatives.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "tessera/base/checked_math.h"
#include "tessera/base/status_macros.h"

namespace tessera {
namespace {

constexpr int64_t kMostStops = 4096;

// What a stop may have along one axis.
std::vector<Placement> ChoicesAlong(const Layout& source, const Layout& target,
                                    int axis, bool all_shards) {
  std::vector<Placement> choices;
  const auto add = [&](const Placement& choice) {
    if (!absl::c_linear_search(choices, choice)) choices.push_back(choice);
  };
  // Along an axis of one rank all are the same.
  if (source.mesh().axis(axis).size == 1) return {source.placement(axis)};
  add(Placement::Replicate());
  add(source.placement(axis));
  if (target.mesh() == source.mesh()) add(target.placement(axis));
  for (int dim = 0; all_shards && dim < source.shape().num_dims(); ++dim) {
    add(Placement::Shard(dim));
  }
  return choices;
}

std::vector<std::vector<Placement>> ChoicesOf(const Layout& source,
                                              const Layout& target) {
  for (bool all_shards : {true, false}) {
    std::vector<std::vector<Placement>> choices;
    int64_t stops = 1;
    for (int axis = 0; axis < source.mesh().num_axes(); ++axis) {
      choices.push_back(ChoicesAlong(source, target, axis, all_shards));
      stops = SaturatingMul(stops, static_cast<int64_t>(choices.back().size()));
    }
    if (stops <= kMostStops || !all_shards) return choices;
  }
  return {};
}

// All combinations that are layouts.
std::vector<Layout> StopsBetween(const Layout& source, const Layout& target) {
  std::vector<Placements> combinations = {{}};
  for (const std::vector<Placement>& choices : ChoicesOf(source, target)) {
    std::vector<Placements> longer;
    for (const Placements& combination : combinations) {
      for (const Placement& choice : choices) {
        longer.push_back(combination);
        longer.back().push_back(choice);
      }
    }
    combinations = std::move(longer);
  }
  std::vector<Layout> stops;
  for (const Placements& combination : combinations) {
    absl::StatusOr<Layout> stop = source.With(combination);
    if (stop.ok()) stops.push_back(*std::move(stop));
  }
  return stops;
}

bool ComesPastALayoutTwice(const Plan& plan) {
  absl::flat_hash_set<Layout> seen = {plan.source()};
  return absl::c_any_of(plan.steps(), [&](const Step& step) {
    return !seen.insert(step.after).second;
  });
}

Plan Join(const Plan& first, const Plan& second) {
  std::vector<Step> steps(first.steps().begin(), first.steps().end());
  steps.insert(steps.end(), second.steps().begin(), second.steps().end());
  return Plan(first.source(), second.target(), std::move(steps));
}

}  // namespace

absl::StatusOr<std::vector<Plan>> AlternativePlans(const Layout& source,
                                                   const Layout& target,
                                                   const Topology& topology,
                                                   int count,
                                                   const PlanOptions& options) {
  TESSERA_ASSIGN_OR_RETURN(const Plan best,
                           MakePlan(source, target, topology, options));
  std::vector<Plan> plans;
  std::set<uint64_t> known = {best.fingerprint()};
  for (const Layout& stop : StopsBetween(source, target)) {
    TESSERA_ASSIGN_OR_RETURN(const Plan first,
                             MakePlan(source, stop, topology));
    TESSERA_ASSIGN_OR_RETURN(const Plan second,
                             MakePlan(stop, target, topology));
    Plan plan = Join(first, second);
    if (plan.workspace_bytes() >
            options.max_workspace_bytes.value_or(plan.workspace_bytes()) ||
        ComesPastALayoutTwice(plan) ||
        !known.insert(plan.fingerprint()).second) {
      continue;
    }
    plans.push_back(std::move(plan));
  }
  absl::c_stable_sort(plans, [](const Plan& a, const Plan& b) {
    return std::make_tuple(a.time_ps(), a.steps().size()) <
           std::make_tuple(b.time_ps(), b.steps().size());
  });
  if (plans.size() > static_cast<size_t>(count)) {
    plans.erase(plans.begin() + count, plans.end());
  }
  return plans;
}

}  // namespace tessera

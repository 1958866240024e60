#ifndef TESSERA_REDISTRIBUTE_PLAN_MANY_H_
#define TESSERA_REDISTRIBUTE_PLAN_MANY_H_

#include <cstdint>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tessera/mesh/topology.h"
#include "tessera/placement/layout.h"
#include "tessera/redistribute/plan.h"
#include "tessera/redistribute/planner.h"

namespace tessera {

// Where a tensor is and where it goes.
struct Redistribution {
  Layout source;
  Layout target;

  friend bool operator==(const Redistribution&,
                         const Redistribution&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Redistribution& r) {
    return H::combine(std::move(h), r.source, r.target);
  }
};

// A step of one of several plans.
struct StepOfPlan {
  int plan = 0;
  int step = 0;

  friend bool operator==(const StepOfPlan&, const StepOfPlan&) = default;
};

// Steps of several plans that go out as one launch: they are of one kind over
// the same axes of the same mesh, lead to the same mesh, and, where they
// reduce, have one op and one dtype.
//
// Bytes are the members' sum. Messages are those of one member, for a launch
// has one for each peer, whatever it carries; but exchanges from and to
// different layouts may have different peers, so that theirs add up. Time is
// the members' sum, less what all but one of them save: the launch, and the
// latency of a collective's hops (over several axes, that of the fastest). So
// it is the step's own for one member; along one axis it is what a step with
// all the bytes would take, but for rounding; elsewhere it is no less.
struct Stage {
  std::vector<StepOfPlan> members;  // by plan, of each plan at most one
  int64_t bytes_received = 0;
  int64_t messages = 0;
  int64_t time_ps = 0;  // predicted, picoseconds

  friend bool operator==(const Stage&, const Stage&) = default;
};

// How many tensors get from one layout to another each: a plan per tensor, and
// the launches that their communicating steps share. Every such step is in one
// stage, a plan's in the order of the plan. Local steps are in none: those in
// front of a step that communicates run before its stage, the last ones of a
// plan behind all stages. Immutable; thread-safe.
class ManyPlan {
 public:
  // Nothing to do.
  ManyPlan() = default;
  // REQUIRES: the stages hold the communicating steps as said above.
  ManyPlan(std::vector<Plan> plans, std::vector<Stage> stages)
      : plans_(std::move(plans)), stages_(std::move(stages)) {}

  // One per tensor, in the order of the list.
  absl::Span<const Plan> plans() const { return plans_; }
  absl::Span<const Stage> stages() const { return stages_; }
  const Step& step(StepOfPlan at) const {
    return plans_[at.plan].steps()[at.step];
  }

  int64_t launches() const { return static_cast<int64_t>(stages_.size()); }
  // Sums over the plans.
  int64_t bytes_received() const;
  // The stages' times and those of all local steps, one after the other.
  int64_t time_ps() const;

  // Sums over the plans of the figures of this name: no rank needs more.
  int64_t workspace_bytes() const;
  int64_t peak_bytes() const;

  // As Plan::fingerprint, of the plans and the stages.
  uint64_t fingerprint() const;

  // "AG(dp) x30, AR(tp) x2": the launches, and how many tensors each serves.
  std::string ToString() const;
  // One row per stage: step, axes, mesh, number of tensors, bytes, messages,
  // time; below them the local steps and the totals.
  std::string ToTable() const;

  friend bool operator==(const ManyPlan&, const ManyPlan&) = default;
  friend std::ostream& operator<<(std::ostream& os, const ManyPlan& p) {
    return os << p.ToString();
  }

 private:
  std::vector<Plan> plans_;
  std::vector<Stage> stages_;
};

// The plans, their communicating steps in stages. Pure: the same arguments
// give the same stages on every rank.
//
// Of every plan the next communicating step is ready. Over and over the next
// stage takes all ready steps of one sort that can share a launch: those that
// the fewest steps behind ready ones of other sorts could still join; of these
// the most; of these those with the first plan. So plans that are the same
// share all their launches, and there are never more launches than the plans
// have, nor fewer than one of them has.
//
// REQUIRES: the plans' times are by the prices of `topology`.
// COST: the number of stages times that of all steps.
ManyPlan Coalesce(std::vector<Plan> plans, const Topology& topology);

// The cheapest plan for each of the tensors, as MakePlan gives it, coalesced.
// A limit on workspace holds for every plan by itself.
//
//   std::vector<Redistribution> weights;  // from [S(0)] to [R] each, say
//   TESSERA_ASSIGN_OR_RETURN(ManyPlan many, PlanMany(weights, topology));
//   many.launches() == 1
//
// ERRORS: those of MakePlan for the first tensor that has one, which the
// message names: "plan_many: tensor 3: ...".
// COST: one search for each redistribution that differs from those before it,
// and that of Coalesce.
absl::StatusOr<ManyPlan> PlanMany(absl::Span<const Redistribution> tensors,
                                  const Topology& topology,
                                  const PlanOptions& options = {});

}  // namespace tessera

#endif  // TESSERA_REDISTRIBUTE_PLAN_MANY_H_

#ifndef TESSERA_REDISTRIBUTE_PLAN_ENDS_H_
#define TESSERA_REDISTRIBUTE_PLAN_ENDS_H_

#include <utility>

#include "tessera/placement/layout.h"
#include "tessera/redistribute/plan.h"

namespace tessera::internal {

// The ends of a plan as the key of a map, compared by value. Those of an entry
// are the plan's own, which the entry holds.
struct PlanEnds {
  const Layout* source;
  const Layout* target;

  static PlanEnds Of(const Plan& plan) {
    return {&plan.source(), &plan.target()};
  }

  friend bool operator==(const PlanEnds& a, const PlanEnds& b) {
    return *a.source == *b.source && *a.target == *b.target;
  }
  template <typename H>
  friend H AbslHashValue(H h, const PlanEnds& e) {
    return H::combine(std::move(h), *e.source, *e.target);
  }
};

}  // namespace tessera::internal

#endif  // TESSERA_REDISTRIBUTE_PLAN_ENDS_H_

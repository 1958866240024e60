#ifndef TESSERA_REDISTRIBUTE_PLAN_CACHE_H_
#define TESSERA_REDISTRIBUTE_PLAN_CACHE_H_

#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "tessera/base/lru_map.h"
#include "tessera/base/mutex.h"
#include "tessera/mesh/topology.h"
#include "tessera/placement/layout.h"
#include "tessera/redistribute/plan.h"
#include "tessera/redistribute/plan_ends.h"
#include "tessera/redistribute/planner.h"

namespace tessera {

// Keeps the plans of one topology, and one set of options, that were asked for
// last. Thread-safe: the ranks of a process can share one.
//
//   PlanCache plans(Topology::LocalCpu(), /*capacity=*/1024);
//   TESSERA_ASSIGN_OR_RETURN(auto plan, plans.Get(source, target));
class PlanCache {
 public:
  // REQUIRES: capacity >= 1, the most plans kept.
  PlanCache(Topology topology, int64_t capacity,
            const PlanOptions& options = {});

  // What MakePlan(source, target, topology, options) gives: the plan that is
  // kept, or else a new one, which is kept then in place of the one not asked
  // for longest. Threads that miss the same plan at once make it each, and get
  // the same pointer. Plans stay valid when the cache drops them. ERRORS: those
  // of MakePlan; they are not kept. COST: for a plan that is kept, a look-up
  // under a mutex; no allocation.
  absl::StatusOr<std::shared_ptr<const Plan>> Get(const Layout& source,
                                                  const Layout& target);

  // Number of plans kept, at most the capacity.
  int64_t size() const;

 private:
  using PlanPtr = std::shared_ptr<const Plan>;

  const Topology topology_;
  const PlanOptions options_;

  mutable Mutex mutex_;
  LruMap<internal::PlanEnds, PlanPtr> plans_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera

#endif  // TESSERA_REDISTRIBUTE_PLAN_CACHE_H_

#include "tessera/redistribute/plan_cache.h"

#include "tessera/base/status_macros.h"

namespace tessera {

PlanCache::PlanCache(Topology topology, int64_t capacity,
                     const PlanOptions& options)
    : topology_(std::move(topology)), options_(options), plans_(capacity) {}

absl::StatusOr<std::shared_ptr<const Plan>> PlanCache::Get(
    const Layout& source, const Layout& target) {
  {
    MutexLock lock(mutex_);
    if (const PlanPtr* plan = plans_.Find({&source, &target})) return *plan;
  }
  TESSERA_ASSIGN_OR_RETURN(Plan made,
                           MakePlan(source, target, topology_, options_));
  auto plan = std::make_shared<const Plan>(std::move(made));
  MutexLock lock(mutex_);
  const internal::PlanEnds key = internal::PlanEnds::Of(*plan);
  if (const PlanPtr* first = plans_.Find(key)) return *first;
  return plans_.Insert(key, plan);
}

int64_t PlanCache::size() const {
  MutexLock lock(mutex_);
  return plans_.size();
}

}  // namespace tessera

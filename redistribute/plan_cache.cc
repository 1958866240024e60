#include "tessera/redistribute/plan_cache.h"

#include <cassert>

#include "tessera/base/status_macros.h"

namespace tessera {

PlanCache::PlanCache(Topology topology, int64_t capacity,
                     const PlanOptions& options)
    : topology_(std::move(topology)), options_(options), capacity_(capacity) {
  assert(capacity >= 1);
}

absl::StatusOr<std::shared_ptr<const Plan>> PlanCache::Get(
    const Layout& source, const Layout& target) {
  {
    MutexLock lock(mutex_);
    if (PlanPtr plan = Find({&source, &target})) return plan;
  }
  TESSERA_ASSIGN_OR_RETURN(Plan made,
                           MakePlan(source, target, topology_, options_));
  auto plan = std::make_shared<const Plan>(std::move(made));
  MutexLock lock(mutex_);
  if (PlanPtr first = Find(EndsOf(*plan))) return first;
  Insert(plan);
  return plan;
}

int64_t PlanCache::size() const {
  MutexLock lock(mutex_);
  return static_cast<int64_t>(plans_.size());
}

PlanCache::PlanPtr PlanCache::Find(const Ends& ends) {
  const auto entry = index_.find(ends);
  if (entry == index_.end()) return nullptr;
  plans_.splice(plans_.begin(), plans_, entry->second);
  return plans_.front();
}

void PlanCache::Insert(PlanPtr plan) {
  if (static_cast<int64_t>(plans_.size()) == capacity_) {
    index_.erase(EndsOf(*plans_.back()));
    plans_.pop_back();
  }
  plans_.push_front(std::move(plan));
  index_.emplace(EndsOf(*plans_.front()), plans_.begin());
}

}  // namespace tessera

#include "tessera/fsdp/slots.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tessera/base/status_macros.h"

namespace tessera::internal {

absl::StatusOr<SlotPool> SlotPool::Create(absl::Span<const SlotPlan> plans,
                                          Device& device,
                                          absl::string_view tag) {
  SlotPool pool;
  pool.slots_.reserve(plans.size());
  for (const SlotPlan& plan : plans) {
    Slot slot;
    slot.plan = plan;
    TESSERA_ASSIGN_OR_RETURN(slot.memory, device.Allocate(plan.bytes, tag));
    pool.slots_.push_back(std::move(slot));
  }
  return pool;
}

int SlotPool::FindFree(int depth, int unit) const {
  int best = -1;
  for (int i = 0; i < static_cast<int>(slots_.size()); ++i) {
    const Slot& slot = slots_[i];
    const bool own = slot.plan.unit == unit;
    const bool fits = own || (slot.plan.unit < 0 && slot.plan.depth == depth);
    if (!fits || slot.taken) continue;
    if (own) return i;
    if (best < 0 || slot.released < slots_[best].released) best = i;
  }
  return best;
}

bool SlotPool::HasFree(int depth, int unit) const {
  return FindFree(depth, unit) >= 0;
}

absl::StatusOr<Slot*> SlotPool::Acquire(int depth, int unit, Stream& stream) {
  const int found = FindFree(depth, unit);
  if (found < 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "no transient memory is free at depth ", depth,
        ": other units of this depth are between their Before and After "
        "hooks"));
  }
  Slot* const best = &slots_[found];
  TESSERA_RETURN_IF_ERROR(stream.Wait(best->free));
  best->taken = true;
  return best;
}

void SlotPool::Release(Slot& slot, Stream& stream) {
  slot.free = stream.Record();
  slot.released = releases_++;
  slot.taken = false;
}

}  // namespace tessera::internal

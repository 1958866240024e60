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

absl::StatusOr<Slot*> SlotPool::Acquire(int depth, int unit, Stream& stream) {
  Slot* best = nullptr;
  for (Slot& slot : slots_) {
    const bool own = slot.plan.unit == unit;
    const bool fits = own || (slot.plan.unit < 0 && slot.plan.depth == depth);
    if (!fits || slot.taken) continue;
    if (best == nullptr || own || slot.released < best->released) best = &slot;
    if (own) break;
  }
  if (best == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "no transient memory is free at depth ", depth,
        ": another unit of this depth is between its Before and After hooks"));
  }
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

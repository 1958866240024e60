#include "tessera/fsdp/slots.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "tessera/base/status_macros.h"

namespace tessera::internal {

absl::StatusOr<SlotPool> SlotPool::Create(SlotPlan plan, Device& device,
                                          absl::string_view tag) {
  SlotPool pool;
  pool.slots_of_unit_ = std::move(plan.slots_of_unit);
  pool.slots_.reserve(plan.bytes.size());
  for (int64_t bytes : plan.bytes) {
    Slot slot;
    TESSERA_ASSIGN_OR_RETURN(slot.memory, device.Allocate(bytes, tag));
    pool.slots_.push_back(std::move(slot));
  }
  return pool;
}

bool SlotPool::MayUse(int unit, const Slot& slot) const {
  return absl::c_linear_search(slots_of_unit_[unit], &slot - slots_.data());
}

int SlotPool::FindFree(int unit) const {
  int best = -1;
  for (int i : slots_of_unit_[unit]) {
    if (slots_[i].taken) continue;
    if (best < 0 || slots_[i].released < slots_[best].released) best = i;
  }
  return best;
}

absl::StatusOr<Slot*> SlotPool::Acquire(int unit, Stream& stream) {
  const int found = FindFree(unit);
  if (found < 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("no transient memory is free: other units are between "
                     "their Before and After hooks in all ",
                     slots_of_unit_[unit].size(), " slots that it may use"));
  }
  Slot& slot = slots_[found];
  TESSERA_RETURN_IF_ERROR(stream.Wait(slot.free));
  slot.taken = true;
  return &slot;
}

void SlotPool::Release(Slot& slot, Stream& stream) {
  slot.free = stream.Record();
  slot.released = releases_++;
  slot.taken = false;
}

}  // namespace tessera::internal

#ifndef TESSERA_FSDP_SLOTS_H_
#define TESSERA_FSDP_SLOTS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tessera/device/device.h"
#include "tessera/fsdp/memory_plan.h"

namespace tessera::internal {

// Transient memory that units use in turn.
struct Slot {
  Buffer memory;
  Event free;             // what used it last is done
  int64_t released = -1;  // when, by count of releases
  bool taken = false;
};

// The fixed slots of a context. Nothing is allocated after Create; a slot is
// handed on by making streams wait, not the host. Slots stay where they are.
class SlotPool {
 public:
  SlotPool() = default;
  static absl::StatusOr<SlotPool> Create(SlotPlan plan, Device& device,
                                         absl::string_view tag);

  // Whether `unit` may use `slot`.
  bool MayUse(int unit, const Slot& slot) const;
  // Whether Acquire would give one.
  bool HasFree(int unit) const { return FindFree(unit) >= 0; }

  // Of the slots that `unit` may use, the one that has been free longest. What
  // is enqueued next on `stream` starts once the slot's last user is done.
  // ERRORS: FailedPrecondition where all are taken.
  absl::StatusOr<Slot*> Acquire(int unit, Stream& stream);

  // Gives the slot back; it is free once `stream` has come to this point.
  void Release(Slot& slot, Stream& stream);

 private:
  // The index of what Acquire gives, or -1.
  int FindFree(int unit) const;

  std::vector<std::vector<int>> slots_of_unit_;
  std::vector<Slot> slots_;
  int64_t releases_ = 0;
};

}  // namespace tessera::internal

#endif  // TESSERA_FSDP_SLOTS_H_

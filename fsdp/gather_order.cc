#include "tessera/fsdp/gather_order.h"

#include <cstddef>

namespace tessera::internal {

void GatherOrder::Begin(int unit) {
  if (static_cast<size_t>(unit) >= entries_.size()) entries_.resize(unit + 1);
  if (entries_[unit].pass == pass_) EndPass();
  entries_[unit].pass = pass_;
  if (last_ >= 0) entries_[last_].next = unit;
  last_ = unit;
}

int GatherOrder::Next(int unit) const {
  const int next = entries_[unit].next;
  return next >= 0 && entries_[next].pass != pass_ ? next : -1;
}

void GatherOrder::EndPass() {
  if (last_ < 0) return;
  entries_[last_].next = -1;
  ++pass_;
  last_ = -1;
}

}  // namespace tessera::internal

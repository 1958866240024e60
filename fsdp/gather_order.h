#ifndef TESSERA_FSDP_GATHER_ORDER_H_
#define TESSERA_FSDP_GATHER_ORDER_H_

#include <vector>

namespace tessera::internal {

// Which unit comes after which in one direction, forward or backward, as the
// last pass over them has shown. A pass ends where the other direction begins
// or a unit comes again, so that nothing is foretold across its end. What is
// foretold depends on the order of hooks only: it is the same on all ranks.
class GatherOrder {
 public:
  // `unit` begins.
  void Begin(int unit);
  // The unit that came next when `unit` last began, or -1: also where it has
  // begun in this pass already. REQUIRES: `unit` has begun at least once.
  int Next(int unit) const;
  void EndPass();

 private:
  struct Entry {
    int next = -1;
    int pass = -1;  // when it began last
  };
  std::vector<Entry> entries_;  // by unit
  int pass_ = 0;
  int last_ = -1;  // in this pass
};

}  // namespace tessera::internal

#endif  // TESSERA_FSDP_GATHER_ORDER_H_

#ifndef TESSERA_FSDP_OPTIMIZER_H_
#define TESSERA_FSDP_OPTIMIZER_H_

#include "absl/status/status.h"
#include "tessera/fsdp/context.h"

namespace tessera {

// weight += gradient * -learning_rate, on shards; product and sum round
// separately. LIFETIME: borrows the context.
class SgdOptimizer {
 public:
  SgdOptimizer(Context& context, double learning_rate)
      : context_(context), learning_rate_(learning_rate) {}

  double learning_rate() const { return learning_rate_; }
  void set_learning_rate(double learning_rate) {
    learning_rate_ = learning_rate;
  }

  // COLLECTIVE and ERRORS: those of Context::Step.
  absl::Status Step();

 private:
  Context& context_;
  double learning_rate_;
};

}  // namespace tessera

#endif  // TESSERA_FSDP_OPTIMIZER_H_

#include "tessera/fsdp/optimizer.h"

#include "tessera/device/device.h"

namespace tessera {

absl::Status SgdOptimizer::Step() {
  return context_.Step([this](const OptimizerShard& shard, Stream& stream) {
    return stream.device().kernels().AccumulateScaled(
        stream, shard.weight, shard.gradient, -learning_rate_);
  });
}

}  // namespace tessera

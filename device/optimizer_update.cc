#include "tessera/device/optimizer_update.h"

#include <cmath>

namespace tessera {

AdamWFactors FactorsOf(const AdamWUpdate& update) {
  const auto step = static_cast<double>(update.step);
  return {
      .decay = 1.0 - update.learning_rate * update.weight_decay,
      .step_size = update.learning_rate / (1.0 - std::pow(update.beta1, step)),
      .root_bias = std::sqrt(1.0 - std::pow(update.beta2, step))};
}

}  // namespace tessera

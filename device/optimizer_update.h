#ifndef TESSERA_DEVICE_OPTIMIZER_UPDATE_H_
#define TESSERA_DEVICE_OPTIMIZER_UPDATE_H_

#include <cstdint>

namespace tessera {

// What optimizers do to one element, in T, the dtype of the weight (f32 or
// f64). Numbers written as T(x) are computed in f64 on the host and rounded
// once; every product, sum, quotient and root rounds by itself (no fused
// multiply-add). g is T(gradient), w the weight.

// SGD as PyTorch defines it:
//
//   if weight_decay != 0:  g = g + T(weight_decay) * w
//   if momentum != 0:      m = first ? g
//                                    : T(momentum) * m + T(1 - dampening) * g
//                          g = nesterov ? g + T(momentum) * m : m
//   w = w - T(learning_rate) * g
struct SgdUpdate {
  double learning_rate = 0.0;
  double momentum = 0.0;
  double dampening = 0.0;
  double weight_decay = 0.0;
  bool nesterov = false;
  bool first = false;  // of this element: there is no momentum yet
};

// AdamW as PyTorch defines it, with decoupled weight decay:
//
//   m = T(beta1) * m + T(1 - beta1) * g
//   v = T(beta2) * v + T(1 - beta2) * (g * g)
//   w = w * T(1 - learning_rate * weight_decay)
//   w = w - T(learning_rate / (1 - beta1^step)) *
//           (m / (sqrt(v) / T(sqrt(1 - beta2^step)) + T(epsilon)))
struct AdamWUpdate {
  double learning_rate = 0.0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
  int64_t step = 1;  // 1 for the first update of this element
};

// The numbers of AdamW that do not depend on the element.
struct AdamWFactors {
  double decay;      // 1 - learning_rate * weight_decay
  double step_size;  // learning_rate / (1 - beta1^step)
  double root_bias;  // sqrt(1 - beta2^step)
};
AdamWFactors FactorsOf(const AdamWUpdate& update);

}  // namespace tessera

#endif  // TESSERA_DEVICE_OPTIMIZER_UPDATE_H_

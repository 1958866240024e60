#ifndef TESSERA_TESTS_OPTIMIZER_REFERENCE_H_
#define TESSERA_TESTS_OPTIMIZER_REFERENCE_H_

#include <cmath>

#include "tessera/device/optimizer_update.h"

// The formulas of optimizer_update.h for one element, written down once more.

namespace tessera::testing {

template <typename T>
void SgdReference(T& w, T g, T& m, const SgdUpdate& u) {
  if (u.weight_decay != 0) g = g + static_cast<T>(u.weight_decay) * w;
  if (u.momentum != 0) {
    const T mu = static_cast<T>(u.momentum);
    m = u.first ? g : mu * m + static_cast<T>(1 - u.dampening) * g;
    g = u.nesterov ? g + mu * m : m;
  }
  w = w - static_cast<T>(u.learning_rate) * g;
}

template <typename T>
void AdamWReference(T& w, T g, T& m, T& v, const AdamWUpdate& u) {
  const double t = static_cast<double>(u.step);
  m = static_cast<T>(u.beta1) * m + static_cast<T>(1 - u.beta1) * g;
  v = static_cast<T>(u.beta2) * v + static_cast<T>(1 - u.beta2) * (g * g);
  w = w * static_cast<T>(1 - u.learning_rate * u.weight_decay);
  const T size = static_cast<T>(u.learning_rate / (1 - std::pow(u.beta1, t)));
  const T bias = static_cast<T>(std::sqrt(1 - std::pow(u.beta2, t)));
  w = w - size * (m / (std::sqrt(v) / bias + static_cast<T>(u.epsilon)));
}

}  // namespace tessera::testing

#endif  // TESSERA_TESTS_OPTIMIZER_REFERENCE_H_

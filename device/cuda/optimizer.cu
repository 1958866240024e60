// The steps of optimizers, as optimizer_update.h defines them.

#include <cmath>
#include <type_traits>

#include "tessera/device/cuda/kernels.h"
#include "tessera/device/cuda/launch.h"
#include "tessera/device/cuda/numbers.h"

namespace tessera::internal {
namespace {

// --- SGD --------------------------------------------------------------------

template <int kRun, typename T, typename G>
struct SgdPacks {
  Pack<kRun, T> weight;
  Pack<kRun, G> gradient;
  Pack<kRun, T> momentum;
};

template <typename T, typename G>
struct SgdBody {
  T* weight;
  const G* gradient;
  T* momentum;
  bool keeps_momentum;
  bool reads_momentum;
  bool decays_weight;
  bool nesterov;
  T learning_rate;
  T momentum_factor;
  T gradient_factor;  // 1 - dampening
  T weight_decay;

  SgdBody(const UpdateArrays& arrays, const SgdUpdate& update)
      : weight(static_cast<T*>(arrays.weight)),
        gradient(static_cast<const G*>(arrays.gradient)),
        momentum(static_cast<T*>(arrays.first)),
        keeps_momentum(update.momentum != 0),
        reads_momentum(keeps_momentum && !update.first),
        decays_weight(update.weight_decay != 0),
        nesterov(update.nesterov),
        learning_rate(static_cast<T>(update.learning_rate)),
        momentum_factor(static_cast<T>(update.momentum)),
        gradient_factor(static_cast<T>(1.0 - update.dampening)),
        weight_decay(static_cast<T>(update.weight_decay)) {}

  template <int kRun>
  TESSERA_HOST_DEVICE SgdPacks<kRun, T, G> Load(int64_t i) const {
    SgdPacks<kRun, T, G> x = {
        LoadPack<kRun>(weight + i), LoadPack<kRun>(gradient + i), {}};
    if (reads_momentum) x.momentum = LoadPack<kRun>(momentum + i);
    return x;
  }
  template <int kRun>
  TESSERA_HOST_DEVICE void Store(int64_t i, SgdPacks<kRun, T, G> x) const {
    for (int k = 0; k < kRun; ++k) {
      Step(x.weight.values[k], Convert<T>(x.gradient.values[k]),
           x.momentum.values[k]);
    }
    StorePack(weight + i, x.weight);
    if (keeps_momentum) StorePack(momentum + i, x.momentum);
  }

 private:
  TESSERA_HOST_DEVICE void Step(T& w, T g, T& m) const {
    if (decays_weight) g = g + weight_decay * w;
    if (keeps_momentum) {
      m = reads_momentum ? momentum_factor * m + gradient_factor * g : g;
      g = nesterov ? g + momentum_factor * m : m;
    }
    w = w - learning_rate * g;
  }
};

template <typename T, typename G>
cudaError_t Sgd(cudaStream_t stream, const UpdateArrays& arrays,
                const SgdUpdate& update) {
  const int64_t n = arrays.n;
  const SgdBody<T, G> body(arrays, update);
  constexpr int kPack = kPackOf<T, G>;
  // What is not touched is of no elements.
  const Touched touched[] = {
      Reads(body.weight, n), Reads(body.gradient, n), Writes(body.weight, n),
      Reads(body.momentum, body.reads_momentum ? n : 0),
      Writes(body.momentum, body.keeps_momentum ? n : 0)};
  const Packing packing =
      body.keeps_momentum
          ? PackingOf<kPack>(n, body.weight, body.gradient, body.momentum)
          : PackingOf<kPack>(n, body.weight, body.gradient);
  return ForEach<kPack>({stream, "sgd", touched}, packing, body);
}

// --- AdamW ------------------------------------------------------------------

template <int kRun, typename T, typename G>
struct AdamWPacks {
  Pack<kRun, T> weight;
  Pack<kRun, G> gradient;
  Pack<kRun, T> first;
  Pack<kRun, T> second;
};

template <typename T, typename G>
struct AdamWBody {
  T* weight;
  const G* gradient;
  T* first;
  T* second;
  T beta1;
  T beta2;
  T one_minus_beta1;
  T one_minus_beta2;
  T epsilon;
  T decay;
  T step_size;
  T root_bias;

  AdamWBody(const UpdateArrays& arrays, const AdamWUpdate& update,
            const AdamWFactors& factors)
      : weight(static_cast<T*>(arrays.weight)),
        gradient(static_cast<const G*>(arrays.gradient)),
        first(static_cast<T*>(arrays.first)),
        second(static_cast<T*>(arrays.second)),
        beta1(static_cast<T>(update.beta1)),
        beta2(static_cast<T>(update.beta2)),
        one_minus_beta1(static_cast<T>(1.0 - update.beta1)),
        one_minus_beta2(static_cast<T>(1.0 - update.beta2)),
        epsilon(static_cast<T>(update.epsilon)),
        decay(static_cast<T>(factors.decay)),
        step_size(static_cast<T>(factors.step_size)),
        root_bias(static_cast<T>(factors.root_bias)) {}

  template <int kRun>
  TESSERA_HOST_DEVICE AdamWPacks<kRun, T, G> Load(int64_t i) const {
    return {LoadPack<kRun>(weight + i), LoadPack<kRun>(gradient + i),
            LoadPack<kRun>(first + i), LoadPack<kRun>(second + i)};
  }
  template <int kRun>
  TESSERA_HOST_DEVICE void Store(int64_t i, AdamWPacks<kRun, T, G> x) const {
    for (int k = 0; k < kRun; ++k) {
      Step(x.weight.values[k], Convert<T>(x.gradient.values[k]),
           x.first.values[k], x.second.values[k]);
    }
    StorePack(weight + i, x.weight);
    StorePack(first + i, x.first);
    StorePack(second + i, x.second);
  }

 private:
  TESSERA_HOST_DEVICE void Step(T& w, T g, T& m, T& v) const {
    m = beta1 * m + one_minus_beta1 * g;
    v = beta2 * v + one_minus_beta2 * (g * g);
    w = w * decay;
    w = w - step_size * (m / (std::sqrt(v) / root_bias + epsilon));
  }
};

template <typename T, typename G>
cudaError_t AdamW(cudaStream_t stream, const UpdateArrays& arrays,
                  const AdamWUpdate& update, const AdamWFactors& factors) {
  const int64_t n = arrays.n;
  const AdamWBody<T, G> body(arrays, update, factors);
  constexpr int kPack = kPackOf<T, G>;
  const Touched touched[] = {
      Reads(body.weight, n),  Reads(body.gradient, n), Reads(body.first, n),
      Reads(body.second, n),  Writes(body.weight, n),  Writes(body.first, n),
      Writes(body.second, n),
  };
  return ForEach<kPack>(
      {stream, "adamw", touched},
      PackingOf<kPack>(n, body.weight, body.gradient, body.first, body.second),
      body);
}

// Calls step with the types of the weight and the gradient.
template <typename Step>
cudaError_t VisitTypes(const UpdateArrays& arrays, Step step) {
  return VisitDType(arrays.dtype, [&]<typename T>() {
    return VisitDType(arrays.gradient_dtype, [&]<typename G>() {
      if constexpr (std::is_floating_point_v<T> &&
                    std::is_floating_point_v<G>) {
        return step.template operator()<T, G>();
      }
      return cudaErrorInvalidValue;
    });
  });
}

}  // namespace

cudaError_t StepSgd(cudaStream_t stream, const UpdateArrays& arrays,
                    const SgdUpdate& update) {
  return VisitTypes(arrays, [&]<typename T, typename G>() {
    return Sgd<T, G>(stream, arrays, update);
  });
}

cudaError_t StepAdamW(cudaStream_t stream, const UpdateArrays& arrays,
                      const AdamWUpdate& update, const AdamWFactors& factors) {
  return VisitTypes(arrays, [&]<typename T, typename G>() {
    return AdamW<T, G>(stream, arrays, update, factors);
  });
}

}  // namespace tessera::internal

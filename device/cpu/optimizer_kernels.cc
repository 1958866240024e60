#include "tessera/device/cpu/optimizer_kernels.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

// Compiles what stands before HWY_ONCE for every instruction set that programs
// may meet.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tessera/device/cpu/optimizer_kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h.
#include "hwy/highway.h"
#include "tessera/device/cpu/for_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::internal {
namespace HWY_NAMESPACE {
namespace {

namespace hn = ::hwy::HWY_NAMESPACE;

// A number in all lanes.
template <class D>
hn::Vec<D> All(D d, double number) {
  return hn::Set(d, static_cast<hn::TFromD<D>>(number));
}

template <typename T>
void SgdAs(T* weight, const T* gradient, T* momentum, int64_t n,
           const SgdUpdate& u) {
  ForLanes<T>(n, [=](auto d, int64_t i) HWY_ATTR {
    const auto w = hn::LoadU(d, weight + i);
    auto g = hn::LoadU(d, gradient + i);
    if (u.weight_decay != 0) {
      g = hn::Add(g, hn::Mul(All(d, u.weight_decay), w));
    }
    if (u.momentum != 0) {
      auto m = g;
      if (!u.first) {
        m = hn::Add(hn::Mul(All(d, u.momentum), hn::LoadU(d, momentum + i)),
                    hn::Mul(All(d, 1.0 - u.dampening), g));
      }
      hn::StoreU(m, d, momentum + i);
      g = u.nesterov ? hn::Add(g, hn::Mul(All(d, u.momentum), m)) : m;
    }
    hn::StoreU(hn::Sub(w, hn::Mul(All(d, u.learning_rate), g)), d, weight + i);
  });
}

template <typename T>
void AdamWAs(T* weight, const T* gradient, T* first, T* second, int64_t n,
             const AdamWUpdate& u, const AdamWFactors& factors) {
  ForLanes<T>(n, [=](auto d, int64_t i) HWY_ATTR {
    const auto g = hn::LoadU(d, gradient + i);
    const auto m = hn::Add(hn::Mul(All(d, u.beta1), hn::LoadU(d, first + i)),
                           hn::Mul(All(d, 1.0 - u.beta1), g));
    const auto v = hn::Add(hn::Mul(All(d, u.beta2), hn::LoadU(d, second + i)),
                           hn::Mul(All(d, 1.0 - u.beta2), hn::Mul(g, g)));
    hn::StoreU(m, d, first + i);
    hn::StoreU(v, d, second + i);
    const auto w = hn::Mul(hn::LoadU(d, weight + i), All(d, factors.decay));
    const auto root = hn::Add(hn::Div(hn::Sqrt(v), All(d, factors.root_bias)),
                              All(d, u.epsilon));
    hn::StoreU(hn::Sub(w, hn::Mul(All(d, factors.step_size), hn::Div(m, root))),
               d, weight + i);
  });
}

// One instance per element type, for the table of instruction sets.
void SgdF32(float* w, const float* g, float* m, int64_t n, const SgdUpdate& u) {
  SgdAs(w, g, m, n, u);
}
void SgdF64(double* w, const double* g, double* m, int64_t n,
            const SgdUpdate& u) {
  SgdAs(w, g, m, n, u);
}
void AdamWF32(float* w, const float* g, float* m, float* v, int64_t n,
              const AdamWUpdate& u, const AdamWFactors& factors) {
  AdamWAs(w, g, m, v, n, u, factors);
}
void AdamWF64(double* w, const double* g, double* m, double* v, int64_t n,
              const AdamWUpdate& u, const AdamWFactors& factors) {
  AdamWAs(w, g, m, v, n, u, factors);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::internal {

HWY_EXPORT(SgdF32);
HWY_EXPORT(SgdF64);
HWY_EXPORT(AdamWF32);
HWY_EXPORT(AdamWF64);

namespace {

// Calls update(begin, gradient, count) for all rows, with the gradient in T:
// for all at once, or by blocks of it that are converted.
template <typename T, class Update>
void WithGradientIn(const UpdateRows& rows, Update update) {
  if (rows.gradient_dtype == DTypeOf<T>) {
    update(0, static_cast<const T*>(rows.gradient), rows.n);
    return;
  }
  using Other = std::conditional_t<std::is_same_v<T, float>, double, float>;
  const auto* const gradient = static_cast<const Other*>(rows.gradient);
  constexpr int64_t kBlock = 512;
  T block[kBlock];
  for (int64_t begin = 0; begin < rows.n; begin += kBlock) {
    const int64_t count = std::min(kBlock, rows.n - begin);
    for (int64_t i = 0; i < count; ++i) {
      block[i] = static_cast<T>(gradient[begin + i]);
    }
    update(begin, block, count);
  }
}

// Null where there is none.
template <typename T>
T* At(void* row, int64_t begin) {
  return row == nullptr ? nullptr : static_cast<T*>(row) + begin;
}

}  // namespace

void SgdRow(const UpdateRows& rows, const SgdUpdate& update) {
  const auto run = [&]<typename T>(auto kernel) {
    WithGradientIn<T>(rows, [&](int64_t begin, const T* gradient, int64_t n) {
      kernel(At<T>(rows.weight, begin), gradient, At<T>(rows.first, begin), n,
             update);
    });
  };
  if (rows.dtype == DType::kF32) {
    run.operator()<float>(HWY_DYNAMIC_DISPATCH(SgdF32));
  } else {
    run.operator()<double>(HWY_DYNAMIC_DISPATCH(SgdF64));
  }
}

void AdamWRow(const UpdateRows& rows, const AdamWUpdate& update) {
  const AdamWFactors factors = FactorsOf(update);
  const auto run = [&]<typename T>(auto kernel) {
    WithGradientIn<T>(rows, [&](int64_t begin, const T* gradient, int64_t n) {
      kernel(At<T>(rows.weight, begin), gradient, At<T>(rows.first, begin),
             At<T>(rows.second, begin), n, update, factors);
    });
  };
  if (rows.dtype == DType::kF32) {
    run.operator()<float>(HWY_DYNAMIC_DISPATCH(AdamWF32));
  } else {
    run.operator()<double>(HWY_DYNAMIC_DISPATCH(AdamWF64));
  }
}

}  // namespace tessera::internal
#endif  // HWY_ONCE

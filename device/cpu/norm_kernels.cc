#include "tessera/device/cpu/norm_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

// Compiles what stands before HWY_ONCE for every instruction set that programs
// may meet.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tessera/device/cpu/norm_kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h.
#include "hwy/highway.h"
#include "tessera/device/cpu/for_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::internal {
namespace HWY_NAMESPACE {
namespace {

namespace hn = ::hwy::HWY_NAMESPACE;

// Element i is added to sum i % kSums.
inline constexpr int64_t kSums = 16;

#if !HWY_HAVE_SCALABLE && HWY_TARGET != HWY_SCALAR

template <class D64, typename T>
hn::Vec<D64> LoadWide(D64 d64, const T* from) {
  if constexpr (std::is_same_v<T, double>) {
    return hn::LoadU(d64, from);
  } else {
    return hn::PromoteTo(d64, hn::LoadU(hn::Rebind<T, D64>(), from));
  }
}

// Adds the squares of the first so many elements; returns how many that are, a
// multiple of kSums.
template <typename T>
int64_t AddWholeRounds(const T* x, int64_t n, double* sums) {
  using D64 = hn::CappedTag<double, 8>;
  const D64 d64;
  constexpr size_t kLanes = hn::MaxLanes(D64());
  constexpr size_t kVectors = kSums / kLanes;
  hn::Vec<D64> parts[kVectors];
  for (hn::Vec<D64>& part : parts) part = hn::Zero(d64);
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums) {
    for (size_t k = 0; k < kVectors; ++k) {
      const auto v = LoadWide(d64, x + i + k * kLanes);
      parts[k] = hn::Add(parts[k], hn::Mul(v, v));
    }
  }
  for (size_t k = 0; k < kVectors; ++k) {
    hn::StoreU(parts[k], d64, sums + k * kLanes);
  }
  return i;
}

#else

template <typename T>
int64_t AddWholeRounds(const T*, int64_t, double*) {
  return 0;
}

#endif

template <typename T>
double SquaresOf(const T* x, int64_t n) {
  double sums[kSums] = {};
  for (int64_t i = AddWholeRounds(x, n, sums); i < n; ++i) {
    const auto v = static_cast<double>(x[i]);
    sums[i % kSums] += v * v;
  }
  for (int64_t half = kSums / 2; half > 0; half /= 2) {
    for (int64_t k = 0; k < half; ++k) sums[k] += sums[k + half];
  }
  return sums[0];
}

template <typename T>
int64_t NonFiniteOf(const T* x, int64_t n) {
  int64_t count = 0;
  ForLanes<T>(n, [x, &count](auto d, int64_t i) HWY_ATTR {
    const auto finite = hn::IsFinite(hn::LoadU(d, x + i));
    count += static_cast<int64_t>(hn::CountTrue(d, hn::Not(finite)));
  });
  return count;
}

// One instance per element type, for the table of instruction sets.
double SquaresF32(const float* x, int64_t n) { return SquaresOf(x, n); }
double SquaresF64(const double* x, int64_t n) { return SquaresOf(x, n); }
int64_t NonFiniteF32(const float* x, int64_t n) { return NonFiniteOf(x, n); }
int64_t NonFiniteF64(const double* x, int64_t n) { return NonFiniteOf(x, n); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::internal {

HWY_EXPORT(SquaresF32);
HWY_EXPORT(SquaresF64);
HWY_EXPORT(NonFiniteF32);
HWY_EXPORT(NonFiniteF64);

double SumOfSquares(DType dtype, const void* x, int64_t n) {
  if (dtype == DType::kF32) {
    return HWY_DYNAMIC_DISPATCH(SquaresF32)(static_cast<const float*>(x), n);
  }
  return HWY_DYNAMIC_DISPATCH(SquaresF64)(static_cast<const double*>(x), n);
}

double ClipFactor(double squares, double max_norm) {
  if (!std::isfinite(squares)) return 1;
  return std::min(1.0, max_norm / (std::sqrt(squares) + 1e-6));
}

int64_t CountNonFinite(DType dtype, const void* x, int64_t n) {
  if (dtype == DType::kF32) {
    return HWY_DYNAMIC_DISPATCH(NonFiniteF32)(static_cast<const float*>(x), n);
  }
  return HWY_DYNAMIC_DISPATCH(NonFiniteF64)(static_cast<const double*>(x), n);
}

}  // namespace tessera::internal
#endif  // HWY_ONCE

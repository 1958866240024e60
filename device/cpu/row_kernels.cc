#include "tessera/device/cpu/row_kernels.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

// Compiles what stands before HWY_ONCE for every instruction set that programs
// may meet.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tessera/device/cpu/row_kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h.
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "tessera/device/cpu/for_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::internal {
namespace HWY_NAMESPACE {
namespace {

namespace hn = ::hwy::HWY_NAMESPACE;

// --- Elements in vectors ----------------------------------------------------

// Elements of T in vectors of what T is computed in. LoadOperand is for what
// is computed with: signalling NaNs may become quiet.
template <typename T>
struct Lanes {
  using Wide = T;

  template <class D>
  static hn::Vec<D> Load(D d, const T* from) {
    return hn::LoadU(d, from);
  }
  template <class D>
  static hn::Vec<D> LoadOperand(D d, const T* from) {
    return Load(d, from);
  }
  template <class D>
  static void Store(D d, hn::Vec<D> v, T* to) {
    hn::StoreU(v, d, to);
  }
};

// 16 bits per element, in the low halves of 32.
template <class D32, typename Half>
hn::Vec<D32> LoadHalves(D32 d32, const Half* from) {
  const hn::Rebind<uint16_t, D32> d16;
  return hn::PromoteTo(d32,
                       hn::LoadU(d16, reinterpret_cast<const uint16_t*>(from)));
}

// The low halves. The upper ones are zero.
template <class D32, typename Half>
void StoreHalves(D32, hn::Vec<D32> bits, Half* to) {
  const hn::RebindToSigned<D32> signed32;
  const hn::Rebind<uint16_t, D32> d16;
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(signed32, bits)), d16,
             reinterpret_cast<uint16_t*>(to));
}

// As BFloat16 converts.
template <>
struct Lanes<BFloat16> {
  using Wide = float;

  template <class D>
  static hn::Vec<D> Load(D d, const BFloat16* from) {
    const hn::RebindToUnsigned<D> d32;
    return hn::BitCast(d, hn::ShiftLeft<16>(LoadHalves(d32, from)));
  }
  template <class D>
  static hn::Vec<D> LoadOperand(D d, const BFloat16* from) {
    return Load(d, from);
  }

  template <class D>
  static void Store(D d, hn::Vec<D> v, BFloat16* to) {
    StoreHalves(hn::RebindToUnsigned<D>(), hn::ShiftRight<16>(Round(d, v)), to);
  }

  // The bits of v with the upper half rounded and the lower one arbitrary.
  template <class D>
  static hn::Vec<hn::RebindToUnsigned<D>> Round(D d, hn::Vec<D> v) {
    const hn::RebindToUnsigned<D> d32;
    const auto quiet = hn::Or(hn::BitCast(d32, v), hn::Set(d32, 0x00400000));
    const auto is_nan = hn::RebindMask(d32, hn::IsNaN(v));
    return hn::IfThenElse(is_nan, quiet, RoundComputed(d, v));
  }
  // The same for what has been computed from bf16 alone: the lower half of a
  // NaN is zero, and so does not carry.
  template <class D>
  static hn::Vec<hn::RebindToUnsigned<D>> RoundComputed(D, hn::Vec<D> v) {
    const hn::RebindToUnsigned<D> d32;
    const auto bits = hn::BitCast(d32, v);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1));
    return hn::Add(hn::Add(bits, hn::Set(d32, 0x7fff)), odd);
  }
};

// As Float16 converts.
template <>
struct Lanes<Float16> {
  using Wide = float;

  template <class D>
  static hn::Vec<D> Load(D d, const Float16* from) {
    const hn::RebindToUnsigned<D> d32;
    const hn::RebindToSigned<D> signed32;
    const auto bits = LoadHalves(d32, from);
    const auto magnitude = hn::And(bits, hn::Set(d32, 0x7fff));
    const auto sign = hn::ShiftLeft<16>(hn::Xor(bits, magnitude));
    const auto shifted = hn::ShiftLeft<13>(magnitude);
    const auto normal = hn::Add(shifted, hn::Set(d32, 0x38000000));
    const auto infinite = hn::Or(shifted, hn::Set(d32, 0x7f800000));
    const auto subnormal = hn::BitCast(
        d32, hn::Mul(hn::ConvertTo(d, hn::BitCast(signed32, magnitude)),
                     hn::Set(d, 0x1p-24f)));
    const auto is_subnormal = hn::Lt(magnitude, hn::Set(d32, 0x0400));
    const auto is_infinite = hn::Gt(magnitude, hn::Set(d32, 0x7bff));
    const auto finite = hn::IfThenElse(is_subnormal, subnormal, normal);
    return hn::BitCast(
        d, hn::Or(sign, hn::IfThenElse(is_infinite, infinite, finite)));
  }
  template <class D>
  static hn::Vec<D> LoadOperand(D d, const Float16* from) {
#if HWY_TARGET <= HWY_AVX2  // one instruction
    const hn::Rebind<hwy::float16_t, D> d16;
    return hn::PromoteTo(
        d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(from)));
#else
    return Load(d, from);
#endif
  }

  template <class D>
  static void Store(D d, hn::Vec<D> v, Float16* to) {
    const hn::RebindToUnsigned<D> d32;
    const auto bits = hn::BitCast(d32, v);
    const auto magnitude = hn::And(bits, hn::Set(d32, 0x7fffffff));
    const auto sign = hn::ShiftRight<16>(hn::Xor(bits, magnitude));
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(d32, 1));
    const auto normal =
        hn::ShiftRight<13>(hn::Add(hn::Sub(magnitude, hn::Set(d32, 0x38000000)),
                                   hn::Add(odd, hn::Set(d32, 0x0fff))));
    // Adding 0.5 leaves the multiple of 2^-24, rounded, in the low bits.
    const auto subnormal = hn::Sub(
        hn::BitCast(d32, hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5f))),
        hn::Set(d32, 0x3f000000));
    const auto is_subnormal = hn::Lt(magnitude, hn::Set(d32, 0x38800000));
    const auto is_infinite = hn::Gt(magnitude, hn::Set(d32, 0x477fefff));
    const auto is_nan = hn::Gt(magnitude, hn::Set(d32, 0x7f800000));
    const auto finite = hn::IfThenElse(is_subnormal, subnormal, normal);
    const auto infinite =
        hn::IfThenElse(is_nan, hn::Set(d32, 0x7e00), hn::Set(d32, 0x7c00));
    StoreHalves(
        d32, hn::Or(sign, hn::IfThenElse(is_infinite, infinite, finite)), to);
  }
};

// --- Copies -----------------------------------------------------------------

template <bool kPastCaches, class D>
void StoreBytes(D d, hn::Vec<D> v, uint8_t* to) {
  if constexpr (kPastCaches) {
    hn::Stream(v, d, to);
  } else {
    hn::Store(v, d, to);
  }
}

template <bool kPastCaches>
void CopyBytes(uint8_t* dst, const uint8_t* src, int64_t bytes) {
  const hn::ScalableTag<uint8_t> d;
  const auto step = static_cast<int64_t>(hn::Lanes(d));
  const auto misplaced =
      static_cast<int64_t>(reinterpret_cast<uintptr_t>(dst) % step);
  int64_t i = std::min(bytes, (step - misplaced) % step);
  std::memcpy(dst, src, i);
  for (; i + 4 * step <= bytes; i += 4 * step) {
    const auto v0 = hn::LoadU(d, src + i);
    const auto v1 = hn::LoadU(d, src + i + step);
    const auto v2 = hn::LoadU(d, src + i + 2 * step);
    const auto v3 = hn::LoadU(d, src + i + 3 * step);
    StoreBytes<kPastCaches>(d, v0, dst + i);
    StoreBytes<kPastCaches>(d, v1, dst + i + step);
    StoreBytes<kPastCaches>(d, v2, dst + i + 2 * step);
    StoreBytes<kPastCaches>(d, v3, dst + i + 3 * step);
  }
  std::memcpy(dst + i, src + i, bytes - i);
  if (kPastCaches) hwy::FlushStream();
}

void Copy(void* dst, const void* src, int64_t bytes, bool past_caches) {
  auto* const to = static_cast<uint8_t*>(dst);
  const auto* const from = static_cast<const uint8_t*>(src);
  if (past_caches) {
    CopyBytes<true>(to, from, bytes);
  } else {
    CopyBytes<false>(to, from, bytes);
  }
}

// --- Reductions -------------------------------------------------------------

struct Sum {
  template <class V>
  static V Apply(V a, V b) {
    return hn::Add(a, b);
  }
};

struct Product {
  template <class V>
  static V Apply(V a, V b) {
    return hn::Mul(a, b);
  }
};

// Where b is NaN, Min and Max take it.
struct Min {
  template <class V>
  static V Apply(V a, V b) {
    if constexpr (std::is_integral_v<hn::TFromV<V>>) {
      return hn::Min(a, b);
    } else {
      return hn::IfThenElse(hn::Or(hn::Lt(a, b), hn::IsNaN(a)), a, b);
    }
  }
};

struct Max {
  template <class V>
  static V Apply(V a, V b) {
    if constexpr (std::is_integral_v<hn::TFromV<V>>) {
      return hn::Max(a, b);
    } else {
      return hn::IfThenElse(hn::Or(hn::Gt(a, b), hn::IsNaN(a)), a, b);
    }
  }
};

template <class Op, typename T>
class Reducer {
 public:
  using Wide = typename Lanes<T>::Wide;

  Reducer(T* dst, absl::Span<const void* const> sources, bool average)
      : dst_(dst), sources_(sources), average_(average) {}

  void Run(int64_t n) const {
    const hn::ScalableTag<Wide> d;
    const auto step = static_cast<int64_t>(hn::Lanes(d));
    int64_t i = 0;
    for (; i + 4 * step <= n; i += 4 * step) ReduceBlock(d, i);
    for (; i < n; ++i) ReduceOne(hn::CappedTag<Wide, 1>(), i);
  }

 private:
  template <class D>
  void ReduceOne(D d, int64_t i) const {
    auto a = Lanes<T>::LoadOperand(d, At(0, i));
    for (size_t k = 1; k < sources_.size(); ++k) {
      a = Op::Apply(a, Lanes<T>::LoadOperand(d, At(k, i)));
    }
    Lanes<T>::Store(d, Finish(d, a), dst_ + i);
  }

  // Four vectors at once, a block: they share what it takes to go from source
  // to source.
  template <class D>
  void ReduceBlock(D d, int64_t i) const {
    auto a0 = LoadPart<0>(d, At(0, i));
    auto a1 = LoadPart<1>(d, At(0, i));
    auto a2 = LoadPart<2>(d, At(0, i));
    auto a3 = LoadPart<3>(d, At(0, i));
    for (size_t k = 1; k < sources_.size(); ++k) {
      const T* const source = At(k, i);
      a0 = Op::Apply(a0, LoadPart<0>(d, source));
      a1 = Op::Apply(a1, LoadPart<1>(d, source));
      a2 = Op::Apply(a2, LoadPart<2>(d, source));
      a3 = Op::Apply(a3, LoadPart<3>(d, source));
    }
    a0 = Finish(d, a0);
    a1 = Finish(d, a1);
    a2 = Finish(d, a2);
    a3 = Finish(d, a3);
    if constexpr (kInPairs) {
      StorePairs<0>(d, a0, a1, dst_ + i);
      StorePairs<1>(d, a2, a3, dst_ + i);
    } else {
      const auto step = static_cast<int64_t>(hn::Lanes(d));
      Lanes<T>::Store(d, a0, dst_ + i);
      Lanes<T>::Store(d, a1, dst_ + i + step);
      Lanes<T>::Store(d, a2, dst_ + i + 2 * step);
      Lanes<T>::Store(d, a3, dst_ + i + 3 * step);
    }
  }

  // Parts 0 and 1 of a block are its first half: either one vector of elements
  // and the next, or, in fewer instructions for bf16, the elements at even
  // places and those at odd ones.
  static constexpr bool kInPairs =
      std::is_same_v<T, BFloat16> && HWY_TARGET != HWY_SCALAR;
  template <int kPart, class D>
  static hn::Vec<D> LoadPart(D d, const T* block) {
    if constexpr (kInPairs) {
      const hn::RebindToUnsigned<D> d32;
      const auto pairs = hn::LoadU(d32, Pairs<kPart / 2>(d32, block));
      return hn::BitCast(d, kPart % 2 == 0
                                ? hn::ShiftLeft<16>(pairs)
                                : hn::And(pairs, hn::Set(d32, 0xffff0000)));
    } else {
      return Lanes<T>::LoadOperand(d, block + kPart * hn::Lanes(d));
    }
  }

  // Stores a half of a block of bf16.
  template <int kHalf, class D>
  static void StorePairs(D d, hn::Vec<D> even, hn::Vec<D> odd, T* block) {
    const hn::RebindToUnsigned<D> d32;
    const hn::Repartition<uint16_t, D> d16;
    const auto low = hn::ShiftRight<16>(Lanes<T>::RoundComputed(d, even));
    const auto high = Lanes<T>::RoundComputed(d, odd);
    const auto pairs =
        hn::OddEven(hn::BitCast(d16, high), hn::BitCast(d16, low));
    hn::StoreU(hn::BitCast(d32, pairs), d32, Pairs<kHalf>(d32, block));
  }

  // One vector of pairs of halves.
  template <int kIndex, class D32, typename Half>
  static auto* Pairs(D32 d32, Half* block) {
    using Pair =
        std::conditional_t<std::is_const_v<Half>, const uint32_t, uint32_t>;
    return reinterpret_cast<Pair*>(block) + kIndex * hn::Lanes(d32);
  }

  const T* At(size_t k, int64_t i) const {
    return static_cast<const T*>(sources_[k]) + i;
  }

  template <class D>
  hn::Vec<D> Finish(D d, hn::Vec<D> v) const {
    if constexpr (std::is_floating_point_v<Wide>) {
      if (average_) {
        return hn::Div(v, hn::Set(d, static_cast<Wide>(sources_.size())));
      }
    }
    return v;
  }

  T* const dst_;
  const absl::Span<const void* const> sources_;
  const bool average_;
};

template <class Op, typename T>
void ReduceAs(T* dst, absl::Span<const void* const> sources, int64_t n,
              bool average) {
  Reducer<Op, T>(dst, sources, average).Run(n);
}

// Not all targets multiply 64-bit integers.
void MultiplyI64(int64_t* dst, absl::Span<const void* const> sources,
                 int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    uint64_t product = 1;
    for (const void* source : sources) {
      product *= static_cast<const uint64_t*>(source)[i];
    }
    dst[i] = static_cast<int64_t>(product);
  }
}

void Reduce(ReduceOp op, DType dtype, void* to,
            absl::Span<const void* const> sources, int64_t n) {
  VisitDType(dtype, [=]<typename T>() HWY_ATTR {
    T* const dst = static_cast<T*>(to);
    switch (op) {
      case ReduceOp::kSum:
        return ReduceAs<Sum>(dst, sources, n, /*average=*/false);
      case ReduceOp::kAvg:
        return ReduceAs<Sum>(dst, sources, n, /*average=*/true);
      case ReduceOp::kMin:
        return ReduceAs<Min>(dst, sources, n, /*average=*/false);
      case ReduceOp::kMax:
        return ReduceAs<Max>(dst, sources, n, /*average=*/false);
      case ReduceOp::kProduct:
        if constexpr (std::is_same_v<T, int64_t>) {
          return MultiplyI64(dst, sources, n);
        } else {
          return ReduceAs<Product>(dst, sources, n, /*average=*/false);
        }
    }
  });
}

// --- Casts and sums of products ---------------------------------------------

// Calls visit with the type of a dtype that is computed in float.
template <class Visit>
void VisitFloats(DType dtype, Visit visit) {
  VisitDType(dtype, [=]<typename T>() HWY_ATTR {
    if constexpr (std::is_same_v<typename Lanes<T>::Wide, float>) {
      visit.template operator()<T>();
    }
  });
}

void Cast(DType to, void* dst, DType from, const void* src, int64_t n) {
  VisitFloats(to, [=]<typename To>() HWY_ATTR {
    VisitFloats(from, [=]<typename From>() HWY_ATTR {
      ForLanes<float>(n, [=](auto d, int64_t i) HWY_ATTR {
        const auto v = Lanes<From>::Load(d, static_cast<const From*>(src) + i);
        Lanes<To>::Store(d, v, static_cast<To*>(dst) + i);
      });
    });
  });
}

// Emulated vectors do not round f64 to infinity.
inline constexpr bool kRoundsF64 =
    HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128;

template <typename T>
void ScaleAs(T* x, double factor, int64_t n) {
  if constexpr (std::is_same_v<T, double> || !kRoundsF64) {
    for (int64_t i = 0; i < n; ++i) {
      using Wide = typename Lanes<T>::Wide;
      const double product =
          static_cast<double>(static_cast<Wide>(x[i])) * factor;
      x[i] = static_cast<T>(static_cast<Wide>(product));
    }
  } else {
    ForLanes<double>(n, [=](auto d64, int64_t i) HWY_ATTR {
      const hn::Rebind<float, decltype(d64)> d32;
      const auto v = hn::PromoteTo(d64, Lanes<T>::LoadOperand(d32, x + i));
      const auto product = hn::Mul(v, hn::Set(d64, factor));
      Lanes<T>::Store(d32, hn::DemoteTo(d32, product), x + i);
    });
  }
}

void Scale(DType dtype, void* x, double factor, int64_t n) {
  VisitDType(dtype, [=]<typename T>() HWY_ATTR {
    if constexpr (IsFloating(DTypeOf<T>)) {
      ScaleAs(static_cast<T*>(x), factor, n);
    }
  });
}

void AccumulateScaled(float* dst, DType from, const void* src, float scale,
                      int64_t n) {
  VisitFloats(from, [=]<typename From>() HWY_ATTR {
    ForLanes<float>(n, [=](auto d, int64_t i) HWY_ATTR {
      const auto v =
          Lanes<From>::LoadOperand(d, static_cast<const From*>(src) + i);
      const auto product = hn::Mul(v, hn::Set(d, scale));
      hn::StoreU(hn::Add(hn::LoadU(d, dst + i), product), d, dst + i);
    });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::internal {

HWY_EXPORT(Copy);
HWY_EXPORT(Reduce);
HWY_EXPORT(Cast);
HWY_EXPORT(Scale);
HWY_EXPORT(AccumulateScaled);

void CopyRow(void* dst, const void* src, int64_t bytes, bool past_caches) {
  // Beyond, some processors' memcpy is one slow instruction.
  constexpr int64_t kMaxMemcpy = 2048;
  if (bytes <= kMaxMemcpy) {
    std::memcpy(dst, src, bytes);
  } else {
    HWY_DYNAMIC_DISPATCH(Copy)(dst, src, bytes, past_caches);
  }
}

void ReduceRow(ReduceOp op, DType dtype, void* dst,
               absl::Span<const void* const> sources, int64_t n) {
  HWY_DYNAMIC_DISPATCH(Reduce)(op, dtype, dst, sources, n);
}

bool HasCastRow(DType to, DType from) {
  const auto is_float = [](DType dtype) {
    return dtype == DType::kF32 || dtype == DType::kBF16 ||
           dtype == DType::kF16;
  };
  return is_float(to) && is_float(from);
}

void CastRow(DType to, void* dst, DType from, const void* src, int64_t n) {
  HWY_DYNAMIC_DISPATCH(Cast)(to, dst, from, src, n);
}

void ScaleRow(DType dtype, void* x, double factor, int64_t n) {
  HWY_DYNAMIC_DISPATCH(Scale)(dtype, x, factor, n);
}

void AccumulateScaledRow(float* dst, DType from, const void* src, float scale,
                         int64_t n) {
  HWY_DYNAMIC_DISPATCH(AccumulateScaled)(dst, from, src, scale, n);
}

}  // namespace tessera::internal
#endif  // HWY_ONCE

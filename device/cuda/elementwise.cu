// Cast, scale, add and accumulate, of dense elements.

#include <type_traits>

#include "tessera/device/cuda/kernels.h"
#include "tessera/device/cuda/launch.h"
#include "tessera/device/cuda/numbers.h"

namespace tessera::internal {
namespace {

template <typename To, typename From>
struct CastBody {
  To* dst;
  const From* src;

  template <int kRun>
  TESSERA_HOST_DEVICE Pack<kRun, From> Load(int64_t i) const {
    return LoadPack<kRun>(src + i);
  }
  template <int kRun>
  TESSERA_HOST_DEVICE void Store(int64_t i, const Pack<kRun, From>& x) const {
    Pack<kRun, To> result;
    for (int k = 0; k < kRun; ++k) {
      result.values[k] = Convert<To>(x.values[k]);
    }
    StorePack(dst + i, result);
  }
};

template <typename To, typename From>
cudaError_t Cast(cudaStream_t stream, To* dst, const From* src, int64_t n) {
  const Touched touched[] = {Reads(src, n), Writes(dst, n)};
  constexpr int kPack = kPackOf<To, From>;
  return ForEach<kPack>({stream, "cast", touched},
                        PackingOf<kPack>(n, dst, src),
                        CastBody<To, From>{dst, src});
}

template <typename T>
struct ScaleBody {
  T* x;
  double factor;

  template <int kRun>
  TESSERA_HOST_DEVICE Pack<kRun, T> Load(int64_t i) const {
    return LoadPack<kRun>(x + i);
  }
  template <int kRun>
  TESSERA_HOST_DEVICE void Store(int64_t i, Pack<kRun, T> result) const {
    for (T& value : result.values) value = Scaled(value, factor);
    StorePack(x + i, result);
  }
};

template <typename T>
cudaError_t Scale(cudaStream_t stream, T* x, int64_t n, double factor) {
  const Touched touched[] = {Reads(x, n), Writes(x, n)};
  constexpr int kPack = kPackOf<T>;
  return ForEach<kPack>({stream, "scale", touched}, PackingOf<kPack>(n, x),
                        ScaleBody<T>{x, factor});
}

// Integers wrap.
template <typename T>
TESSERA_HOST_DEVICE T Sum(T a, T b) {
  if constexpr (kIsHalf<T>) {
    return Narrow<T>(Widen(a) + Widen(b));
  } else if constexpr (std::is_integral_v<T>) {
    using Bits = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Bits>(a) + static_cast<Bits>(b));
  } else {
    return a + b;
  }
}

// A run of the target, and one of what goes into it.
template <int kRun, typename To, typename From>
struct PackPair {
  Pack<kRun, To> dst;
  Pack<kRun, From> src;
};

template <typename T>
struct AddBody {
  T* dst;
  const T* src;

  template <int kRun>
  TESSERA_HOST_DEVICE PackPair<kRun, T, T> Load(int64_t i) const {
    return {LoadPack<kRun>(dst + i), LoadPack<kRun>(src + i)};
  }
  template <int kRun>
  TESSERA_HOST_DEVICE void Store(int64_t i, PackPair<kRun, T, T> x) const {
    for (int k = 0; k < kRun; ++k) {
      x.dst.values[k] = Sum(x.dst.values[k], x.src.values[k]);
    }
    StorePack(dst + i, x.dst);
  }
};

template <typename T>
cudaError_t Add(cudaStream_t stream, T* dst, const T* src, int64_t n) {
  const Touched touched[] = {Reads(dst, n), Reads(src, n), Writes(dst, n)};
  constexpr int kPack = kPackOf<T>;
  return ForEach<kPack>({stream, "add", touched}, PackingOf<kPack>(n, dst, src),
                        AddBody<T>{dst, src});
}

template <typename To, typename From>
struct AccumulateScaledBody {
  To* dst;
  const From* src;
  To scale;

  template <int kRun>
  TESSERA_HOST_DEVICE PackPair<kRun, To, From> Load(int64_t i) const {
    return {LoadPack<kRun>(dst + i), LoadPack<kRun>(src + i)};
  }
  template <int kRun>
  TESSERA_HOST_DEVICE void Store(int64_t i, PackPair<kRun, To, From> x) const {
    for (int k = 0; k < kRun; ++k) {
      x.dst.values[k] += Convert<To>(x.src.values[k]) * scale;
    }
    StorePack(dst + i, x.dst);
  }
};

template <typename To, typename From>
cudaError_t AccumulateScaled(cudaStream_t stream, To* dst, const From* src,
                             int64_t n, double scale) {
  const Touched touched[] = {Reads(dst, n), Reads(src, n), Writes(dst, n)};
  constexpr int kPack = kPackOf<To, From>;
  return ForEach<kPack>(
      {stream, "accumulate_scaled", touched}, PackingOf<kPack>(n, dst, src),
      AccumulateScaledBody<To, From>{dst, src, static_cast<To>(scale)});
}

}  // namespace

cudaError_t CastDense(cudaStream_t stream, DType to, void* dst, DType from,
                      const void* src, int64_t n) {
  return VisitDType(to, [&]<typename To>() {
    return VisitDType(from, [&]<typename From>() {
      if constexpr (!std::is_same_v<To, From> &&
                    CanCast(DTypeOf<To>, DTypeOf<From>)) {
        return Cast(stream, static_cast<To*>(dst),
                    static_cast<const From*>(src), n);
      }
      return cudaErrorInvalidValue;
    });
  });
}

cudaError_t ScaleDense(cudaStream_t stream, DType dtype, void* x, int64_t n,
                       double factor) {
  return VisitDType(dtype, [&]<typename T>() {
    if constexpr (IsFloating(DTypeOf<T>)) {
      return Scale(stream, static_cast<T*>(x), n, factor);
    }
    return cudaErrorInvalidValue;
  });
}

cudaError_t AddDense(cudaStream_t stream, DType dtype, void* dst,
                     const void* src, int64_t n) {
  return VisitDType(dtype, [&]<typename T>() {
    return Add(stream, static_cast<T*>(dst), static_cast<const T*>(src), n);
  });
}

cudaError_t AccumulateScaledDense(cudaStream_t stream, DType to, void* dst,
                                  DType from, const void* src, int64_t n,
                                  double scale) {
  return VisitDType(to, [&]<typename To>() {
    return VisitDType(from, [&]<typename From>() {
      if constexpr (std::is_floating_point_v<To> && IsFloating(DTypeOf<From>)) {
        return AccumulateScaled(stream, static_cast<To*>(dst),
                                static_cast<const From*>(src), n, scale);
      }
      return cudaErrorInvalidValue;
    });
  });
}

}  // namespace tessera::internal

// Sums over dense elements, and what norms are for.

#include <cmath>
#include <type_traits>

#include "tessera/device/cuda/kernels.h"
#include "tessera/device/cuda/launch.h"
#include "tessera/device/cuda/numbers.h"

namespace tessera::internal {
namespace {

// Calls visit with float or double.
template <typename Visit>
cudaError_t VisitWide(DType dtype, Visit visit) {
  return dtype == DType::kF32 ? visit.template operator()<float>()
                              : visit.template operator()<double>();
}

// --- Sums -------------------------------------------------------------------

struct SquareOf {
  template <typename T>
  TESSERA_HOST_DEVICE double operator()(T value) const {
    const auto wide = static_cast<double>(value);
    return wide * wide;
  }
};

struct IsNonFinite {
  template <typename T>
  TESSERA_HOST_DEVICE double operator()(T value) const {
    return value - value == 0 ? 0.0 : 1.0;
  }
};

// Adds term(x[i]). Item k is elements k * kPack and on, zeros behind the last:
// the same whether the array is aligned or not.
template <typename T, typename Term>
struct SumBody {
  static constexpr int kPack = kPackOf<T>;

  const T* x;
  int64_t n;
  bool is_aligned;
  Term term;

  TESSERA_HOST_DEVICE Pack<kPack, T> Load(int64_t item) const {
    const int64_t begin = item * kPack;
    if (is_aligned && begin + kPack <= n) return LoadPack<kPack>(x + begin);
    Pack<kPack, T> pack;
    for (int k = 0; k < kPack; ++k) {
      pack.values[k] = begin + k < n ? x[begin + k] : T{0};
    }
    return pack;
  }
  TESSERA_HOST_DEVICE double Add(double sum, const Pack<kPack, T>& pack) const {
    for (T value : pack.values) sum += term(value);
    return sum;
  }
};

template <typename T, typename Term>
cudaError_t AddTerms(cudaStream_t stream, const char* name, const T* x,
                     int64_t n, double* scratch, double* sum) {
  using Body = SumBody<T, Term>;
  constexpr int kPack = Body::kPack;
  const Touched touched[] = {Reads(x, n), Reads(sum, 1), Writes(sum, 1),
                             Writes(scratch, kSumBlocks)};
  return AddSum({stream, name, touched}, (n + kPack - 1) / kPack,
                Body{x, n, IsAligned<kPack>(x, sizeof(T)), Term()}, scratch,
                sum);
}

// --- Clipping ---------------------------------------------------------------

// One number: 1 where nothing is scaled.
struct ClipFactorBody {
  const double* squares;
  double max_norm;
  double* factor;

  template <int kRun>
  TESSERA_HOST_DEVICE double Load(int64_t) const {
    return *squares;
  }
  template <int kRun>
  TESSERA_HOST_DEVICE void Store(int64_t, double sum) const {
    const double wanted = max_norm / (std::sqrt(sum) + 1e-6);
    *factor = sum - sum == 0 && wanted < 1.0 ? wanted : 1.0;
  }
};

// Where the factor is 1, nothing is touched.
template <typename T>
struct ClipBody {
  T* x;
  const double* factor;

  template <int kRun>
  TESSERA_HOST_DEVICE Pack<kRun, T> Load(int64_t i) const {
    return *factor < 1.0 ? LoadPack<kRun>(x + i) : Pack<kRun, T>();
  }
  template <int kRun>
  TESSERA_HOST_DEVICE void Store(int64_t i, Pack<kRun, T> result) const {
    const double by = *factor;
    if (by >= 1.0) return;
    for (T& value : result.values) value = Scaled(value, by);
    StorePack(x + i, result);
  }
};

}  // namespace

cudaError_t AddSquaresDense(cudaStream_t stream, DType dtype, const void* x,
                            int64_t n, double* scratch, double* sum) {
  return VisitWide(dtype, [&]<typename T>() {
    return AddTerms<T, SquareOf>(stream, "add_squares",
                                 static_cast<const T*>(x), n, scratch, sum);
  });
}

cudaError_t CountNonFiniteDense(cudaStream_t stream, DType dtype, const void* x,
                                int64_t n, double* scratch, double* count) {
  return VisitWide(dtype, [&]<typename T>() {
    return AddTerms<T, IsNonFinite>(stream, "count_non_finite",
                                    static_cast<const T*>(x), n, scratch,
                                    count);
  });
}

cudaError_t ClipDense(cudaStream_t stream, DType dtype, void* x, int64_t n,
                      const double* squares, double max_norm, double* scratch) {
  const Touched sum_and_factor[] = {Reads(squares, 1), Writes(scratch, 1)};
  const cudaError_t error = ForEach<1>(
      {stream, "clip_factor", sum_and_factor}, PackingOf<1>(1, scratch),
      ClipFactorBody{squares, max_norm, scratch});
  if (error != cudaSuccess) return error;
  return VisitWide(dtype, [&]<typename T>() {
    auto* const elements = static_cast<T*>(x);
    const Touched touched[] = {Reads(scratch, 1), Reads(elements, n),
                               Writes(elements, n)};
    constexpr int kPack = kPackOf<T>;
    return ForEach<kPack>({stream, "clip_to_norm", touched},
                          PackingOf<kPack>(n, elements),
                          ClipBody<T>{elements, scratch});
  });
}

}  // namespace tessera::internal

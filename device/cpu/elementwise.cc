#include "tessera/device/cpu/elementwise.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>

#include "absl/container/inlined_vector.h"

namespace tessera {
namespace {

// --- Element types ----------------------------------------------------------

template <typename T>
inline constexpr bool kIsHalf =
    std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>;

// What T is computed in.
template <typename T>
using Wide = std::conditional_t<kIsHalf<T>, float, T>;

template <typename To, typename From>
inline constexpr bool kCanCast = IsFloating(DTypeOf<To>) ||
                                 (!IsFloating(DTypeOf<From>) &&
                                  sizeof(To) >= sizeof(From));

// Of the two floats around `value` the one with an odd last bit, or `value`
// where it is a float. Rounding that to a half gives what rounding `value`
// itself does; going through the nearest float would round twice.
float RoundToOdd(double value) {
  const float nearest = static_cast<float>(value);
  const auto bits = std::bit_cast<uint32_t>(nearest);
  if (static_cast<double>(nearest) == value || std::isnan(value) ||
      (bits & 1) != 0) {
    return nearest;
  }
  const bool above = std::fabs(static_cast<double>(nearest)) > std::fabs(value);
  return std::bit_cast<float>(above ? bits - 1 : bits + 1);
}

// A double that rounds to a half as `value` does.
double DoubleForHalf(int64_t value) {
  constexpr int64_t kExact = int64_t{1} << 53;
  if (value >= -kExact && value <= kExact) return static_cast<double>(value);
  // Halves, and the middles between them, are multiples of 2^16 up here: of
  // the low bits only matters whether there are any.
  const int64_t low = value & 0xffff;
  return static_cast<double>(value - low + (low != 0 ? 0x8000 : 0));
}

// `value` as a To, rounded once.
template <typename To, typename From>
To Convert(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (kIsHalf<From>) {
    return Convert<To>(static_cast<float>(value));
  } else if constexpr (!kIsHalf<To>) {
    return static_cast<To>(value);
  } else if constexpr (std::is_same_v<From, float>) {
    return To(value);
  } else if constexpr (std::is_same_v<From, int64_t>) {
    return To(RoundToOdd(DoubleForHalf(value)));
  } else {
    return To(RoundToOdd(value));
  }
}

// --- Strided views ----------------------------------------------------------

template <typename T>
using PerView = absl::InlinedVector<T, 4>;

// One dim that several views of one shape share.
struct Loop {
  int64_t extent;
  PerView<int64_t> strides;  // in elements
};

// True if `outer` goes on where `inner` ends, in every view.
bool Continues(const Loop& outer, const Loop& inner) {
  for (size_t v = 0; v < inner.strides.size(); ++v) {
    if (outer.strides[v] != inner.strides[v] * inner.extent) return false;
  }
  return true;
}

// The loops over the elements of `first` and `rest`, innermost first: at least
// one, and no more than it takes. Views are of one shape with elements.
absl::InlinedVector<Loop, 4> LoopsOver(const TensorView& first,
                                       absl::Span<const TensorView> rest) {
  absl::InlinedVector<Loop, 4> loops;
  for (int dim = first.shape().num_dims() - 1; dim >= 0; --dim) {
    Loop loop = {first.shape().extent(dim), {first.strides()[dim]}};
    if (loop.extent == 1) continue;
    for (const TensorView& view : rest) {
      loop.strides.push_back(view.strides()[dim]);
    }
    if (!loops.empty() && Continues(loop, loops.back())) {
      loops.back().extent *= loop.extent;
    } else {
      loops.push_back(std::move(loop));
    }
  }
  // The stride of a single element does not matter; 1 is the fast one.
  if (loops.empty()) loops.push_back({1, PerView<int64_t>(1 + rest.size(), 1)});
  return loops;
}

// A run of elements in every view.
template <typename T>
struct Row {
  PerView<T*> data;
  absl::Span<const int64_t> strides;  // one per view
  int64_t length;
};

// Calls visit(row) for rows that cover the views, all of dtype T and one
// shape.
template <typename T, typename Visit>
void ForEachRow(const TensorView& first, absl::Span<const TensorView> rest,
                Visit visit) {
  if (first.num_elements() == 0) return;
  const auto loops = LoopsOver(first, rest);
  Row<T> row = {{first.as<T>()}, loops.front().strides, loops.front().extent};
  for (const TensorView& view : rest) row.data.push_back(view.as<T>());

  const auto move = [&row](const Loop& loop, int64_t steps) {
    for (size_t v = 0; v < row.data.size(); ++v) {
      row.data[v] += steps * loop.strides[v];
    }
  };
  Dims index(loops.size(), 0);
  size_t level = 1;
  do {
    visit(static_cast<const Row<T>&>(row));
    for (level = 1; level < loops.size(); ++level) {
      const Loop& loop = loops[level];
      if (++index[level] < loop.extent) {
        move(loop, 1);
        break;
      }
      move(loop, 1 - loop.extent);
      index[level] = 0;
    }
  } while (level < loops.size());
}

// Calls f(i, i * stride) for i in [0, n). Inlined, so that the dense case
// vectorises.
template <typename F>
inline void ForStrided(int64_t n, int64_t stride, F f) {
  if (stride == 1) {
    for (int64_t i = 0; i < n; ++i) f(i, i);
  } else {
    for (int64_t i = 0; i < n; ++i) f(i, i * stride);
  }
}

// --- Reductions -------------------------------------------------------------

// Integers wrap: signed overflow is undefined, so they go unsigned.
template <typename T>
using Wrapping =
    typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>,
                                std::type_identity<T>>::type;

struct Sum {
  template <typename T>
  static T Apply(T a, T b) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) +
                          static_cast<Wrapping<T>>(b));
  }
};

struct Product {
  template <typename T>
  static T Apply(T a, T b) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) *
                          static_cast<Wrapping<T>>(b));
  }
};

// In Min and Max `a != a` says that a is NaN; where b is, it is taken.
struct Min {
  template <typename T>
  static T Apply(T a, T b) {
    return a < b || a != a ? a : b;
  }
};

struct Max {
  template <typename T>
  static T Apply(T a, T b) {
    return a > b || a != a ? a : b;
  }
};

// Reduces row.data[1], row.data[2], ... into row.data[0], a block at a time: a
// block is stored when every source of it has been read, so the target may be
// one of them.
template <typename Op, typename T>
void ReduceRow(const Row<T>& row, bool average) {
  constexpr int64_t kBlock = 512;
  const int num_sources = static_cast<int>(row.data.size()) - 1;
  Wide<T> block[kBlock];
  for (int64_t begin = 0; begin < row.length; begin += kBlock) {
    const int64_t n = std::min(kBlock, row.length - begin);
    const auto at = [&](int v) { return row.data[v] + begin * row.strides[v]; };
    ForStrided(n, row.strides[1], [&block, src = at(1)](int64_t i, int64_t j) {
      block[i] = Convert<Wide<T>>(src[j]);
    });
    for (int v = 2; v <= num_sources; ++v) {
      ForStrided(n, row.strides[v],
                 [&block, src = at(v)](int64_t i, int64_t j) {
                   block[i] = Op::Apply(block[i], Convert<Wide<T>>(src[j]));
                 });
    }
    if (average) {
      const auto divisor = static_cast<Wide<T>>(num_sources);
      for (int64_t i = 0; i < n; ++i) block[i] /= divisor;
    }
    ForStrided(n, row.strides[0], [&block, dst = at(0)](int64_t i, int64_t j) {
      dst[j] = Convert<T>(block[i]);
    });
  }
}

template <typename Op>
void ReduceWith(const TensorView& dst, absl::Span<const TensorView> sources,
                bool average = false) {
  VisitDType(dst.dtype(), [&]<typename T>() {
    ForEachRow<T>(dst, sources, [average](const Row<T>& row) {
      ReduceRow<Op>(row, average);
    });
  });
}

}  // namespace

void FillElements(const TensorView& dst, double value) {
  VisitDType(dst.dtype(), [&]<typename T>() {
    const T element = Convert<T>(value);
    ForEachRow<T>(dst, {}, [element](const Row<T>& row) {
      ForStrided(row.length, row.strides[0],
                 [element, out = row.data[0]](int64_t, int64_t j) {
                   out[j] = element;
                 });
    });
  });
}

void CopyElements(const TensorView& dst, const TensorView& src) {
  if (dst.data() == src.data()) return;  // one view
  VisitDType(dst.dtype(), [&]<typename T>() {
    ForEachRow<T>(dst, absl::MakeConstSpan(&src, 1), [](const Row<T>& row) {
      T* const out = row.data[0];
      const T* const in = row.data[1];
      if (row.strides[0] == 1 && row.strides[1] == 1) {
        std::memcpy(out, in, row.length * sizeof(T));
        return;
      }
      for (int64_t i = 0; i < row.length; ++i) {
        out[i * row.strides[0]] = in[i * row.strides[1]];
      }
    });
  });
}

void CastElements(const TensorView& dst, const TensorView& src) {
  const int64_t n = dst.num_elements();
  VisitDType(dst.dtype(), [&]<typename To>() {
    VisitDType(src.dtype(), [&]<typename From>() {
      if constexpr (kCanCast<To, From>) {
        To* const out = dst.as<To>();
        const From* const in = src.as<From>();
        for (int64_t i = 0; i < n; ++i) out[i] = Convert<To>(in[i]);
      }
    });
  });
}

void ScaleElements(const TensorView& x, double factor) {
  VisitDType(x.dtype(), [&]<typename T>() {
    if constexpr (IsFloating(DTypeOf<T>)) {
      ForEachRow<T>(x, {}, [factor](const Row<T>& row) {
        ForStrided(row.length, row.strides[0],
                   [factor, data = row.data[0]](int64_t, int64_t j) {
                     const double product = Convert<double>(data[j]) * factor;
                     data[j] = Convert<T>(static_cast<Wide<T>>(product));
                   });
      });
    }
  });
}

void AddElements(const TensorView& dst, const TensorView& src) {
  const int64_t n = dst.num_elements();
  VisitDType(dst.dtype(), [&]<typename T>() {
    T* const out = dst.as<T>();
    const T* const in = src.as<T>();
    for (int64_t i = 0; i < n; ++i) {
      out[i] = Convert<T>(
          Sum::Apply(Convert<Wide<T>>(out[i]), Convert<Wide<T>>(in[i])));
    }
  });
}

void AccumulateScaledElements(const TensorView& dst, const TensorView& src,
                              double scale) {
  const int64_t n = dst.num_elements();
  VisitDType(dst.dtype(), [&]<typename T>() {
    VisitDType(src.dtype(), [&]<typename From>() {
      if constexpr (std::is_floating_point_v<T> && IsFloating(DTypeOf<From>)) {
        T* const out = dst.as<T>();
        const From* const in = src.as<From>();
        const T factor = static_cast<T>(scale);
        for (int64_t i = 0; i < n; ++i) out[i] += Convert<T>(in[i]) * factor;
      }
    });
  });
}

void ReduceElements(ReduceOp op, const TensorView& dst,
                    absl::Span<const TensorView> sources) {
  switch (op) {
    case ReduceOp::kSum:
      return ReduceWith<Sum>(dst, sources);
    case ReduceOp::kAvg:
      return ReduceWith<Sum>(dst, sources, /*average=*/true);
    case ReduceOp::kMin:
      return ReduceWith<Min>(dst, sources);
    case ReduceOp::kMax:
      return ReduceWith<Max>(dst, sources);
    case ReduceOp::kProduct:
      return ReduceWith<Product>(dst, sources);
  }
}

}  // namespace tessera

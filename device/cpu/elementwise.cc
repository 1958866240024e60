#include "tessera/device/cpu/elementwise.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "absl/container/fixed_array.h"
#include "tessera/device/cpu/row_kernels.h"
#include "tessera/device/loops.h"
#include "tessera/device/round_to_half.h"

namespace tessera {
namespace {

using internal::ForEachRow;
using internal::PerView;
using internal::Row;

// --- Element types ----------------------------------------------------------

template <typename T>
inline constexpr bool kIsHalf =
    std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>;

// What T is computed in.
template <typename T>
using Wide = std::conditional_t<kIsHalf<T>, float, T>;

// `value` as a To, rounded once.
template <typename To, typename From>
To Convert(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (kIsHalf<From>) {
    return Convert<To>(static_cast<float>(value));
  } else if constexpr (kIsHalf<To>) {
    return To(internal::FloatForHalf(value));
  } else {
    return static_cast<To>(value);
  }
}

// --- Rows -------------------------------------------------------------------

template <typename T>
void FillRow(const Row<T>& row, T element) {
  T* const out = row.data[0];
  // Dense, a block is filled and copied on.
  constexpr int64_t kBlock = 4096 / sizeof(T);
  const int64_t head =
      row.IsDense() ? std::min(row.length, kBlock) : row.length;
  for (int64_t i = 0; i < head; ++i) out[i * row.strides[0]] = element;
  for (int64_t i = head; i < row.length; i += head) {
    std::memcpy(out + i, out, std::min(head, row.length - i) * sizeof(T));
  }
}

template <typename T>
void ScaleRow(const Row<T>& row, double factor) {
  if (row.IsDense()) {
    return internal::ScaleRow(DTypeOf<T>, row.data[0], factor, row.length);
  }
  for (int64_t i = 0; i < row.length; ++i) {
    internal::ScaleRow(DTypeOf<T>, row.data[0] + i * row.strides[0], factor, 1);
  }
}

// Reduces row.data[1], row.data[2], ... into row.data[0].
template <typename T>
void ReduceDenseRow(ReduceOp op, const Row<T>& row) {
  const PerView<const void*> sources(row.data.begin() + 1, row.data.end());
  internal::ReduceRow(op, DTypeOf<T>, row.data[0], sources, row.length);
}

// The same by way of dense blocks. A block is stored when every source of it
// has been read, so the target may be one of them.
template <typename T>
void ReduceStridedRow(ReduceOp op, const Row<T>& row) {
  constexpr int64_t kBlock = 64;
  const size_t num_views = row.data.size();
  absl::FixedArray<std::aligned_storage_t<sizeof(T), alignof(T)>, 33 * kBlock>
      memory(num_views * kBlock);
  const PerView<int64_t> dense(num_views, 1);
  Row<T> blocks = {{}, dense, 0};
  for (size_t v = 0; v < num_views; ++v) {
    blocks.data.push_back(reinterpret_cast<T*>(&memory[v * kBlock]));
  }
  for (int64_t begin = 0; begin < row.length; begin += kBlock) {
    blocks.length = std::min(kBlock, row.length - begin);
    for (size_t v = 1; v < num_views; ++v) {
      for (int64_t i = 0; i < blocks.length; ++i) {
        blocks.data[v][i] = row.data[v][(begin + i) * row.strides[v]];
      }
    }
    ReduceDenseRow(op, blocks);
    for (int64_t i = 0; i < blocks.length; ++i) {
      row.data[0][(begin + i) * row.strides[0]] = blocks.data[0][i];
    }
  }
}

}  // namespace

void FillElements(const TensorView& dst, double value) {
  VisitDType(dst.dtype(), [&]<typename T>() {
    const T element = Convert<T>(value);
    ForEachRow<T>(dst, {},
                  [element](const Row<T>& row) { FillRow(row, element); });
  });
}

void CastElements(const TensorView& dst, const TensorView& src) {
  const int64_t n = dst.num_elements();
  if (dst.dtype() == src.dtype()) {
    return CopyElements(dst.Flattened(), src.Flattened());
  }
  if (internal::HasCastRow(dst.dtype(), src.dtype())) {
    return internal::CastRow(dst.dtype(), dst.data(), src.dtype(), src.data(),
                             n);
  }
  VisitDType(dst.dtype(), [&]<typename To>() {
    VisitDType(src.dtype(), [&]<typename From>() {
      if constexpr (CanCast(DTypeOf<To>, DTypeOf<From>)) {
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
      ForEachRow<T>(x, {},
                    [factor](const Row<T>& row) { ScaleRow(row, factor); });
    }
  });
}

void AddElements(const TensorView& dst, const TensorView& src) {
  const std::array<const void*, 2> sources = {dst.data(), src.data()};
  internal::ReduceRow(ReduceOp::kSum, dst.dtype(), dst.data(), sources,
                      dst.num_elements());
}

void AccumulateScaledElements(const TensorView& dst, const TensorView& src,
                              double scale) {
  const int64_t n = dst.num_elements();
  if (internal::HasCastRow(dst.dtype(), src.dtype())) {
    return internal::AccumulateScaledRow(
        dst.as<float>(), src.dtype(), src.data(), static_cast<float>(scale), n);
  }
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
  VisitDType(dst.dtype(), [&]<typename T>() {
    ForEachRow<T>(dst, sources, [op](const Row<T>& row) {
      if (row.IsDense()) return ReduceDenseRow(op, row);
      ReduceStridedRow(op, row);
    });
  });
}

}  // namespace tessera

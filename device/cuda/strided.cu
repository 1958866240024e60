// Fill, copy and scale, of elements with strides. Fill and copy know elements
// by their size only.

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tessera/device/cuda/divisor.h"
#include "tessera/device/cuda/kernels.h"
#include "tessera/device/cuda/launch.h"
#include "tessera/device/cuda/numbers.h"

namespace tessera::internal {
namespace {

// Bytes that are moved at once.
template <int kBytes>
using Unit = std::conditional_t<
    kBytes == 2, uint16_t,
    std::conditional_t<
        kBytes == 4, uint32_t,
        std::conditional_t<kBytes == 8, uint64_t, Pack<2, uint64_t>>>>;

// Calls visit with Unit<bytes>.
template <typename Visit>
cudaError_t VisitUnit(int bytes, Visit visit) {
  switch (bytes) {
    case 2:
      return visit.template operator()<Unit<2>>();
    case 4:
      return visit.template operator()<Unit<4>>();
    case 8:
      return visit.template operator()<Unit<8>>();
    default:
      return visit.template operator()<Unit<16>>();
  }
}

// --- Boxes of units ---------------------------------------------------------

// True if rows of the box are whole units, and each begins where a unit may.
// `addresses`: the bits of all arrays' addresses, or-ed.
bool HoldsUnits(const Box& box, int64_t element_bytes, uintptr_t addresses,
                int unit_bytes) {
  uint64_t bits = addresses | static_cast<uint64_t>(box.extents[0]) *
                                  static_cast<uint64_t>(element_bytes);
  for (int d = 1; d < box.num_loops; ++d) {
    for (int64_t stride : box.strides[d]) {
      bits |= static_cast<uint64_t>(stride * element_bytes);
    }
  }
  return bits % unit_bytes == 0;
}

// The greatest unit that serves the box's arrays, the first `num_arrays`.
int UnitBytesOf(const Box& box, int num_arrays, int element_bytes,
                uintptr_t addresses) {
  for (int array = 0; array < num_arrays; ++array) {
    if (box.strides[0][array] != 1) return element_bytes;
  }
  int unit_bytes = kAccessBytes;
  while (unit_bytes > element_bytes &&
         !HoldsUnits(box, element_bytes, addresses, unit_bytes)) {
    unit_bytes /= 2;
  }
  return unit_bytes;
}

// The same box of units of so many elements.
Box InUnits(Box box, int64_t elements) {
  if (elements == 1) return box;
  box.extents[0] /= elements;
  for (int d = 1; d < box.num_loops; ++d) {
    for (int64_t& stride : box.strides[d]) stride /= elements;
  }
  return box;
}

// Where the items of a box of up to kLoops loops lie.
template <int kLoops>
class BoxIndex {
 public:
  explicit BoxIndex(const Box& box) {
    for (int d = 0; d < box.num_loops; ++d) {
      size_ *= box.extents[d];
      extents_[d] = Divisor(box.extents[d]);
      for (int array = 0; array < kBoxArrays; ++array) {
        strides_[d][array] = box.strides[d][array];
        spans_[array] += (box.extents[d] - 1) * box.strides[d][array];
      }
    }
  }

  int64_t size() const { return size_; }
  // Elements from the first item to the last.
  int64_t SpanOf(int array) const { return spans_[array]; }

  // Of item i, the innermost loop's index first.
  TESSERA_HOST_DEVICE int64_t OffsetOf(int64_t i, int array) const {
    auto rest = static_cast<uint32_t>(i);
    int64_t offset = 0;
    for (int d = 0; d < kLoops - 1; ++d) {
      const uint32_t outer = extents_[d].Quotient(rest);
      const uint32_t index = rest - outer * extents_[d].divisor();
      offset += index * strides_[d][array];
      rest = outer;
    }
    return offset + rest * strides_[kLoops - 1][array];
  }

 private:
  // Loops that the box has not are of one index.
  Divisor extents_[kLoops];
  int64_t strides_[kLoops][kBoxArrays] = {};
  int64_t size_ = 1;
  int64_t spans_[kBoxArrays] = {1, 1};
};

// Calls visit with the index of the box: most boxes have two loops.
template <typename Visit>
cudaError_t VisitIndex(const Box& box, Visit visit) {
  if (box.num_loops <= 2) return visit(BoxIndex<2>(box));
  return visit(BoxIndex<kBoxLoops>(box));
}

// One item after the other.
template <int kLoops>
Packing ItemsOf(const BoxIndex<kLoops>& index) {
  return {index.size(), 0, index.size(), 1};
}

// --- Fill -------------------------------------------------------------------

struct Nothing {};

template <typename T>
T ElementOf(const Pattern& pattern) {
  T element;
  std::memcpy(&element, pattern.bytes, sizeof(T));
  return element;
}

template <typename T>
struct FillDenseBody {
  T* dst;
  T element;

  template <int kRun>
  TESSERA_HOST_DEVICE Nothing Load(int64_t) const {
    return {};
  }
  template <int kRun>
  TESSERA_HOST_DEVICE void Store(int64_t i, Nothing) const {
    Pack<kRun, T> pack;
    for (T& value : pack.values) value = element;
    StorePack(dst + i, pack);
  }
};

template <typename U, typename Index>
struct FillBoxBody {
  U* dst;
  Index index;
  U unit;

  template <int kRun>
  TESSERA_HOST_DEVICE Nothing Load(int64_t) const {
    return {};
  }
  template <int kRun>
  TESSERA_HOST_DEVICE void Store(int64_t i, Nothing) const {
    dst[index.OffsetOf(i, 0)] = unit;
  }
};

// --- Copy -------------------------------------------------------------------

template <typename U, typename Index>
struct CopyBoxBody {
  U* dst;
  const U* src;
  Index index;

  template <int kRun>
  TESSERA_HOST_DEVICE U Load(int64_t i) const {
    return src[index.OffsetOf(i, 1)];
  }
  template <int kRun>
  TESSERA_HOST_DEVICE void Store(int64_t i, const U& unit) const {
    dst[index.OffsetOf(i, 0)] = unit;
  }
};

// --- Scale ------------------------------------------------------------------

// Items are packs of kPack elements.
template <typename T, int kPack, typename Index>
struct ScaleBoxBody {
  Pack<kPack, T>* x;
  Index index;
  double factor;

  template <int kRun>
  TESSERA_HOST_DEVICE Pack<kPack, T> Load(int64_t i) const {
    return x[index.OffsetOf(i, 0)];
  }
  template <int kRun>
  TESSERA_HOST_DEVICE void Store(int64_t i, Pack<kPack, T> result) const {
    for (T& value : result.values) value = Scaled(value, factor);
    x[index.OffsetOf(i, 0)] = result;
  }
};

template <typename T, int kPack>
cudaError_t ScalePacks(cudaStream_t stream, T* x, const Box& box,
                       double factor) {
  return VisitIndex(InUnits(box, kPack), [&]<typename Index>(Index index) {
    auto* const packs = reinterpret_cast<Pack<kPack, T>*>(x);
    const Touched touched[] = {Reads(packs, index.SpanOf(0)),
                               Writes(packs, index.SpanOf(0))};
    return ForEach<1>({stream, "scale", touched}, ItemsOf(index),
                      ScaleBoxBody<T, kPack, Index>{packs, index, factor});
  });
}

}  // namespace

cudaError_t FillDense(cudaStream_t stream, int element_bytes, void* dst,
                      int64_t n, const Pattern& pattern) {
  return VisitUnit(element_bytes, [&]<typename T>() {
    if constexpr (sizeof(T) < kAccessBytes) {
      auto* const elements = static_cast<T*>(dst);
      const Touched touched[] = {Writes(elements, n)};
      constexpr int kPack = kPackOf<T>;
      return ForEach<kPack>({stream, "fill", touched},
                            PackingOf<kPack>(n, elements),
                            FillDenseBody<T>{elements, ElementOf<T>(pattern)});
    }
    return cudaErrorInvalidValue;  // no element is that long
  });
}

cudaError_t FillBox(cudaStream_t stream, int element_bytes, void* dst,
                    const Box& box, const Pattern& pattern) {
  const int unit_bytes =
      UnitBytesOf(box, 1, element_bytes, reinterpret_cast<uintptr_t>(dst));
  const Box units = InUnits(box, unit_bytes / element_bytes);
  return VisitUnit(unit_bytes, [&]<typename U>() {
    return VisitIndex(units, [&]<typename Index>(Index index) {
      auto* const to = static_cast<U*>(dst);
      const Touched touched[] = {Writes(to, index.SpanOf(0))};
      return ForEach<1>(
          {stream, "fill", touched}, ItemsOf(index),
          FillBoxBody<U, Index>{to, index, ElementOf<U>(pattern)});
    });
  });
}

cudaError_t CopyBox(cudaStream_t stream, int element_bytes, void* dst,
                    const void* src, const Box& box) {
  const int unit_bytes = UnitBytesOf(
      box, 2, element_bytes,
      reinterpret_cast<uintptr_t>(dst) | reinterpret_cast<uintptr_t>(src));
  const Box units = InUnits(box, unit_bytes / element_bytes);
  return VisitUnit(unit_bytes, [&]<typename U>() {
    return VisitIndex(units, [&]<typename Index>(Index index) {
      auto* const to = static_cast<U*>(dst);
      const auto* const from = static_cast<const U*>(src);
      const Touched touched[] = {Reads(from, index.SpanOf(1)),
                                 Writes(to, index.SpanOf(0))};
      return ForEach<1>({stream, "copy", touched}, ItemsOf(index),
                        CopyBoxBody<U, Index>{to, from, index});
    });
  });
}

cudaError_t ScaleBox(cudaStream_t stream, DType dtype, void* x, const Box& box,
                     double factor) {
  return VisitDType(dtype, [&]<typename T>() {
    if constexpr (IsFloating(DTypeOf<T>)) {
      auto* const elements = static_cast<T*>(x);
      const int unit_bytes =
          UnitBytesOf(box, 1, sizeof(T), reinterpret_cast<uintptr_t>(x));
      return unit_bytes == kAccessBytes
                 ? ScalePacks<T, kPackOf<T>>(stream, elements, box, factor)
                 : ScalePacks<T, 1>(stream, elements, box, factor);
    }
    return cudaErrorInvalidValue;
  });
}

}  // namespace tessera::internal

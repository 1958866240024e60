#ifndef TESSERA_DEVICE_CUDA_PACK_H_
#define TESSERA_DEVICE_CUDA_PACK_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "tessera/device/cuda/host_device.h"

// Elements that one thread reads or writes at once.

namespace tessera::internal {

// The most bytes of one access.
inline constexpr int kAccessBytes = 16;

// Elements of the widest type in one access. Others take as many: all accesses
// of a warp are then dense.
template <typename... T>
inline constexpr int kPackOf = [] {
  size_t widest = 0;
  for (size_t bytes : {sizeof(T)...}) widest = bytes > widest ? bytes : widest;
  return static_cast<int>(kAccessBytes / widest);
}();

template <int kCount, typename T>
struct alignas(kCount * sizeof(T)) Pack {
  T values[kCount];
};

// The pack that begins at `from`. REQUIRES: aligned as a pack.
template <int kCount, typename T>
TESSERA_HOST_DEVICE Pack<kCount, T> LoadPack(const T* from) {
  return *reinterpret_cast<const Pack<kCount, T>*>(from);
}
template <int kCount, typename T>
TESSERA_HOST_DEVICE void StorePack(T* to, const Pack<kCount, T>& pack) {
  *reinterpret_cast<Pack<kCount, T>*>(to) = pack;
}

template <int kCount>
bool IsAligned(const void* address, size_t element_bytes) {
  return reinterpret_cast<uintptr_t>(address) % (kCount * element_bytes) == 0;
}

// How n elements are cut: `head` single ones, packs of `pack` elements, and
// single ones to the end.
struct Packing {
  int64_t n;
  int64_t head;
  int64_t num_packs;
  int pack;

  TESSERA_HOST_DEVICE int64_t num_singles() const {
    return n - num_packs * pack;
  }
  // The element that pack k begins with.
  TESSERA_HOST_DEVICE int64_t PackAt(int64_t k) const {
    return head + k * pack;
  }
  TESSERA_HOST_DEVICE int64_t SingleAt(int64_t k) const {
    return k < head ? k : k + num_packs * pack;
  }
};

// Packs that are aligned in all arrays, from the first element on where they
// are; all elements are single where arrays are out of step.
template <int kPack, typename... T>
Packing PackingOf(int64_t n, const T*... arrays) {
  for (int64_t head = 0; head < kPack && head <= n; ++head) {
    if ((IsAligned<kPack>(arrays + head, sizeof(T)) && ...)) {
      return {n, head, (n - head) / kPack, kPack};
    }
  }
  return {n, n, 0, kPack};
}

}  // namespace tessera::internal

#endif  // TESSERA_DEVICE_CUDA_PACK_H_

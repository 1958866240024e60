#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "tessera/device/cpu/elementwise.h"
#include "tessera/device/cpu/row_kernels.h"
#include "tessera/device/loops.h"

namespace tessera {
namespace {

using internal::Loop;
using internal::Loops;

// A loop of a copy. Strides are in bytes.
struct CopyLoop {
  int64_t extent = 1;
  int64_t dst = 0;
  int64_t src = 0;
};

// A copy as loops over units: runs of bytes that both sides have whole.
struct CopyPlan {
  int64_t unit = 0;  // bytes
  // Innermost first: the one along which dst is closest, then the one of the
  // others along which src is.
  absl::InlinedVector<CopyLoop, 4> loops;
};

CopyPlan PlanOf(const TensorView& dst, const TensorView& src) {
  const int64_t size = SizeOf(dst.dtype());
  const Loops loops = internal::LoopsOver(dst, absl::MakeConstSpan(&src, 1));
  CopyPlan plan = {size, {}};
  for (const Loop& loop : loops) {
    if (&loop == &loops.front() && loop.strides[0] == 1 &&
        loop.strides[1] == 1) {
      plan.unit *= loop.extent;
    } else {
      plan.loops.push_back(
          {loop.extent, loop.strides[0] * size, loop.strides[1] * size});
    }
  }
  plan.loops.resize(std::max<size_t>(plan.loops.size(), 2));
  const auto second = plan.loops.begin() + 1;
  const auto closest = std::min_element(
      second, plan.loops.end(), [](const CopyLoop& a, const CopyLoop& b) {
        return a.extent > 1 && (b.extent == 1 || a.src < b.src);
      });
  std::iter_swap(second, closest);
  return plan;
}

template <int kUnit>
void CopyUnit(std::byte* dst, const std::byte* src) {
  std::memcpy(dst, src, kUnit);
}

// A transposition of small units: in tiles, by way of a buffer. So each cache
// line is used whole while it is there, even where all lines of a tile compete
// for one place in the cache.
template <int kUnit>
void Transpose(std::byte* dst, const std::byte* src, const CopyLoop& inner,
               const CopyLoop& outer) {
  constexpr int64_t kTile = kUnit <= 4 ? 64 : 32;
  std::byte tile[kTile][kTile * kUnit];
  for (int64_t o = 0; o < outer.extent; o += kTile) {
    const int64_t rows = std::min(kTile, outer.extent - o);
    for (int64_t i = 0; i < inner.extent; i += kTile) {
      const int64_t columns = std::min(kTile, inner.extent - i);
      for (int64_t c = 0; c < columns; ++c) {
        const std::byte* const from = src + o * outer.src + (i + c) * inner.src;
        for (int64_t r = 0; r < rows; ++r) {
          CopyUnit<kUnit>(&tile[r][c * kUnit], from + r * outer.src);
        }
      }
      for (int64_t r = 0; r < rows; ++r) {
        std::byte* const to = dst + (o + r) * outer.dst + i * inner.dst;
        for (int64_t c = 0; c < columns; ++c) {
          CopyUnit<kUnit>(to + c * inner.dst, &tile[r][c * kUnit]);
        }
      }
    }
  }
}

// Copies units of two loops.
template <int kUnit>
void CopySmallUnits(std::byte* dst, const std::byte* src, const CopyLoop& inner,
                    const CopyLoop& outer) {
  if (outer.src < inner.src) {
    return Transpose<kUnit>(dst, src, inner, outer);
  }
  for (int64_t o = 0; o < outer.extent; ++o) {
    for (int64_t i = 0; i < inner.extent; ++i) {
      CopyUnit<kUnit>(dst + o * outer.dst + i * inner.dst,
                      src + o * outer.src + i * inner.src);
    }
  }
}

// Copies units of two loops that are no small ones.
void CopyRows(std::byte* dst, const std::byte* src, const CopyLoop& inner,
              const CopyLoop& outer, int64_t unit, bool past_caches) {
  // The fewer rows of src at a time, the better they are fetched ahead.
  const int64_t tile = outer.src < inner.src ? 8 : inner.extent;
  for (int64_t i = 0; i < inner.extent; i += tile) {
    for (int64_t o = 0; o < outer.extent; ++o) {
      for (int64_t c = i; c < std::min(i + tile, inner.extent); ++c) {
        internal::CopyRow(dst + o * outer.dst + c * inner.dst,
                          src + o * outer.src + c * inner.src, unit,
                          past_caches);
      }
    }
  }
}

void CopyUnits(std::byte* dst, const std::byte* src, const CopyPlan& plan,
               bool past_caches) {
  const CopyLoop& inner = plan.loops[0];
  const CopyLoop& outer = plan.loops[1];
  switch (plan.unit) {
    case 2:
      return CopySmallUnits<2>(dst, src, inner, outer);
    case 4:
      return CopySmallUnits<4>(dst, src, inner, outer);
    case 6:
      return CopySmallUnits<6>(dst, src, inner, outer);
    case 8:
      return CopySmallUnits<8>(dst, src, inner, outer);
    case 12:
      return CopySmallUnits<12>(dst, src, inner, outer);
    case 16:
      return CopySmallUnits<16>(dst, src, inner, outer);
    case 32:
      return CopySmallUnits<32>(dst, src, inner, outer);
    default:
      return CopyRows(dst, src, inner, outer, plan.unit, past_caches);
  }
}

// The loops from `level` on around the first two.
void CopyLevel(const CopyPlan& plan, size_t level, std::byte* dst,
               const std::byte* src, bool past_caches) {
  if (level < 2) return CopyUnits(dst, src, plan, past_caches);
  const CopyLoop& loop = plan.loops[level];
  for (int64_t i = 0; i < loop.extent; ++i) {
    CopyLevel(plan, level - 1, dst + i * loop.dst, src + i * loop.src,
              past_caches);
  }
}

}  // namespace

bool OutgrowsCaches(int64_t bytes) { return bytes >= (4 << 20); }

void CopyElements(const TensorView& dst, const TensorView& src) {
  CopyElements(dst, src, OutgrowsCaches(dst.num_bytes()));
}

void CopyElements(const TensorView& dst, const TensorView& src,
                  bool past_caches) {
  if (dst.num_elements() == 0) return;
  if (dst.data() == src.data()) return;  // one view
  const CopyPlan plan = PlanOf(dst, src);
  CopyLevel(plan, plan.loops.size() - 1, dst.as<std::byte>(),
            src.as<std::byte>(), past_caches);
}

}  // namespace tessera

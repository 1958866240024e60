// Included once for every instruction set: see Highway's README.

#if defined(TESSERA_DEVICE_CPU_FOR_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_DEVICE_CPU_FOR_LANES_INL_H_
#undef TESSERA_DEVICE_CPU_FOR_LANES_INL_H_
#else
#define TESSERA_DEVICE_CPU_FOR_LANES_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::internal {
namespace HWY_NAMESPACE {

// Calls visit(d, i) for all of [0, n), with a tag `d` for as many elements at
// `i` as it has lanes.
template <typename Wide, class Visit>
void ForLanes(int64_t n, Visit visit) {
  const ::hwy::HWY_NAMESPACE::ScalableTag<Wide> d;
  const auto step = static_cast<int64_t>(::hwy::HWY_NAMESPACE::Lanes(d));
  int64_t i = 0;
  for (; i + step <= n; i += step) visit(d, i);
  for (; i < n; ++i) visit(::hwy::HWY_NAMESPACE::CappedTag<Wide, 1>(), i);
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera::internal
HWY_AFTER_NAMESPACE();

#endif  // TESSERA_DEVICE_CPU_FOR_LANES_INL_H_

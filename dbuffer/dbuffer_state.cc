#include "tessera/dbuffer/dbuffer_state.h"

#include <algorithm>

#include "tessera/base/status_macros.h"

namespace tessera::internal {

TensorView DBufferState::View(Interval stretch) const {
  if (memory == nullptr) {
    return TensorView::Flat(nullptr, dtype, stretch.size());
  }
  return TensorView::Flat(memory, dtype, capacity.size())
      .Slice(0, {stretch.begin - capacity.begin, stretch.end - capacity.begin});
}

Interval DBufferState::StretchOf(int i) const {
  const int64_t begin = group->flat_layout().offset(i);
  const int64_t end =
      begin + group->tensor(i).layout.RegionOf(rank).num_elements();
  return {std::clamp(begin, range.begin, range.end),
          std::clamp(end, range.begin, range.end)};
}

Interval DBufferState::HeldOf(int i) const {
  const int64_t begin = group->flat_layout().offset(i);
  const Interval stretch = StretchOf(i);
  if (stretch.empty()) {
    const int64_t extent =
        group->tensor(i).layout.RegionOf(rank).num_elements();
    return {extent, extent};
  }
  return {stretch.begin - begin, stretch.end - begin};
}

absl::Status DBufferState::Fill(Interval stretch, double value,
                                Stream& stream) const {
  if (stretch.empty()) return absl::OkStatus();
  return stream.device().kernels().Fill(stream, View(stretch), value);
}

absl::Status DBufferState::FillPadding(Stream& stream) const {
  int64_t begin = range.begin;
  for (int i : group->flat_layout().memory_order()) {
    const Interval stretch = StretchOf(i);
    TESSERA_RETURN_IF_ERROR(Fill({begin, stretch.begin}, 0.0, stream));
    begin = stretch.end;
  }
  return Fill({begin, range.end}, 0.0, stream);
}

}  // namespace tessera::internal

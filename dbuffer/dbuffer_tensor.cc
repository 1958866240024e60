#include "tessera/dbuffer/dbuffer_tensor.h"

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tessera/base/status_macros.h"
#include "tessera/dbuffer/dbuffer_state.h"

namespace tessera {
namespace {

// What is held of a box of this shape as rows of it, or flat where that is not
// whole rows.
TensorView WithRows(const TensorView& flat, const Shape& box, Interval held) {
  Dims extents(box.extents().begin(), box.extents().end());
  const int64_t row = Granularity::Row().ElementsOf(box);
  if (extents.empty() ? held.empty()
                      : held.begin % row != 0 || held.end % row != 0) {
    return flat;
  }
  if (!extents.empty()) extents[0] = held.size() / row;
  return TensorView(flat.data(),
                    TensorMeta::Create(flat.dtype(), extents).value());
}

}  // namespace

absl::StatusOr<DBufferTensor::StatePtr> DBufferTensor::Buffer() const {
  StatePtr buffer = buffer_.lock();
  if (buffer == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("dbuffer: the buffer of tensor '", name(), "' is gone"));
  }
  return buffer;
}

absl::StatusOr<DBufferTensor::StatePtr> DBufferTensor::BufferWithMemory()
    const {
  TESSERA_ASSIGN_OR_RETURN(StatePtr buffer, Buffer());
  if (buffer->memory == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("dbuffer: the memory of tensor '", name(), "' on rank ",
                     buffer->rank, " is released, want it restored"));
  }
  return buffer;
}

absl::StatusOr<Layout> DBufferTensor::TensorLayout() const {
  TESSERA_ASSIGN_OR_RETURN(const StatePtr buffer, Buffer());
  return group_->TensorLayout(index_, buffer->dtype, buffer->placements);
}

absl::StatusOr<Interval> DBufferTensor::Held() const {
  TESSERA_ASSIGN_OR_RETURN(const StatePtr buffer, Buffer());
  return buffer->HeldOf(index_);
}

absl::StatusOr<TensorView> DBufferTensor::Local() const {
  TESSERA_ASSIGN_OR_RETURN(const StatePtr buffer, BufferWithMemory());
  return WithRows(
      buffer->View(buffer->StretchOf(index_)),
      group_->tensor(index_).layout.RegionOf(buffer->rank).LocalShape(),
      buffer->HeldOf(index_));
}

absl::StatusOr<ShardedTensor> DBufferTensor::Sharded() const {
  TESSERA_ASSIGN_OR_RETURN(const StatePtr buffer, BufferWithMemory());
  TESSERA_ASSIGN_OR_RETURN(Layout layout, TensorLayout());
  const TensorView local(buffer->View(buffer->StretchOf(index_)).data(),
                         layout.LocalMeta(buffer->rank));
  return ShardedTensor::Borrow(std::move(layout), buffer->rank, local);
}

}  // namespace tessera

#ifndef TESSERA_DBUFFER_CONVERSION_H_
#define TESSERA_DBUFFER_CONVERSION_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "tessera/comm/comm_set.h"
#include "tessera/dbuffer/buffer_group.h"
#include "tessera/dbuffer/buffer_placement.h"
#include "tessera/dbuffer/dbuffer_state.h"
#include "tessera/device/stream.h"
#include "tessera/tensor/tensor_view.h"

namespace tessera::internal {

// What changes along one mesh axis at a time.
struct AxisChange {
  int axis = 0;
  BufferPlacement from;
  BufferPlacement to;

  friend bool operator==(const AxisChange&, const AxisChange&) = default;
};

// How placements become others, in the order that DBuffer::ConvertTo
// documents. Pure. Each change is one of
//
//   R to Flat                 choosing a part
//   P(op) to Flat, to R       reduce-scatter, all-reduce
//   P(sum) to P(avg), back    scaling
//   Flat to R                 all-gather
//   Flat to P(sum)            identities around the part
//   R to P(op)                identities at all coordinates but 0, for sum and
//                             product; else nothing
//
// REQUIRES: group.Validate of both is OK.
std::vector<AxisChange> ChangesBetween(
    const BufferGroup& group, absl::Span<const BufferPlacement> source,
    absl::Span<const BufferPlacement> target);

// Brings the content of `held`, which `at` describes by placements and range,
// to `target` in the memory of `at`, change by change; `at` says what holds
// then. `held` may be the memory of `at` itself. Elsewhere it is only read:
// what communicates first writes to the memory of `at`, or, where that has no
// room before the last cut, to a workspace of the stream's device.
//
// REQUIRES: the target's range is inside the capacity of `at`, and so is the
// present one, where `held` is there.
absl::Status Convert(const TensorView& held,
                     absl::Span<const BufferPlacement> target, CommSet& comms,
                     Stream& stream, DBufferState& at);

}  // namespace tessera::internal

#endif  // TESSERA_DBUFFER_CONVERSION_H_

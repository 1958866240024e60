#ifndef TESSERA_PLACEMENT_STRIDED_SHARD_H_
#define TESSERA_PLACEMENT_STRIDED_SHARD_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tessera/mesh/device_mesh.h"
#include "tessera/placement/layout.h"
#include "tessera/placement/placement.h"
#include "tessera/tensor/tensor_meta.h"

namespace tessera {

// PyTorch's DTensor has no cutting orders. Axes that shard one tensor dim cut
// it in mesh-axis order, and where another axis further right cuts before an
// axis, that axis is a _StridedShard(dim, split_factor): split_factor is the
// number of pieces that those further right have made of the dim by then.
//
//   mesh dp=2,tp=4        [S(0)[1], S(0)[0]]
//   is in DTensor         [_StridedShard(0, split_factor=4), Shard(0)]
//
// These functions are for import and export only. Pure; thread-safe.
struct DTensorPlacement {
  Placement placement;
  int64_t split_factor = 1;  // above 1 for a _StridedShard; only with Shard

  friend bool operator==(const DTensorPlacement&,
                         const DTensorPlacement&) = default;
};

// One entry per mesh axis. ERRORS: Unimplemented for a ragged cut.
absl::StatusOr<std::vector<DTensorPlacement>> ToDTensor(const Layout& layout);

// The layout that DTensor's placements mean: the inverse of ToDTensor, but for
// the places of axes of size 1 in a cutting order, which it cannot tell.
// ERRORS: InvalidArgument for a split factor that no cutting order gives,
// naming the axis, or beside another placement than Shard; those of
// Layout::Create.
absl::StatusOr<Layout> FromDTensor(
    TensorMeta meta, DeviceMesh mesh,
    absl::Span<const DTensorPlacement> placements);

}  // namespace tessera

#endif  // TESSERA_PLACEMENT_STRIDED_SHARD_H_

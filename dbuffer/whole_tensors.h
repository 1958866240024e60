#ifndef TESSERA_DBUFFER_WHOLE_TENSORS_H_
#define TESSERA_DBUFFER_WHOLE_TENSORS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tessera/dbuffer/buffer_group.h"
#include "tessera/dbuffer/buffer_placement.h"
#include "tessera/placement/layout.h"
#include "tessera/tensor/dtype.h"

namespace tessera {

// Tensors of a flat buffer whole on one rank each, for work that needs whole
// matrices, as some optimizers do: redistribute from DBufferTensor::Sharded()
// to these layouts, work, and redistribute back.
//
//   TESSERA_ASSIGN_OR_RETURN(
//       const std::vector<Layout> whole,
//       WholeTensorLayouts(*group, DType::kF32, flat));
//   std::vector<Redistribution> moves;
//   for (int i = 0; i < group->num_tensors(); ++i) {
//     TESSERA_ASSIGN_OR_RETURN(const Layout cut,
//                              buffer.Tensor(i).TensorLayout());
//     moves.push_back({cut, whole[i]});
//   }
//   TESSERA_ASSIGN_OR_RETURN(const ManyPlan plan,
//                            PlanMany(moves, topology));

// An owner in [0, owners) for each size: the largest first, to whoever has
// least so far, the lower one where several have (Graham's LPT rule). So no
// owner has more than 4/3 - 1/(3 * owners) times the least possible
// maximum, nor more than an equal share and the largest size. Pure.
// REQUIRES: owners >= 1; sizes >= 0, their sum fits int64.
std::vector<int64_t> BalancedOwners(absl::Span<const int64_t> sizes,
                                    int64_t owners);

// For each tensor of the group, in order, the layout in `dtype` in which one
// coordinate of the axes that are Flat in `placements` holds it whole, and the
// others nothing; along all other axes it is as in TensorLayout. Tensors are
// balanced by the elements of their largest local shape; owners count in cut
// order, first cut first.
// ERRORS: InvalidArgument from BufferGroup::Validate, for a Partial placement,
// naming its axis: only what is reduced can be owned, or where no axis is Flat.
absl::StatusOr<std::vector<Layout>> WholeTensorLayouts(
    const BufferGroup& group, DType dtype,
    absl::Span<const BufferPlacement> placements);

}  // namespace tessera

#endif  // TESSERA_DBUFFER_WHOLE_TENSORS_H_

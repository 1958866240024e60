#ifndef TESSERA_DBUFFER_WHOLE_TENSORS_H_
#define TESSERA_DBUFFER_WHOLE_TENSORS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tessera/placement/layout.h"

namespace tessera {

// Tensors of a flat buffer whole on one rank each, for work that needs whole
// matrices, as some optimizers do: redistribute from DBufferTensor::Sharded()
// to these layouts, work, and redistribute back.
//
//   std::vector<Layout> cut;
//   for (int i = 0; i < group->num_tensors(); ++i) {
//     TESSERA_ASSIGN_OR_RETURN(Layout layout, buffer.Tensor(i).TensorLayout());
//     cut.push_back(layout);
//   }
//   TESSERA_ASSIGN_OR_RETURN(const std::vector<Layout> whole,
//                            WholeTensorLayouts(cut));
//   std::vector<Redistribution> moves;
//   for (size_t i = 0; i < cut.size(); ++i) moves.push_back({cut[i],
//   whole[i]}); TESSERA_ASSIGN_OR_RETURN(const ManyPlan plan,
//                            PlanMany(moves, topology));

// An owner in [0, owners) for each size: the largest first, to whoever has
// least so far, the lower one where several have (Graham's LPT rule). So no
// owner has more than 4/3 - 1/(3 * owners) times the least possible
// maximum, nor more than an equal share and the largest size. Pure.
// REQUIRES: owners >= 1; sizes >= 0, their sum fits int64.
std::vector<int64_t> BalancedOwners(absl::Span<const int64_t> sizes,
                                    int64_t owners);

// For each layout, in order, that of the same tensor whole: one coordinate of
// the axes that cut it raggedly holds all of it, the others nothing. Along all
// other axes, those that shard it among them, it is R, so that these replicas
// do the same work. Tensors that the same axes cut are balanced by their
// elements; owners count in the order in which the axes cut, the first slowest.
// A tensor that none cuts is R everywhere.
// ERRORS: InvalidArgument for a Partial layout: only what is reduced can be
// owned; for so many elements that cuts overflow.
absl::StatusOr<std::vector<Layout>> WholeTensorLayouts(
    absl::Span<const Layout> cut);

}  // namespace tessera

#endif  // TESSERA_DBUFFER_WHOLE_TENSORS_H_

#ifndef TESSERA_TESTING_REFERENCE_EXECUTOR_H_
#define TESSERA_TESTING_REFERENCE_EXECUTOR_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "tessera/redistribute/plan.h"
#include "tessera/tensor/tensor_view.h"

namespace tessera::testing {

// Applies `plan` to values, for all ranks at once, on the calling thread:
// reads `sources`, writes `targets`, one view per rank of the source's and of
// the target's mesh in row-major order of mesh coordinates, in host memory, any
// strides.
//
// Slow and obvious. A step gives each rank, element by element, what `after`
// says that it holds: elements are known by their place in the tensor, as
// Layout::RegionAt has it; they come from the rank itself or, where the step
// communicates, from wherever in its group they are, or, in an exchange between
// two meshes, on the mesh that is left; reductions go through
// ReduceElements in ascending group order. The bits are those of Execute on
// the local backend. There are no communicators, streams, views of pieces or
// offsets in messages that could be wrong.
//
// ERRORS: InvalidArgument for views that are not those of the layouts; for a
// step that does not begin with what ranks hold, or that wants an element of
// a rank which no rank of its group holds, naming step, rank and element.
absl::Status ExecuteReference(const Plan& plan,
                              absl::Span<const TensorView> sources,
                              absl::Span<const TensorView> targets);

}  // namespace tessera::testing

#endif  // TESSERA_TESTING_REFERENCE_EXECUTOR_H_

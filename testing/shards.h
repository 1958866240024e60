#ifndef TESSERA_TESTING_SHARDS_H_
#define TESSERA_TESTING_SHARDS_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tessera/placement/layout.h"
#include "tessera/tensor/tensor_meta.h"
#include "tessera/tensor/tensor_view.h"
#include "tessera/testing/host_tensor.h"

namespace tessera::testing {

// Whole tensors and the pieces of them that ranks hold, for tests of what moves
// them:
//
//   const HostTensor whole = Arange(from.meta());
//   TESSERA_ASSIGN_OR_RETURN(auto sources, Shards(whole, from));
//   ... // redistribute sources to targets, laid out as `to`
//   TESSERA_ASSIGN_OR_RETURN(HostTensor result, Reassemble(targets, to));
//   EXPECT_EQ(result, whole);
//
// Along a Partial axis a piece is what a fill makes of the value: for sum it is
// at coordinate 0 and the other coordinates hold -0.0 (0 of integers), for
// product 1; for avg, min and max all hold the value. Slow and obvious: element
// by element, all that a tensor has. Thread-safe.

// 0, 1, 2, ... in row-major order, rounded to the dtype.
HostTensor Arange(const TensorMeta& meta);

// The pieces that the ranks of the layout's mesh hold of `whole`: one per rank,
// in row-major order of mesh coordinates.
// ERRORS: InvalidArgument unless whole.meta() == layout.meta().
absl::StatusOr<std::vector<HostTensor>> Shards(const HostTensor& whole,
                                               const Layout& layout);

// The inverse of Shards: the tensor that the pieces mean. Partial axes are
// reduced one at a time, the last first, coordinates ascending.
// ERRORS: InvalidArgument unless there is one piece per rank of what the layout
// gives it; where replicas have other bits than each other, naming the element
// and two ranks.
absl::StatusOr<HostTensor> Reassemble(absl::Span<const HostTensor> pieces,
                                      const Layout& layout);

// Writes to `local`, the piece of `rank`, what value(number) says of the
// tensor's elements by their row-major number: on all ranks together the tensor
// of those values. Any strides.
// ERRORS: InvalidArgument unless local.meta() == layout.LocalMeta(rank).
absl::Status Fill(const Layout& layout, int rank, const TensorView& local,
                  absl::FunctionRef<double(int64_t number)> value);

}  // namespace tessera::testing

#endif  // TESSERA_TESTING_SHARDS_H_

#ifndef TESSERA_REDISTRIBUTE_EXCHANGE_H_
#define TESSERA_REDISTRIBUTE_EXCHANGE_H_

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "tessera/mesh/device_mesh.h"
#include "tessera/placement/layout.h"
#include "tessera/placement/region.h"
#include "tessera/redistribute/plan.h"
#include "tessera/tensor/index.h"
#include "tessera/tensor/tensor_view.h"

// What the messages of an exchange step are. Pure index arithmetic.
//
// `before` divides the tensor into cells, one per combination of coordinates
// along the axes that shard or cut it; the ranks that hold a cell differ in
// their coordinates along the axes that replicate. A rank keeps what it wants
// of the cell that it holds itself. Of any other cell it gets all that it
// wants from one holder.
//
// On one mesh that is the holder at the rank's own coordinates along the axes
// that `before` replicates, but for the turn axes: those behind the first axis
// of step.axes along which the cell lies elsewhere. With the slowest link named
// first, no turn makes a message slower. Along the turn axes the coordinates,
// as one number with the last axis fastest, are
//
//   sender = (receiver + sum of the receiver's coordinates along those
//             of step.axes that `before` shards or cuts) mod their number
//
// so that replicas share what they have to send: [S(0), R] -> [R, S(0)] on 4 x
// 4 ranks makes every rank send and receive at most one message. On a mesh of
// two axes, where pieces are even and the axes that replicate are named last,
// no rank sends more than the most that one receives.
//
// Between two meshes all replicas send in turn: the one whose number, over the
// axes that `before` replicates, is the receiver's row-major number in its own
// mesh mod the number of replicas.

namespace tessera::internal {

// One interval of global indices per tensor dim.
using Box = absl::InlinedVector<Interval, 4>;

// The axes along which an exchange may move elements, ascending. On one mesh:
// of each dim those of size above 1 that shard it in either layout, behind the
// longest common beginning of the two cutting orders; where a ragged cut
// differs, or shards beside one do, all that shard or cut in either. Between
// two meshes: all axes of before's mesh of size above 1.
MeshCoords ExchangeAxes(const Layout& before, const Layout& after);

// One message: all elements of a box. `peer` is a rank of the world.
struct BoxMessage {
  int peer;
  Box box;
  friend bool operator==(const BoxMessage&, const BoxMessage&) = default;
};

// What one rank does in an exchange. The k-th message that it sends to a peer
// is the k-th that the peer receives from it.
struct RankExchange {
  std::vector<Box> kept;  // held before and after
  std::vector<BoxMessage> sends;
  std::vector<BoxMessage> receives;
};

// REQUIRES: step.before and step.after are layouts without Partial of one
// tensor; on one mesh, step.axes are ExchangeAxes in some order.
// COST: in the number of pieces that share elements with what the rank holds,
// before or after, and of the ranks that hold them after.
RankExchange ExchangeOf(const Step& step, int rank);

// The most that a rank receives: elements, and the number of cells that they
// come from. REQUIRES: as ExchangeOf.
// COST: over all ranks of after's mesh, the cells that they receive from.
struct ReceivedMost {
  int64_t elements = 0;
  int64_t cells = 0;
};
ReceivedMost MostReceived(const Layout& before, const Layout& after);

// Of `local`, the dense tensor of a region, any strides, the part in `box`.
// REQUIRES: the region holds all of `box`; beside a ragged cut the box is one
// of those that RankExchange lists.
TensorView PartOf(const TensorView& local, const Region& region,
                  const Box& box);

}  // namespace tessera::internal

#endif  // TESSERA_REDISTRIBUTE_EXCHANGE_H_

#ifndef TESSERA_COMM_SIM_SIM_WORLD_H_
#define TESSERA_COMM_SIM_SIM_WORLD_H_

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "tessera/comm/comm_log.h"
#include "tessera/comm/communicator.h"
#include "tessera/device/stream.h"
#include "tessera/mesh/device_mesh.h"
#include "tessera/mesh/topology.h"

namespace tessera {
namespace internal {
class LinkTiers;
}  // namespace internal

// A world of any size in which one rank runs its real program: the `sim`
// backend. Its collectives move nothing; they take time on the simulated stream
// of their communicator and count in the log, calls and bytes as on any
// backend.
//
//   SimDevice device(...);
//   TESSERA_ASSIGN_OR_RETURN(auto stream, device.NewStream("compute"));
//   TESSERA_ASSIGN_OR_RETURN(
//       const SimWorld world,
//       SimWorld::Create(*DeviceMesh::Parse("dp=16384,tp=8"), topology));
//   TESSERA_ASSIGN_OR_RETURN(auto comm, world.Join(/*rank=*/0, *stream));
//   ...  // the program of rank 0
//   comm->log()->counters()                   // calls and bytes by axes
//   TimesOf(device.trace(), stream->name())   // busy and exposed times
//   device.memory()                           // peaks by tag
//
// The other ranks are taken to do the same: all come to a collective when this
// rank does, and HostAllGather gives what this rank gave for every rank. So
// ranks never disagree, and the group that Split makes is the whole.
//
// Prices. A launch of n ranks takes, in picoseconds,
//
//   launch + hops * latency + bytes / bandwidth
//
// with N the bytes of the whole, P of its largest piece and p of its least:
//
//   collective      bytes                    messages  hops    largest message
//   --------------  -----------------------  --------  ------  ---------------
//   all_reduce      N + (n-2) * ceil(N/n)    n-1       2(n-1)  2 * ceil(N/n)
//   reduce_scatter  (n-1) * P                n-1       n-1     P
//   all_gather      N - p                    n-1       n-1     P
//   all_to_all      what this rank receives  n-1       n-1     P of recv
//   broadcast       N                        n-1       n-1     N
//   barrier         0                        n-1       n-1     0
//   send_recv       (a)                      (a)       (a)     (a)
//
//   (a)  the messages that this rank receives from others: a hop and its bytes
//        each. Sending goes on meanwhile and takes no time of its own.
//
// all_reduce rounds to whole elements. A message costs the link of the slowest
// mesh axis along which its ends differ; axes are slower by bandwidth, then by
// latency. Should a faster axis along which they differ have a higher latency,
// then this counts. In a group over axes with different links the messages of a
// collective go from this rank to each other one; bytes are shared out to them,
// the most expensive ones first, none larger than the largest, and those over
// equal links have the highest latency of any. Calls of one kind in one launch
// have the bytes of all and the messages of one; several kinds follow each
// other. These are the prices of planned steps where pieces are even, for an
// exchange the most over ranks. Collectives on different streams do not slow
// each other down.
//
// Value type; thread-safe.
class SimWorld {
 public:
  // A world of the ranks of `mesh`. Groups, of whatever mesh they are slices,
  // go over the links that `topology` has along the axes of this one.
  // ERRORS: InvalidArgument where the mesh's ranks are not [0, mesh.size()).
  static absl::StatusOr<SimWorld> Create(const DeviceMesh& mesh,
                                         const Topology& topology);

  int num_ranks() const;

  // The communicator of all ranks as `rank` sees it, named "world". `log`
  // counts the rank's collectives; null makes one.
  // ERRORS: InvalidArgument for a rank outside [0, num_ranks), or for a stream
  // of another device than a SimDevice, as for all groups made from it.
  // COST: of every group, what listing its members costs.
  absl::StatusOr<std::unique_ptr<Communicator>> Join(
      int rank, Stream& stream, std::shared_ptr<CommLog> log = nullptr) const;

 private:
  explicit SimWorld(std::shared_ptr<const internal::LinkTiers> tiers)
      : tiers_(std::move(tiers)) {}

  std::shared_ptr<const internal::LinkTiers> tiers_;
};

}  // namespace tessera

#endif  // TESSERA_COMM_SIM_SIM_WORLD_H_

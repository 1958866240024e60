#ifndef TESSERA_COMM_COMM_SET_H_
#define TESSERA_COMM_COMM_SET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tessera/comm/communicator.h"
#include "tessera/device/stream.h"
#include "tessera/mesh/device_mesh.h"

namespace tessera {

// The communicators that one rank uses: one per set of mesh axes, or of meshes,
// and stream, made on first use or lent by the caller.
//
// LIFETIME: borrows the world communicator, lent communicators and streams; a
// stream outlives the set. Not thread-safe: one call at a time.
class CommSet {
 public:
  // `world` spans the ranks that meshes speak of: its group index is the rank.
  explicit CommSet(Communicator& world) : world_(world) {}

  int rank() const { return world_.rank(); }
  Communicator& world() const { return world_; }
  CommLog& log() const { return *world_.log(); }

  // The group that this rank forms along `axes` of `mesh`, in the order of
  // mesh coordinates with the last of `axes` fastest, on `stream`. Its name is
  // the axes' names joined by '.'. The first call for a group and stream is
  // COLLECTIVE over the group, in the same order on all of its members. Where
  // the group has a communicator on another stream, made or lent, the new one
  // is made from that one, else from the world.
  // LIFETIME: the result lives as long as this set.
  // ERRORS: InvalidArgument for a rank outside the mesh or unknown axes.
  absl::StatusOr<Communicator*> Get(const DeviceMesh& mesh,
                                    absl::Span<const int> axes, Stream& stream);

  // As Get, where all ranks of the mesh ask for theirs at the same time: the
  // first call for a mesh and axes is COLLECTIVE over the mesh, in the same
  // order on all of its ranks. The groups that have no communicator come from
  // one Partition of the world, where the mesh spans it, or of a communicator
  // of all ranks of the mesh, where there is one; else each as Get makes it.
  absl::StatusOr<Communicator*> GetTogether(const DeviceMesh& mesh,
                                            absl::Span<const int> axes,
                                            Stream& stream);

  // The group of all ranks of any of `meshes`, ascending, on `stream`. Its name
  // is the meshes' text, joined by '+'. Else as Get.
  // ERRORS: InvalidArgument for a rank outside of them all.
  absl::StatusOr<Communicator*> GetUnion(absl::Span<const DeviceMesh> meshes,
                                         Stream& stream);

  // OK where all ranks of `group` have the same fingerprint of what they are
  // about to do. They are asked once for each fingerprint: a host all-gather,
  // which is COLLECTIVE over the group.
  // ERRORS: FailedPrecondition, on every rank, with what describe() gives on
  // each of them; those of HostAllGather.
  absl::Status Agree(Communicator& group, uint64_t fingerprint,
                     absl::FunctionRef<std::string()> describe);

  // Aborts all communicators that were made or lent: for a rank that cannot go
  // on. The world, which is the caller's, stays as it is.
  void Abort(const absl::Status& reason);

  // Makes Get return `communicator` for this slice of the mesh and the
  // communicator's stream. ERRORS: InvalidArgument where its members are not
  // the ranks of the slice, in order; AlreadyExists.
  absl::Status Lend(const DeviceMesh& mesh, absl::Span<const int> axes,
                    Communicator& communicator);

 private:
  struct Group {
    std::string name;
    std::vector<int> members;  // ranks of the world
    friend bool operator==(const Group&, const Group&) = default;
  };
  struct Entry {
    Group group;
    Communicator* communicator;
    std::unique_ptr<Communicator> owned;  // null where lent
  };

  // The group of the ranks of a slice.
  static Group GroupOf(const DeviceMesh& slice);
  // One whose members are those of the mesh; null where there is none.
  Communicator* FindSpanning(const DeviceMesh& mesh) const;
  // Makes the groups along `axes`, of which this rank's is `slice`.
  absl::Status MakeTogether(const DeviceMesh& mesh, const DeviceMesh& slice,
                            Stream& stream);
  Communicator* Keep(Group group, std::unique_ptr<Communicator> made);
  // The group's communicator on `stream`, or on any where that is null; null
  // where there is none.
  Communicator* Find(const Group& group, const Stream* stream) const;
  absl::StatusOr<Communicator*> FindOrMake(Group group, Stream& stream);

  Communicator& world_;
  std::vector<Entry> entries_;
  // What Get gave for slices of meshes, so that it need not list the members,
  // who may be many, again.
  absl::flat_hash_map<std::pair<DeviceMesh, const Stream*>, Communicator*>
      found_;
  // What all ranks of a mesh have asked for together.
  absl::flat_hash_set<std::pair<DeviceMesh, std::vector<int>>> together_;
  absl::flat_hash_set<size_t> agreed_;  // hashes of members and fingerprint
};

}  // namespace tessera

#endif  // TESSERA_COMM_COMM_SET_H_

#ifndef TESSERA_COMM_COMMUNICATOR_H_
#define TESSERA_COMM_COMMUNICATOR_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tessera/comm/collective.h"
#include "tessera/comm/comm_log.h"
#include "tessera/device/stream.h"
#include "tessera/tensor/index.h"
#include "tessera/tensor/reduce_op.h"
#include "tessera/tensor/tensor_view.h"

namespace tessera {

// One rank's end of a group of ranks that communicate on one stream.
//
// Every collective is COLLECTIVE over the group: all members make the same
// calls in the same order. A call checks its arguments, takes the next
// sequence number, enqueues on stream() and returns; memory must stay valid
// until the stream has come past. Views may be strided; a flat buffer is a
// tensor of one dim. Pieces of a dim follow the group's rank order.
//
// In place is legal where send and recv are the same view (all_reduce,
// broadcast), where recv is this rank's piece of send (reduce_scatter) or send
// this rank's piece of recv (all_gather). Other overlaps are not.
//
// Reductions combine in a documented order: the backends local and mpi in
// ascending group rank, with bf16 and f16 accumulated in f32 and rounded once.
//
// A group of one rank copies send to recv where they differ, and communicates
// nothing.
//
// Arguments need live only as long as the call. Once as many calls have been
// under way as there are at a time, the local backend and CPU streams allocate
// nothing for a call in a group of up to 32 ranks on views of up to four dims.
//
// ERRORS: InvalidArgument for shapes, dtypes, dims or splits that do not fit,
// at once and without taking part; FailedPrecondition, on every rank, where
// ranks disagree on the operation, naming operation, sequence number, ranks
// and difference, or, on the local backend, wait for each other in a circle,
// which it names; DeadlineExceeded where a rank stays away past the timeout;
// Aborted where the group was aborted, with the reason. The last three come
// from the stream where it is not inline. After one of them the communicator
// is aborted: every later call returns Aborted at once.
//
// Calls of one rank may come from any thread, one at a time. Destruction is
// not collective. LIFETIME: the stream outlives the communicator.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // This rank's index in the group, and the number of members.
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  // The members as ranks of the world, in group order.
  absl::Span<const int> members() const { return members_; }
  // What the group is called in errors and counters: its mesh axes, or "world".
  const std::string& name() const { return name_; }
  Stream& stream() const { return stream_; }
  // Where this rank's collectives are counted, and the last ones kept. Groups
  // made from this one share it.
  const std::shared_ptr<CommLog>& log() const { return log_; }

  // recv = op over all ranks' send. Same shape and dtype everywhere.
  absl::Status AllReduce(ReduceOp op, const TensorView& send,
                         const TensorView& recv);

  // recv = this rank's piece of op over all ranks' send. `send` has the same
  // shape everywhere; its `dim` is cut by `split`, and `recv` is a piece.
  absl::Status ReduceScatter(ReduceOp op, const TensorView& send,
                             const TensorView& recv, int dim = 0,
                             const ExtentSplit& split = {});

  // The pieces of recv along `dim`, cut by `split`, are the ranks' send.
  absl::Status AllGather(const TensorView& send, const TensorView& recv,
                         int dim = 0, const ExtentSplit& split = {});

  // Piece i of send along `send_dim` goes to rank i; piece i of recv along
  // `recv_dim` comes from it. What is sent and received must have the same
  // shape on both ends.
  absl::Status AllToAll(const TensorView& send, int send_dim,
                        const ExtentSplit& send_split, const TensorView& recv,
                        int recv_dim, const ExtentSplit& recv_split);

  // buffer on every rank = buffer on group rank `root`.
  absl::Status Broadcast(const TensorView& buffer, int root);

  // All messages of a group of ranks at once: the k-th send to a peer meets
  // that peer's k-th receive from this rank, of the same dtype and shape. A
  // rank may send to itself. COLLECTIVE over the group: ranks without messages
  // call it with none.
  absl::Status SendRecv(absl::Span<const Transfer> sends,
                        absl::Span<const Transfer> recvs);

  // The stream passes once every rank's stream has come here.
  absl::Status Barrier();

  // Whichever of these `call` describes: all of them come down to it.
  absl::Status Issue(const Collective& call) {
    return Issue(absl::MakeConstSpan(&call, 1));
  }
  // Several calls as one launch with one sequence number, as between
  // ncclGroupStart and ncclGroupEnd. All ranks give as many, in the same order.
  // They may run side by side: none writes what another one reads or writes.
  // ERRORS: as for each of them; an invalid one keeps all from being issued.
  absl::Status Issue(absl::Span<const Collective> calls);

  // Host-side: what every rank gave, in group order. Blocks the caller, uses
  // no stream, and keeps a sequence of its own.
  virtual absl::StatusOr<std::vector<std::string>> HostAllGather(
      absl::string_view value) = 0;

  // A communicator of those `members` (indices in this group, ascending or
  // not; each once; this rank among them) on `stream`. COLLECTIVE over the
  // members only: the others need not call it. Members make the groups that
  // they share in the same order.
  absl::StatusOr<std::unique_ptr<Communicator>> Subgroup(
      absl::Span<const int> members, absl::string_view name, Stream& stream);

  // As Subgroup, where all ranks of this group make theirs at the same time. No
  // rank is a member of two; one that is a member of none gives none, and gets
  // null. COLLECTIVE over the group.
  absl::StatusOr<std::unique_ptr<Communicator>> Partition(
      absl::Span<const int> members, absl::string_view name, Stream& stream);

  // As MPI_Comm_split: the ranks of one color form a group, ordered by key,
  // then by rank. Null for a negative color. COLLECTIVE over the group.
  absl::StatusOr<std::unique_ptr<Communicator>> Split(int color, int key,
                                                      absl::string_view name,
                                                      Stream& stream);

  // How long this rank waits for the others in an operation that begins from
  // now on. At first that is what the options of the world say, of subgroups as
  // well. Not collective. No effect on backends that do not wait.
  virtual void SetTimeout(std::chrono::milliseconds /*timeout*/) {}

  // Makes every pending and later operation of the group, on every rank, fail
  // with Aborted and this reason. Not collective. No effect in a group of one.
  virtual void Abort(const absl::Status& reason) = 0;

 protected:
  Communicator(std::vector<int> members, int rank, absl::string_view name,
               Stream& stream, std::shared_ptr<CommLog> log);

  // Some members of this group, as ranks of the world, and which of them this
  // rank is (0 where it is none).
  struct Subset {
    std::vector<int> members = {};
    int rank = 0;
  };
  // `members` are indices in this group.
  Subset SubsetOf(absl::Span<const int> members) const;

  // What a backend says about the sequence numbers that it was given.
  const std::shared_ptr<CommProgress>& progress() const { return progress_; }

 private:
  void Record(const Collective& call, int64_t sequence);
  // ERRORS: InvalidArgument for members that cannot form a group with this
  // rank.
  absl::Status CheckMembers(absl::Span<const int> members,
                            absl::string_view name) const;

  // Enqueues checked calls with this sequence number.
  // REQUIRES: size() > 1, at least one call.
  virtual absl::Status Enqueue(absl::Span<const Collective> calls,
                               int64_t sequence) = 0;

  // `members` are indices in this group, checked.
  virtual absl::StatusOr<std::unique_ptr<Communicator>> MakeSubgroup(
      absl::Span<const int> members, absl::string_view name,
      Stream& stream) = 0;

  // The same with all ranks of this group, of which those without members get
  // null. For backends that have something better than MakeSubgroup.
  virtual absl::StatusOr<std::unique_ptr<Communicator>> MakePartition(
      absl::Span<const int> members, absl::string_view name, Stream& stream);

  const std::vector<int> members_;
  const int rank_;
  const std::string name_;
  Stream& stream_;
  const std::shared_ptr<CommLog> log_;
  const std::shared_ptr<CommProgress> progress_ =
      std::make_shared<CommProgress>();
  CollectiveRecord record_;  // of the last call; used again for its name
  int64_t sequence_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_COMM_COMMUNICATOR_H_

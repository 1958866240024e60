#ifndef TESSERA_COMM_LOCAL_LOCAL_GROUP_H_
#define TESSERA_COMM_LOCAL_LOCAL_GROUP_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tessera/base/mutex.h"
#include "tessera/comm/collective.h"
#include "tessera/comm/local/wait_graph.h"
#include "tessera/comm/operation_pool.h"

namespace tessera::internal {

// Where the members of one group meet: what their communicators share.
//
// 1. An operation starts once all members have come to it and agree. From then
//    on nothing stops it: it ends well on every member, and none returns while
//    another may still use its memory.
// 2. All that can fail (a disagreement, a timeout, an abort, a member that has
//    left, waits in a circle) fails before the start, while nobody uses a
//    peer's memory. It fails the operation for all who came, and the group
//    takes nothing more.
//
// Thread-safe; each member makes one call of Run and one of HostAllGather at a
// time.
class LocalGroup final : public OperationGroup,
                         public std::enable_shared_from_this<LocalGroup> {
 public:
  // `members` are ranks of the world, in group order. `timeout` is how long a
  // member waits for the others to come at first. `waits` are those of the
  // world. `parent` is the group that it is made from, or null.
  LocalGroup(int64_t id, std::string name, std::vector<int> members,
             std::chrono::milliseconds timeout,
             std::shared_ptr<WaitGraph> waits,
             std::shared_ptr<LocalGroup> parent);

  // Tells the groups of one world apart.
  int64_t id() const { return id_; }

  // This member has a communicator, whose operations come from `stream`.
  void Enter(int rank, const Stream& stream);

  // How long this member waits for the others from now on.
  void SetTimeout(int rank, std::chrono::milliseconds timeout);

  // Blocks until the operation has ended everywhere.
  absl::Status Run(int rank, absl::Span<const Collective> calls) override;

  // What every member gave, in group order. A sequence of its own.
  absl::StatusOr<std::vector<std::string>> HostAllGather(
      int rank, absl::string_view value);

  void Abort(absl::string_view reason) override;

  // The member with this rank of the world comes to no operation any more, for
  // this reason. No effect where it is not a member.
  void Leave(int world_rank, absl::string_view reason);
  // The same of the member with this rank in the group.
  void Forget(int rank) override;

  // Fails if a member is missing somewhere that has no communicator, and gets
  // none any more: see WhyUnjoinable. True if this has failed, then or before.
  bool FailIfUnjoinable() ABSL_LOCKS_EXCLUDED(mutex_);
  // Fails what has not started: ranks wait in a circle, which this describes.
  void BreakCycle(absl::string_view description);

  // OK, or Aborted with the reason.
  absl::Status status() override;

 private:
  // Where members come together, round after round. All but `round` is guarded
  // by mutex_.
  struct Meeting {
    explicit Meeting(size_t size) : here(size, false), places(size) {}

    std::vector<bool> here;     // by group rank: has come to this round
    std::vector<Place> places;  // by group rank: where a member comes from
    bool is_watched = false;    // some wait of this round is in the graph
    int num_here = 0;
    std::atomic<int64_t> round = 0;  // rounds that are complete
    absl::string_view what;  // the operation, as the last to come named it
  };

  // The parts of the operation that has started last, one per member. Whoever
  // is running takes the next: a member that has no core just now holds nobody
  // up.
  class Parts {
   public:
    explicit Parts(size_t size) : taken_(size) {}

    // Before the start. Without parts, the operation ends as it starts.
    void Reset(bool any);
    // A part that nobody has taken, that of `rank` first; -1 if there is none.
    int Take(int rank);
    // A part is done. True if it was the last one.
    bool Finish() { return --left_ == 0; }

   private:
    std::vector<std::atomic<bool>> taken_;
    std::atomic<int> left_ = 0;
  };

  int size() const { return static_cast<int>(members_.size()); }

  // Why a rank of the world that has no communicator of this group gets none
  // any more: a group that it is made from, itself or further up, has failed.
  // OK where it may.
  absl::Status WhyUnjoinable(int world_rank) ABSL_LOCKS_EXCLUDED(mutex_);
  bool HasEntered(int world_rank) ABSL_LOCKS_EXCLUDED(mutex_);

  // The steps of a round. A member arrives; the last one completes the round
  // and the others await it. REQUIRES of Complete: AllHere().
  absl::Status Arrive(Meeting& meeting, int rank, absl::string_view what)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool AllHere(const Meeting& meeting) const {
    return meeting.num_here == size();
  }
  std::chrono::milliseconds TimeoutOf(int rank) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Complete(Meeting& meeting) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Await(Meeting& meeting, int64_t round, int rank)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits until `time` at most. True once the round is complete, or the group
  // has failed.
  bool AwaitUntil(Meeting& meeting, int64_t round,
                  CondVar::Clock::time_point time)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Puts the wait of this member into the graph, or takes all of them out.
  void Watch(Meeting& meeting, int rank) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Unwatch(Meeting& meeting) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Arrives at the next operation and returns its round. The last member to
  // come starts it.
  absl::StatusOr<int64_t> ArriveAtOperation(int rank,
                                            absl::Span<const Collective> calls)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status StartOperation() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int num_calls() const { return static_cast<int>(calls_.size()) / size(); }
  // Call i of all members.
  absl::Span<const Collective* const> CallsAt(int i) const {
    return absl::MakeConstSpan(calls_).subspan(i * size(), size());
  }
  absl::StatusOr<int64_t> ArriveAtGather(int rank, absl::string_view value)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns once the operation of `round`, which has started, has ended.
  void AwaitEnd(int64_t round) ABSL_LOCKS_EXCLUDED(mutex_);

  void LeaveAs(int rank, absl::string_view reason) ABSL_LOCKS_EXCLUDED(mutex_);
  // Fails if a member has left that is not here.
  absl::Status CheckNobodyLeft(const Meeting& meeting)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Fails what has not started, unless it has failed already, and returns what
  // it failed with.
  absl::Status Fail(absl::StatusCode code, absl::string_view problem)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status StatusLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // "operation 3 of 'dp'"
  std::string Where(const Meeting& meeting) const;
  // "rank 2", "ranks 2,3": those not here.
  std::string Missing(const Meeting& meeting) const;

  const int64_t id_;
  const std::string name_;
  const std::vector<int> members_;
  const std::shared_ptr<WaitGraph> waits_;
  const std::shared_ptr<LocalGroup> parent_;

  mutable Mutex mutex_;
  // A round is complete, an operation has ended, or the group has failed.
  CondVar changed_;
  Meeting operations_;
  Meeting gathers_;
  // By group rank. Written before a start, used until the end.
  std::vector<absl::Span<const Collective>> given_calls_;
  // By call, then by group rank. Written at a start, used until the end.
  std::vector<const Collective*> calls_;
  Parts parts_;
  std::atomic<int64_t> ended_ = 0;  // operations that have ended
  // By group rank: whether the member has a communicator, or had one.
  std::vector<bool> entered_ ABSL_GUARDED_BY(mutex_);
  // By group rank.
  std::vector<std::chrono::milliseconds> timeouts_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> given_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> gathered_ ABSL_GUARDED_BY(mutex_);
  // By group rank: why the member has left; "" where it has not.
  std::vector<std::string> departures_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera::internal

#endif  // TESSERA_COMM_LOCAL_LOCAL_GROUP_H_

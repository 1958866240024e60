#ifndef TESSERA_TESTING_SCHEDULED_GROUP_H_
#define TESSERA_TESTING_SCHEDULED_GROUP_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tessera/comm/collective.h"
#include "tessera/testing/scheduled_device.h"
#include "tessera/testing/scheduler.h"

namespace tessera::testing {

// Where the members of one group meet on the queues of a scheduler: what their
// communicators share. Its errors are worded as those of the local backend.
//
// An operation is done all at once, when every member's stream has come to it;
// the streams then leave it one by one. What can fail fails before that, for
// all members.
//
// Used by the host whose turn it is, and by operations.
class ScheduledGroup {
 public:
  // `members` are ranks of the world, in group order.
  ScheduledGroup(Scheduler& scheduler, int64_t id, std::string name,
                 std::vector<int> members);

  // Tells the groups of one world apart.
  int64_t id() const { return id_; }
  const std::string& name() const { return name_; }
  const std::vector<int>& members() const { return members_; }

  // OK, or Aborted with the reason.
  absl::Status status() const;

  // The calls with this sequence number are, for group rank `rank`, the next
  // operation that `stream` is given.
  void Enqueue(int rank, int64_t sequence, absl::Span<const Collective> calls,
               const ScheduledStream& stream);
  // Whether that operation may run.
  bool IsReady(int64_t sequence) const;
  // Runs it: each member does, the first one for all.
  // ERRORS: those of Communicator.
  absl::Status Run(int64_t sequence);

  // What every member gave, in group order. A sequence of its own.
  absl::StatusOr<std::vector<std::string>> HostAllGather(
      int rank, absl::string_view value);

  // Fails what has not been done with Aborted: "comm: 'dp' is aborted: ...".
  void Abort(absl::string_view reason);
  // The member with this rank of the world enqueues nothing any more, for this
  // reason. No effect where it is not a member.
  void Leave(int world_rank, absl::string_view reason);

 private:
  // The calls of one member, what they borrow, and where they are enqueued.
  struct Part {
    std::vector<Collective> calls;
    std::vector<std::vector<Transfer>> transfers;
    const ScheduledStream* stream = nullptr;  // null: not enqueued
    int64_t position = 0;
  };
  struct Round {
    std::vector<Part> parts;             // by group rank
    std::optional<absl::Status> result;  // once it is done
    int runs = 0;                        // members that have got the result
  };
  using Gather = std::vector<std::optional<std::string>>;  // by group rank

  int size() const { return static_cast<int>(members_.size()); }
  absl::Status DoAll(int64_t sequence, const Round& round);
  // Fail where a member that has not come there has left.
  void CheckNobodyLeft(int64_t sequence, const Round& round);
  void CheckNobodyLeft(int64_t number, const Gather& gather);
  void CheckNobodyLeft(absl::string_view where, const std::vector<bool>& here);
  void Fail(absl::string_view problem);
  // "all_reduce, operation 3 of 'dp'"
  std::string Where(absl::string_view what, int64_t number) const;

  Scheduler& scheduler_;
  const int64_t id_;
  const std::string name_;
  const std::vector<int> members_;
  std::map<int64_t, Round> rounds_;  // by sequence number
  std::vector<Gather> gathers_;
  std::vector<int64_t> num_gathers_;  // by group rank: called so far
  // By group rank: why the member has left; "" where it has not.
  std::vector<std::string> departures_;
  absl::Status failure_;
};

}  // namespace tessera::testing

#endif  // TESSERA_TESTING_SCHEDULED_GROUP_H_

#ifndef TESSERA_TESTING_SCHEDULED_WORLD_H_
#define TESSERA_TESTING_SCHEDULED_WORLD_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tessera/comm/collective.h"
#include "tessera/comm/comm_log.h"
#include "tessera/comm/communicator.h"
#include "tessera/device/stream.h"
#include "tessera/testing/scheduled_group.h"
#include "tessera/testing/scheduler.h"

namespace tessera::testing {

// Ranks whose streams are queues of one scheduler. Collectives are computed as
// the local backend does it, with the same bits.
//
// Used by the host whose turn it is. LIFETIME: borrows the scheduler; outlives
// its communicators.
class ScheduledWorld {
 public:
  ScheduledWorld(int num_ranks, Scheduler& scheduler)
      : num_ranks_(num_ranks), scheduler_(scheduler), issued_(num_ranks) {}

  // The communicator of all ranks as `rank` sees it, named "world". Each
  // rank's n-th call joins the n-th group of all ranks.
  // ERRORS: InvalidArgument for a stream of another device than a
  // ScheduledDevice, as for all groups made from it.
  absl::StatusOr<std::unique_ptr<Communicator>> Join(int rank, Stream& stream);

  // Says that the program of `rank` has ended. Ranks that wait for it, now or
  // later, get Aborted with `status`.
  void Leave(int rank, const absl::Status& status);

  // Where two ranks issued the collectives that they share, over all groups, in
  // different orders: for each pair of ranks the first difference, in words.
  std::vector<std::string> OrderDifferences() const;

 private:
  class Member;  // one rank's communicator

  // A launch that a rank has issued.
  struct Issue {
    const ScheduledGroup* group;
    int64_t sequence;
    CollectiveKind kind;

    bool IsSame(const Issue& other) const {
      return group == other.group && sequence == other.sequence;
    }
    std::string ToString() const;  // "all_reduce, operation 3 of 'dp'"
  };

  // What `rank` has issued in groups that `other` is in.
  std::vector<Issue> IssuedWith(int other, int rank) const;
  // The first difference between two ranks, or "".
  std::string OrderDifference(int a, int b) const;

  // The group of `members` as `rank` sees it: each member's n-th call for one
  // parent and list joins the n-th group of these. `parent` is the id of a
  // group, or kNoParent.
  static constexpr int64_t kNoParent = -1;
  absl::StatusOr<std::unique_ptr<Communicator>> JoinGroup(
      int64_t parent, std::vector<int> members, int rank,
      absl::string_view name, Stream& stream, std::shared_ptr<CommLog> log);

  const int num_ranks_;
  Scheduler& scheduler_;
  // By parent, members and n.
  std::map<std::tuple<int64_t, std::vector<int>, int>,
           std::unique_ptr<ScheduledGroup>>
      groups_;
  // Groups joined, by parent, members and rank.
  std::map<std::tuple<int64_t, std::vector<int>, int>, int> joined_;
  std::map<int, std::string> departures_;
  std::vector<std::vector<Issue>> issued_;  // by rank
};

}  // namespace tessera::testing

#endif  // TESSERA_TESTING_SCHEDULED_WORLD_H_

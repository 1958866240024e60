#ifndef TESSERA_COMM_LOCAL_LOCAL_REGISTRY_H_
#define TESSERA_COMM_LOCAL_LOCAL_REGISTRY_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "tessera/base/mutex.h"
#include "tessera/comm/local/local_group.h"
#include "tessera/comm/local/wait_graph.h"

namespace tessera::internal {

// The groups of one world: where their members find each other. Thread-safe.
class LocalRegistry {
 public:
  explicit LocalRegistry(std::chrono::milliseconds timeout)
      : timeout_(timeout) {}

  // The group of `members`, ranks of the world in group order, as `rank` sees
  // it: each member's n-th call for one parent and list joins the n-th group
  // of these. Does not wait. `parent` is null for groups that have none.
  std::shared_ptr<LocalGroup> Join(const std::shared_ptr<LocalGroup>& parent,
                                   const std::vector<int>& members, int rank,
                                   absl::string_view name);

  // Tells all groups, those still to be made included, that `rank` has left.
  void Leave(int rank, absl::string_view reason);

 private:
  // A group that not all of its members have joined yet.
  struct Pending {
    std::shared_ptr<LocalGroup> group;
    std::vector<int> joined;
  };
  // The parent's id, or kNoParent; the members.
  static constexpr int64_t kNoParent = -1;
  using Key = std::pair<int64_t, std::vector<int>>;

  std::shared_ptr<LocalGroup> MakeGroup(std::shared_ptr<LocalGroup> parent,
                                        const std::vector<int>& members,
                                        absl::string_view name)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::chrono::milliseconds timeout_;
  const std::shared_ptr<WaitGraph> waits_ = std::make_shared<WaitGraph>();
  Mutex mutex_;
  int64_t next_id_ ABSL_GUARDED_BY(mutex_) = 0;
  // Oldest first. A member joins them in this order.
  std::map<Key, std::deque<Pending>> pending_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<LocalGroup>> groups_ ABSL_GUARDED_BY(mutex_);
  std::map<int, std::string> departures_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera::internal

#endif  // TESSERA_COMM_LOCAL_LOCAL_REGISTRY_H_

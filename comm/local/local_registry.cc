#include "tessera/comm/local/local_registry.h"

#include <algorithm>
#include <utility>

namespace tessera::internal {

std::shared_ptr<LocalGroup> LocalRegistry::Join(
    const std::shared_ptr<LocalGroup>& parent, const std::vector<int>& members,
    int rank, absl::string_view name) {
  MutexLock lock(mutex_);
  const int64_t parent_id = parent == nullptr ? kNoParent : parent->id();
  const auto entry = pending_.try_emplace(Key(parent_id, members)).first;
  std::deque<Pending>& queue = entry->second;
  auto next = std::find_if(queue.begin(), queue.end(), [&](const Pending& p) {
    return std::find(p.joined.begin(), p.joined.end(), rank) == p.joined.end();
  });
  if (next == queue.end()) {
    next = queue.insert(next, {MakeGroup(parent, members, name), {}});
  }
  std::shared_ptr<LocalGroup> group = next->group;
  next->joined.push_back(rank);
  // Members join in order, so the oldest group is complete first.
  if (next->joined.size() == members.size()) queue.pop_front();
  if (queue.empty()) pending_.erase(entry);
  return group;
}

std::shared_ptr<LocalGroup> LocalRegistry::MakeGroup(
    std::shared_ptr<LocalGroup> parent, const std::vector<int>& members,
    absl::string_view name) {
  auto group =
      std::make_shared<LocalGroup>(next_id_++, std::string(name), members,
                                   timeout_, waits_, std::move(parent));
  for (const auto& [rank, reason] : departures_) group->Leave(rank, reason);
  std::erase_if(groups_, [](const auto& other) { return other.expired(); });
  groups_.push_back(group);
  return group;
}

void LocalRegistry::Leave(int rank, absl::string_view reason) {
  MutexLock lock(mutex_);
  departures_.try_emplace(rank, reason);
  for (const std::weak_ptr<LocalGroup>& weak : groups_) {
    if (const auto group = weak.lock()) group->Leave(rank, reason);
  }
}

}  // namespace tessera::internal

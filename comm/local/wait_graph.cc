#include "tessera/comm/local/wait_graph.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "tessera/comm/local/local_group.h"

namespace tessera::internal {
namespace {

// "rank 0 waits in all_reduce, operation 3 of 'dp', for rank 1; rank 1 waits in
// ..."
std::string DescribeCycle(absl::Span<const LocalWait> cycle) {
  std::string text;
  for (size_t i = 0; i < cycle.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : "; ", "rank ", cycle[i].who.rank,
                    " waits in ", cycle[i].where, ", for rank ",
                    cycle[(i + 1) % cycle.size()].who.rank);
  }
  return text;
}

}  // namespace

void WaitGraph::Add(LocalWait wait) {
  MutexLock lock(mutex_);
  waits_.push_back(std::move(wait));
}

void WaitGraph::Replace(const void* meeting, const Place& old_place,
                        const Place& new_place) {
  MutexLock lock(mutex_);
  for (LocalWait& wait : waits_) {
    if (wait.meeting != meeting) continue;
    absl::c_replace(wait.missing, old_place, new_place);
  }
}

void WaitGraph::RemoveAll(const void* meeting) {
  std::vector<LocalWait> removed;  // groups are destroyed without the lock
  MutexLock lock(mutex_);
  const auto kept = std::partition(
      waits_.begin(), waits_.end(),
      [&](const LocalWait& wait) { return wait.meeting != meeting; });
  removed.assign(std::make_move_iterator(kept),
                 std::make_move_iterator(waits_.end()));
  waits_.erase(kept, waits_.end());
}

void WaitGraph::BreakCycle(const Place& place) {
  MutexLock lock(breaking_);
  const std::vector<LocalWait> cycle = FindCycle(place);
  // A wait for who cannot join the group any more ends, if not seen yet.
  if (absl::c_any_of(cycle, [](const LocalWait& wait) {
        return wait.group->FailIfUnjoinable();
      })) {
    return;
  }
  const std::string description = DescribeCycle(cycle);
  for (const LocalWait& wait : cycle) wait.group->BreakCycle(description);
}

std::vector<LocalWait> WaitGraph::FindCycle(const Place& place) const {
  MutexLock lock(mutex_);
  std::vector<Place> seen;
  std::vector<const LocalWait*> path;
  if (!Search(place, place, seen, path)) return {};
  const auto lowest =
      absl::c_min_element(path, [](const LocalWait* a, const LocalWait* b) {
        return a->who.rank < b->who.rank;
      });
  std::rotate(path.begin(), lowest, path.end());
  std::vector<LocalWait> cycle;
  cycle.reserve(path.size());
  for (const LocalWait* wait : path) cycle.push_back(*wait);
  return cycle;
}

bool WaitGraph::Search(const Place& place, const Place& end,
                       std::vector<Place>& seen,
                       std::vector<const LocalWait*>& path) const {
  const auto wait = absl::c_find_if(
      waits_, [&](const LocalWait& w) { return w.who == place; });
  if (wait != waits_.end()) {
    path.push_back(&*wait);
    if (SearchAny(wait->missing, end, seen, path)) return true;
    path.pop_back();
    return false;
  }
  if (place.stream == nullptr) return false;
  std::shared_ptr<Event::State> awaited = place.stream->Awaited();
  if (awaited == nullptr) return false;
  return SearchAny({{place.rank, std::move(awaited)}}, end, seen, path);
}

bool WaitGraph::SearchAny(absl::Span<const Place> places, const Place& end,
                          std::vector<Place>& seen,
                          std::vector<const LocalWait*>& path) const {
  for (const Place& place : places) {
    if (place == end) return true;
    if (absl::c_linear_search(seen, place)) continue;
    seen.push_back(place);
    if (Search(place, end, seen, path)) return true;
  }
  return false;
}

}  // namespace tessera::internal

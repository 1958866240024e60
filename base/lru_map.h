#ifndef TESSERA_BASE_LRU_MAP_H_
#define TESSERA_BASE_LRU_MAP_H_

#include <cassert>
#include <cstdint>
#include <list>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace tessera {

// A map that keeps the entries that were asked for last. Not thread-safe.
template <typename Key, typename Value>
class LruMap {
 public:
  // REQUIRES: capacity >= 1, the most entries kept.
  explicit LruMap(int64_t capacity) : capacity_(capacity) {
    assert(capacity >= 1);
  }

  int64_t size() const { return static_cast<int64_t>(entries_.size()); }

  // The value at `key`, from now on the one asked for last; null without one.
  // Good until the entry goes. Allocates nothing.
  Value* Find(const Key& key) {
    const auto found = index_.find(key);
    if (found == index_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, found->second);
    return &found->second->second;
  }

  // Adds a value, as the one asked for last; the one not asked for longest
  // goes where there are too many. REQUIRES: there is none at `key`.
  Value& Insert(Key key, Value value) {
    if (size() == capacity_) {
      index_.erase(entries_.back().first);
      entries_.pop_back();
    }
    entries_.emplace_front(std::move(key), std::move(value));
    index_.emplace(entries_.front().first, entries_.begin());
    return entries_.front().second;
  }

 private:
  using Entries = std::list<std::pair<Key, Value>>;

  const int64_t capacity_;
  Entries entries_;  // the one asked for last first
  absl::flat_hash_map<Key, typename Entries::iterator> index_;
};

}  // namespace tessera

#endif  // TESSERA_BASE_LRU_MAP_H_

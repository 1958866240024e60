#ifndef TESSERA_COMM_LOCAL_WAIT_GRAPH_H_
#define TESSERA_COMM_LOCAL_WAIT_GRAPH_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tessera/base/mutex.h"
#include "tessera/device/stream.h"

namespace tessera::internal {

class LocalGroup;

// What does one thing after the other for a rank: a stream with a thread of its
// own, or the rank's program, which its inline streams run on.
struct Place {
  int rank = 0;                                    // of the world
  std::shared_ptr<Event::State> stream = nullptr;  // null: the program

  friend bool operator==(const Place&, const Place&) = default;
};

// A place that has come to a meeting of a group and waits for others.
struct LocalWait {
  Place who;
  std::shared_ptr<LocalGroup> group;
  const void* meeting = nullptr;  // tells the meetings of groups apart
  std::string where;              // "all_reduce, operation 3 of 'dp'"
  // Where those must come from that were missing when the wait began.
  std::vector<Place> missing;
};

// The waits of one world that take long, to find those that never end: places
// that wait for each other in a circle, over several groups, and over events
// between streams of one rank. Thread-safe.
//
// A place does nothing else while it waits, so a circle of waits that are there
// at one time is never left. Waits are there from Add to RemoveAll, which comes
// before anybody goes on. Who has come since a wait began and now waits at the
// same meeting is a detour to those still missing, and no circle of its own.
// Nor is there one through a wait for a rank that cannot join the group any
// more because its parent has failed: that wait ends.
//
// A thread of the host that waits for a stream or an event is no part of it:
// another thread may meanwhile make the calls that the others wait for, so the
// program, unlike a stream, may still go on. Take rank 0, which synchronizes
// with a stream where rank 1 has not come yet, and rank 1, which is in a host
// all-gather and issues its collective behind that: with one thread on rank 0
// they wait forever, with a second one that comes to the all-gather next they
// do not, and nothing tells the two apart. The timeout does.
class WaitGraph {
 public:
  void Add(LocalWait wait);
  // Who is missing at this meeting comes from another place than was thought.
  void Replace(const void* meeting, const Place& old_place,
               const Place& new_place);
  // The waits at this meeting end.
  void RemoveAll(const void* meeting);

  // Fails all groups of a circle through `place`, if there is one.
  void BreakCycle(const Place& place);
  // Returns once no circle is half broken: who sees that a group has failed,
  // and fails others for it, gets and gives the error of the whole.
  void AwaitBreak() { MutexLock lock(breaking_); }

 private:
  // The waits of a circle through `place`, each for the next, from the lowest
  // rank on; empty where there is none.
  std::vector<LocalWait> FindCycle(const Place& place) const;
  // Continues `path`, which has led to `place`, to `end`. False if none of the
  // places that have not been `seen` leads there.
  bool Search(const Place& place, const Place& end, std::vector<Place>& seen,
              std::vector<const LocalWait*>& path) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool SearchAny(absl::Span<const Place> places, const Place& end,
                 std::vector<Place>& seen,
                 std::vector<const LocalWait*>& path) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex breaking_;  // comes before those of groups, mutex_ after them
  mutable Mutex mutex_;
  std::vector<LocalWait> waits_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera::internal

#endif  // TESSERA_COMM_LOCAL_WAIT_GRAPH_H_

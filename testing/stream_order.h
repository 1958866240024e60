#ifndef TESSERA_TESTING_STREAM_ORDER_H_
#define TESSERA_TESTING_STREAM_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace tessera::testing {

// A point in the order of the operations of several streams: by stream, how
// many of its operations lie before.
class VectorClock {
 public:
  int64_t at(int stream) const;
  // One more operation of `stream`; returns its number, the first being 1.
  int64_t Advance(int stream);
  // All that lies before `other` lies before this, too.
  void Join(const VectorClock& other);
  bool Covers(const VectorClock& other) const;
  friend bool operator==(const VectorClock& a, const VectorClock& b) {
    return a.Covers(b) && b.Covers(a);
  }

 private:
  std::vector<int64_t> counts_;  // 0 beyond the end
};

// One call of Stream::Wait, and what it is for.
struct StreamWait {
  std::string stream;       // that waits
  std::string recorded_on;  // the stream of the event; "" where it had passed
  // The last operation in front of the event, and the first one behind the
  // wait; "" where there is none. Operations are named "copy #3": the third of
  // its stream.
  std::string before;
  std::string after;
  // Other order implies it: without this one wait, every operation, and the
  // host wherever it waited, would still come after the same operations.
  bool redundant = false;
};

// The order of the operations that the streams of one device are given, told
// as the host's calls come. An operation comes after
// * the earlier ones of its stream,
// * what lies before the events that its stream waited for,
// * what the host had waited for when it enqueued it,
// and after nothing else: not after what the host enqueued earlier on another
// stream, nor, through a collective, after anything on another rank. So it does
// not depend on how the streams happen to run.
//
// Not thread-safe.
class StreamOrder {
 public:
  // `drop_wait` is the call of Wait to leave out, from 0.
  explicit StreamOrder(std::optional<int64_t> drop_wait = std::nullopt)
      : drop_wait_(drop_wait) {}

  struct Operation {
    std::string name;  // "copy #3"
    int stream;
    VectorClock clock;  // its own place included

    int64_t number() const { return clock.at(stream); }
  };

  // An event.
  struct Point {
    int stream;
    int64_t record;      // counts the events
    std::string before;  // the stream's last operation
  };

  // Returns the stream's number.
  int AddStream(absl::string_view name);
  const std::string& name(int stream) const { return names_[stream]; }

  // The host enqueues an operation on `stream`.
  Operation Launch(int stream, absl::string_view name);
  Point Record(int stream);
  // `stream` waits; without a point, for an event that has always passed.
  // Returns false for the one to leave out: then the stream must not wait.
  bool Wait(int stream, const Point* point);
  // The host waits.
  void SynchronizeHost(const Point& point);

  // What the host has waited for.
  const VectorClock& host() const { return now_.host; }

  // Every call of Wait, the one left out included.
  // COST: all calls once more, for each of Wait.
  std::vector<StreamWait> Waits() const;

 private:
  enum class Kind : uint8_t { kLaunch, kRecord, kWait, kSynchronizeHost };
  // One call.
  struct Step {
    Kind kind;
    int stream = 0;
    int64_t record = 0;
  };
  // What comes of the calls so far.
  struct State {
    std::vector<VectorClock> streams;
    std::vector<VectorClock> records;
    VectorClock host;
  };

  // Takes a step; returns the clock of what has come to it.
  static const VectorClock& Apply(const Step& step, State& state);
  void Take(const Step& step);
  // The clocks of all operations, and of the host whenever it waited; without
  // the step of this number, if any.
  std::vector<VectorClock> Replay(std::optional<size_t> left_out) const;

  const std::optional<int64_t> drop_wait_;
  std::vector<std::string> names_;
  std::vector<std::string> last_;  // operation, by stream
  std::vector<Step> steps_;
  State now_;
  std::vector<StreamWait> waits_;                   // redundant or not
  std::vector<std::optional<size_t>> wait_steps_;   // those that count
  std::vector<std::vector<size_t>> without_after_;  // waits, by stream
};

}  // namespace tessera::testing

#endif  // TESSERA_TESTING_STREAM_ORDER_H_

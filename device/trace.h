#ifndef TESSERA_DEVICE_TRACE_H_
#define TESSERA_DEVICE_TRACE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tessera {

// A launch or a collective, as a stream ran it. Times are picoseconds of the
// device's clock.
struct TracedOperation {
  std::string name = {};  // the launch's, or the kind of the collective
  int stream = 0;         // index in Trace::streams
  // The name of the collective's communicator, its mesh axes; empty for what is
  // no collective.
  std::string communicator = {};
  int64_t begin_ps = 0;
  int64_t end_ps = 0;
  int range = -1;  // the innermost it is of, in Trace::ranges, or -1

  friend bool operator==(const TracedOperation&,
                         const TracedOperation&) = default;
};

// Operations of one stream that belong together (Stream::BeginRange).
struct TracedRange {
  std::string name = {};
  int enclosing = -1;  // the range around it, or -1

  friend bool operator==(const TracedRange&, const TracedRange&) = default;
};

// From `time_ps` on `bytes` are allocated under `tag`, until the tag's next
// sample.
struct MemorySample {
  int64_t time_ps = 0;
  std::string tag = {};
  int64_t bytes = 0;

  friend bool operator==(const MemorySample&, const MemorySample&) = default;
};

// What one device did.
struct Trace {
  int64_t begin_ps = 0;                   // since when
  std::vector<std::string> streams = {};  // names, in the order they were made
  std::vector<TracedOperation> operations =
      {};                                // in the order they were enqueued
  std::vector<TracedRange> ranges = {};  // outer before inner
  // By time, then by tag; where the device records it. Memory that is given
  // back in the order of a stream is gone once the stream has come there, so
  // that at one time more may be allocated here than by the accounts (see
  // MemoryAccountant), or less.
  std::vector<MemorySample> memory = {};
};

// How long what a trace shows took.
//
// A stream is busy while an operation runs on it. Computation is what runs on
// the stream of a given name, collectives aside. A communicator is busy while a
// collective of its name runs, on any stream, and the time is exposed where no
// computation runs meanwhile. With
//
//   compute  [0,4) [6,9)     gather  all_gather of dp      [2,7)
//                            reduce  reduce_scatter of dp  [8,11)
//
// dp is busy for 8, exposed for 4: [4,6) and [9,11). Where several collectives
// run, the time counts once for each communicator, and once in
// `communication`.
struct TraceTimes {
  struct Communication {
    int64_t busy_ps = 0;
    int64_t exposed_ps = 0;

    friend bool operator==(const Communication&,
                           const Communication&) = default;
  };

  int64_t total_ps = 0;          // from begin_ps to the last end
  std::vector<int64_t> busy_ps;  // by stream, as in Trace::streams
  std::map<std::string, Communication> communicators;  // by name
  Communication communication;                         // of any communicator
};

// `compute_stream` names the stream on which the trainer computes.
TraceTimes TimesOf(const Trace& trace, absl::string_view compute_stream);

// The trace of one rank's device.
struct RankTrace {
  int rank = 0;
  Trace trace;
};

// Traces in the JSON of Chrome's trace viewer and of Perfetto: one process per
// rank, one thread per stream, a slice per operation inside one per range, a
// counter of memory by tag where it was recorded; times in microseconds since
// the earliest beginning of a trace. The clocks of all devices are taken for
// one.
std::string ToChromeTrace(absl::Span<const RankTrace> ranks);

}  // namespace tessera

#endif  // TESSERA_DEVICE_TRACE_H_

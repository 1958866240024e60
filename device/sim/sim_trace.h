#ifndef TESSERA_DEVICE_SIM_SIM_TRACE_H_
#define TESSERA_DEVICE_SIM_SIM_TRACE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace tessera {

// A launch or a collective, as a simulated stream ran it. Times are
// picoseconds of the device's clock.
struct SimOperation {
  std::string name = {};  // the launch's, or the kind of the collective
  int stream = 0;         // index in SimTrace::streams
  // The name of the collective's communicator, its mesh axes; empty for what is
  // no collective.
  std::string communicator = {};
  int64_t begin_ps = 0;
  int64_t end_ps = 0;

  friend bool operator==(const SimOperation&, const SimOperation&) = default;
};

// From `time_ps` on `bytes` are allocated under `tag`, until the tag's next
// sample.
struct SimMemorySample {
  int64_t time_ps = 0;
  std::string tag = {};
  int64_t bytes = 0;

  friend bool operator==(const SimMemorySample&,
                         const SimMemorySample&) = default;
};

// What one simulated device did.
struct SimTrace {
  int64_t begin_ps = 0;                   // since when
  std::vector<std::string> streams = {};  // names, in the order they were made
  std::vector<SimOperation> operations = {};  // in the order they were enqueued
  // By time, then by tag. Memory that is given back in the order of a stream is
  // gone once the stream has come there, so that at one time more may be
  // allocated here than by the accounts (see MemoryAccountant), or less.
  std::vector<SimMemorySample> memory = {};
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
struct SimTimes {
  struct Communication {
    int64_t busy_ps = 0;
    int64_t exposed_ps = 0;

    friend bool operator==(const Communication&,
                           const Communication&) = default;
  };

  int64_t total_ps = 0;          // from begin_ps to the last end
  std::vector<int64_t> busy_ps;  // by stream, as in SimTrace::streams
  std::map<std::string, Communication> communicators;  // by name
  Communication communication;                         // of any communicator
};

// `compute_stream` names the stream on which the trainer computes.
SimTimes TimesOf(const SimTrace& trace, absl::string_view compute_stream);

// The trace in the JSON of Chrome's trace viewer and of Perfetto: one process
// `rank`, one thread per stream, a slice per operation, a counter of memory by
// tag where it was recorded; times in microseconds.
std::string ToChromeTrace(const SimTrace& trace, int rank);

}  // namespace tessera

#endif  // TESSERA_DEVICE_SIM_SIM_TRACE_H_

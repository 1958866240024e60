#ifndef TESSERA_TESTING_RUN_SCHEDULED_RANKS_H_
#define TESSERA_TESTING_RUN_SCHEDULED_RANKS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "tessera/comm/comm_set.h"
#include "tessera/device/device.h"
#include "tessera/device/stream.h"
#include "tessera/testing/race_detector.h"

namespace tessera::testing {

// What the program of one rank gets to work with: as LocalRank, on another
// device. Owned by RunScheduledRanks.
struct ScheduledRank {
  int rank;
  int num_ranks;
  Device& device;
  Stream& stream;  // the rank's compute stream; `comms.world()` is on it
  CommSet& comms;
};

// One call of Stream::Wait.
struct DroppedWait {
  int rank = 0;
  int64_t call = 0;  // counts the rank's calls, from 0
};

struct ScheduledRunOptions {
  uint64_t seed = 0;
  // Is taken out of the program, as if somebody had forgotten it.
  std::optional<DroppedWait> drop_wait = std::nullopt;
  int64_t memory_limit_bytes = INT64_MAX;
  // So many problems of each rank are listed.
  int max_problems = 20;
};

// What a run was like.
struct ScheduledReport {
  // What RaceDetector and ScheduledWorld found; those that are listed.
  std::vector<std::string> problems;
  // By rank, then in the order of the calls.
  std::vector<std::vector<StreamWait>> waits;
  // What was done, one after the other: "rank 0", a rank's program goes on;
  // "copy on stream 'compute' of rank 0", an operation runs.
  std::vector<std::string> steps;
};

// RunRanks to find what comes out right by luck only. One thing is done at a
// time: a rank's program goes on to its next call of a stream, or a stream runs
// its next operation; which one, of all that could, options.seed says. The same
// seed gives the same run.
//
//   for (uint64_t seed = 0; seed < 10; ++seed) {
//     EXPECT_OK(RunScheduledRanks(4, [&](ScheduledRank& rank) {
//       return Train(rank.comms, rank.stream);
//     }, {.seed = seed}));
//   }
//
// The kernels are the CPU's and the collectives those of the local backend, so
// the bits are as there. What is found besides, and returned as
// FailedPrecondition, every problem in a line of its own:
// * what RaceDetector finds on a rank's device: operations on different streams
//   that access the same memory and are not ordered by an event or by the host,
//   memory that is used after or while it is freed, or that is not the
//   device's. This does not depend on the seed.
// * bytes around or in freed memory that were written, by whatever it was.
// * two ranks that issue the collectives that they share, over all
//   communicators, in different orders.
// Where nothing can go on (waits in a circle) every rank fails with
// FailedPrecondition, with what everybody waits for. A rank that ends while
// others wait for it, and ranks that disagree, make them fail as on the local
// backend. The errors of ranks are listed as RunRanks lists them, behind the
// problems.
//
// A program calls its device, streams and communicators on the thread that it
// is called on, waits for other ranks through them only, and looks at the
// memory of its device once it has waited for the stream that writes it.
// Accesses to it by the program itself are not seen.
absl::Status RunScheduledRanks(
    int num_ranks, absl::FunctionRef<absl::Status(ScheduledRank&)> program,
    const ScheduledRunOptions& options = {}, ScheduledReport* report = nullptr);

}  // namespace tessera::testing

#endif  // TESSERA_TESTING_RUN_SCHEDULED_RANKS_H_

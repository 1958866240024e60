#ifndef TESSERA_COMM_LOCAL_RUN_RANKS_H_
#define TESSERA_COMM_LOCAL_RUN_RANKS_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "tessera/comm/comm_set.h"
#include "tessera/comm/local/local_world.h"
#include "tessera/device/cpu/cpu_device.h"

namespace tessera {

// What the program of one rank gets to work with. Owned by RunLocalRanks.
struct LocalRank {
  int rank;
  int num_ranks;
  CpuDevice& device;
  Stream& stream;  // the rank's compute stream; `comms.world()` is on it
  CommSet& comms;
};

struct LocalRunOptions {
  CpuDevice::Options device = {};
  LocalWorld::Options world = {};
  // Keeps each rank's thread, and those that it starts, on one of the
  // processors that the caller may use, rank r on the (r mod n)-th of n; where
  // the system does not allow that, it changes nothing. With fewer processors
  // than ranks, systems at times put threads that keep waking one another all
  // on one, and collectives of a megabyte take twice as long. Not for programs
  // that share their own work out to more threads: these stay there as well.
  bool bind_to_processors = false;
};

// Runs `program` once per rank, each on a thread of its own with a device, a
// stream and communicators, and joins them. A rank that returns an error makes
// the others' pending operations fail instead of hang. Returns OK, or the error
// of the rank that failed first, with "rank N: " before its message: Aborted,
// which comes from another rank's failure, only where there is no other;
// InvalidArgument for num_ranks < 1.
absl::Status RunLocalRanks(int num_ranks,
                           absl::FunctionRef<absl::Status(LocalRank&)> program,
                           const LocalRunOptions& options = {});

}  // namespace tessera

#endif  // TESSERA_COMM_LOCAL_RUN_RANKS_H_

#ifndef TESSERA_COMM_LOCAL_LOCAL_WORLD_H_
#define TESSERA_COMM_LOCAL_LOCAL_WORLD_H_

#include <chrono>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tessera/comm/comm_log.h"
#include "tessera/comm/communicator.h"
#include "tessera/device/stream.h"

namespace tessera {
namespace internal {
class LocalRegistry;
}

// Ranks as threads of one process that reach each other's memory: the `local`
// backend. Nothing is staged: what a rank receives goes straight from its
// peers' send to its recv, by its own thread or by that of a peer which has
// nothing left to do; where that is little, the last rank to come does it for
// all. Reductions go in ascending group rank whatever the chunking, so they are
// bitwise equal from run to run.
//
//   LocalWorld world(4);
//   // on the thread of rank r:
//   TESSERA_ASSIGN_OR_RETURN(auto comm, world.Join(r, stream));
//
// Thread-safe. LIFETIME: may be destroyed before its communicators, which keep
// alive what they share.
class LocalWorld {
 public:
  struct Options {
    // How long a rank waits for the others in one operation.
    std::chrono::milliseconds timeout = std::chrono::seconds(60);
  };

  // REQUIRES: num_ranks >= 1.
  explicit LocalWorld(int num_ranks) : LocalWorld(num_ranks, Options{}) {}
  LocalWorld(int num_ranks, Options options);

  int num_ranks() const { return num_ranks_; }

  // The communicator of all ranks as `rank` sees it, named "world". Each
  // rank's n-th call joins the n-th group of all ranks; it does not wait for
  // the others. `log` counts the rank's collectives; null makes one.
  // ERRORS: InvalidArgument for a rank outside [0, num_ranks).
  absl::StatusOr<std::unique_ptr<Communicator>> Join(
      int rank, Stream& stream, std::shared_ptr<CommLog> log = nullptr);

  // Says that the program of `rank` has ended. Ranks that wait for it, now or
  // later, get Aborted with `status`; operations it took part in still end.
  void Leave(int rank, const absl::Status& status);

 private:
  const int num_ranks_;
  const std::shared_ptr<internal::LocalRegistry> registry_;
};

}  // namespace tessera

#endif  // TESSERA_COMM_LOCAL_LOCAL_WORLD_H_

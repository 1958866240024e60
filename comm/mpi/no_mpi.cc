// In place of the backend in builds without MPI.

#include "tessera/comm/mpi/mpi_world.h"

namespace tessera {
namespace internal {
class MpiGroup {};
}  // namespace internal

namespace {

absl::Status NotBuilt() {
  return absl::UnavailableError(
      "comm: this build has no MPI; configure it with TESSERA_MPI=ON");
}

}  // namespace

absl::Status StartMpi() { return NotBuilt(); }
absl::Status FinishMpi() { return NotBuilt(); }

absl::StatusOr<MpiWorld> MpiWorld::Create(const Options&) { return NotBuilt(); }
absl::StatusOr<MpiWorld> MpiWorld::CreateFrom(int, const Options&) {
  return NotBuilt();
}

// There is no world to ask.
int MpiWorld::rank() const { return 0; }
int MpiWorld::num_ranks() const { return 0; }
absl::StatusOr<std::unique_ptr<Communicator>> MpiWorld::Join(
    Stream&, std::shared_ptr<CommLog>) {
  return NotBuilt();
}

}  // namespace tessera

// In place of the backend in builds without NCCL.

#include "tessera/comm/nccl/nccl_window.h"
#include "tessera/comm/nccl/nccl_world.h"

namespace tessera {
namespace internal {
class NcclGroup {};
}  // namespace internal

namespace {

absl::Status NotBuilt() {
  return absl::UnavailableError(
      "comm: this build has no NCCL; configure it with TESSERA_NCCL=ON");
}

}  // namespace

absl::StatusOr<NcclId> NewNcclId() { return NotBuilt(); }

absl::StatusOr<std::unique_ptr<NcclAllocator>> NcclAllocator::Create() {
  return NotBuilt();
}

absl::StatusOr<std::unique_ptr<NcclWindow>> NcclWindow::Create(Communicator&,
                                                               int64_t) {
  return NotBuilt();
}

absl::StatusOr<NcclWorld> NcclWorld::Create(CudaDevice&, const NcclId&, int,
                                            int, const Options&) {
  return NotBuilt();
}
absl::StatusOr<NcclWorld> NcclWorld::CreateFrom(CudaDevice&, Communicator&,
                                                const Options&) {
  return NotBuilt();
}
absl::StatusOr<NcclWorld> NcclWorld::CreateFromEnvironment(CudaDevice&,
                                                           const Options&) {
  return NotBuilt();
}
absl::StatusOr<NcclWorld> NcclWorld::Borrow(CudaDevice&, void*,
                                            const Options&) {
  return NotBuilt();
}

// There is no world to ask.
int NcclWorld::rank() const { return 0; }
int NcclWorld::num_ranks() const { return 0; }
absl::StatusOr<std::unique_ptr<Communicator>> NcclWorld::Join(
    Stream&, std::shared_ptr<CommLog>) {
  return NotBuilt();
}
absl::Status NcclWorld::Check() { return NotBuilt(); }

}  // namespace tessera

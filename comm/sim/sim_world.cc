#include "tessera/comm/sim/sim_world.h"

#include <numeric>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tessera/comm/sim/link_tiers.h"
#include "tessera/comm/sim/sim_communicator.h"

namespace tessera {

absl::StatusOr<SimWorld> SimWorld::Create(const DeviceMesh& mesh,
                                          const Topology& topology) {
  if (mesh.offset() != 0 || mesh.end_rank() != mesh.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("comm: a simulated world wants a mesh of the ranks [0,",
                     mesh.size(), "), found '", mesh.ToString(), "'"));
  }
  return SimWorld(std::make_shared<internal::LinkTiers>(mesh, topology));
}

int SimWorld::num_ranks() const { return tiers_->mesh().size(); }

absl::StatusOr<std::unique_ptr<Communicator>> SimWorld::Join(
    int rank, Stream& stream, std::shared_ptr<CommLog> log) const {
  if (rank < 0 || rank >= num_ranks()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "comm: rank ", rank, " is not in a world of ", num_ranks()));
  }
  std::vector<int> all(num_ranks());
  std::iota(all.begin(), all.end(), 0);
  if (log == nullptr) log = std::make_shared<CommLog>();
  return internal::SimCommunicator::Create(tiers_, std::move(all), rank,
                                           "world", stream, std::move(log));
}

}  // namespace tessera

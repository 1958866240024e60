#include "tessera/comm/local/local_world.h"

#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tessera/comm/local/local_communicator.h"
#include "tessera/comm/local/local_registry.h"

namespace tessera {

LocalWorld::LocalWorld(int num_ranks, Options options)
    : num_ranks_(num_ranks),
      registry_(std::make_shared<internal::LocalRegistry>(options.timeout)) {}

absl::StatusOr<std::unique_ptr<Communicator>> LocalWorld::Join(
    int rank, Stream& stream, std::shared_ptr<CommLog> log) {
  if (rank < 0 || rank >= num_ranks_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "comm: rank ", rank, " is not in a world of ", num_ranks_));
  }
  std::vector<int> all(num_ranks_);
  std::iota(all.begin(), all.end(), 0);
  if (log == nullptr) log = std::make_shared<CommLog>();
  return std::make_unique<internal::LocalCommunicator>(
      registry_, /*parent=*/nullptr, std::move(all), rank, "world", stream,
      std::move(log));
}

void LocalWorld::Leave(int rank, const absl::Status& status) {
  registry_->Leave(rank,
                   status.ok() ? "its program has ended" : status.ToString());
}

}  // namespace tessera

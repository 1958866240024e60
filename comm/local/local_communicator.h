#ifndef TESSERA_COMM_LOCAL_LOCAL_COMMUNICATOR_H_
#define TESSERA_COMM_LOCAL_LOCAL_COMMUNICATOR_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tessera/comm/comm_log.h"
#include "tessera/comm/communicator.h"
#include "tessera/comm/local/local_group.h"
#include "tessera/comm/local/local_registry.h"
#include "tessera/comm/operation_pool.h"
#include "tessera/device/stream.h"

namespace tessera::internal {

// One member's end of a LocalGroup.
class LocalCommunicator final : public Communicator {
 public:
  // Joins the next group of `members` that `parent` (see LocalRegistry::Join)
  // makes, as `members[rank]`.
  LocalCommunicator(std::shared_ptr<LocalRegistry> registry,
                    const std::shared_ptr<LocalGroup>& parent,
                    std::vector<int> members, int rank, absl::string_view name,
                    Stream& stream, std::shared_ptr<CommLog> log);

  absl::StatusOr<std::vector<std::string>> HostAllGather(
      absl::string_view value) override;
  void SetTimeout(std::chrono::milliseconds timeout) override;
  void Abort(const absl::Status& reason) override;

 private:
  absl::Status Enqueue(absl::Span<const Collective> calls,
                       int64_t sequence) override;
  absl::StatusOr<std::unique_ptr<Communicator>> MakeSubgroup(
      absl::Span<const int> members, absl::string_view name,
      Stream& stream) override;

  const std::shared_ptr<LocalRegistry> registry_;
  const std::shared_ptr<LocalGroup> group_;
  const std::shared_ptr<OperationPool> operations_;
};

}  // namespace tessera::internal

#endif  // TESSERA_COMM_LOCAL_LOCAL_COMMUNICATOR_H_

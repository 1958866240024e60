#ifndef TESSERA_COMM_SIM_SIM_COMMUNICATOR_H_
#define TESSERA_COMM_SIM_SIM_COMMUNICATOR_H_

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
#include "tessera/comm/sim/group_prices.h"
#include "tessera/comm/sim/link_tiers.h"
#include "tessera/device/sim/sim_stream.h"

namespace tessera::internal {

// The end of a simulated group that the one rank there is holds.
class SimCommunicator final : public Communicator {
 public:
  // ERRORS: InvalidArgument for a stream of another device than a SimDevice.
  static absl::StatusOr<std::unique_ptr<Communicator>> Create(
      std::shared_ptr<const LinkTiers> tiers, std::vector<int> members,
      int rank, absl::string_view name, Stream& stream,
      std::shared_ptr<CommLog> log);

  absl::StatusOr<std::vector<std::string>> HostAllGather(
      absl::string_view value) override;
  void Abort(const absl::Status& reason) override;

 private:
  SimCommunicator(std::shared_ptr<const LinkTiers> tiers,
                  std::vector<int> members, int rank, absl::string_view name,
                  SimStream& stream, std::shared_ptr<CommLog> log);

  absl::Status Enqueue(absl::Span<const Collective> calls,
                       int64_t sequence) override;
  absl::StatusOr<std::unique_ptr<Communicator>> MakeSubgroup(
      absl::Span<const int> members, absl::string_view name,
      Stream& stream) override;

  const std::shared_ptr<const LinkTiers> tiers_;
  const GroupPrices prices_;
  SimStream& sim_stream_;
  absl::Status aborted_;  // OK until then
};

}  // namespace tessera::internal

#endif  // TESSERA_COMM_SIM_SIM_COMMUNICATOR_H_

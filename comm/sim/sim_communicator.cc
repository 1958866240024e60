#include "tessera/comm/sim/sim_communicator.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tessera/base/status_macros.h"
#include "tessera/device/device.h"

namespace tessera::internal {

absl::StatusOr<std::unique_ptr<Communicator>> SimCommunicator::Create(
    std::shared_ptr<const LinkTiers> tiers, std::vector<int> members, int rank,
    absl::string_view name, Stream& stream, std::shared_ptr<CommLog> log) {
  auto* const sim_stream = dynamic_cast<SimStream*>(&stream);
  if (sim_stream == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "comm: '", name, "' wants a stream of a simulated device, found '",
        stream.name(), "' of ", stream.device().name()));
  }
  return std::unique_ptr<Communicator>(
      new SimCommunicator(std::move(tiers), std::move(members), rank, name,
                          *sim_stream, std::move(log)));
}

SimCommunicator::SimCommunicator(std::shared_ptr<const LinkTiers> tiers,
                                 std::vector<int> members, int rank,
                                 absl::string_view name, SimStream& stream,
                                 std::shared_ptr<CommLog> log)
    : Communicator(std::move(members), rank, name, stream, std::move(log)),
      tiers_(std::move(tiers)),
      prices_(*tiers_, this->members(), rank),
      sim_stream_(stream) {}

absl::StatusOr<std::vector<std::string>> SimCommunicator::HostAllGather(
    absl::string_view value) {
  TESSERA_RETURN_IF_ERROR(aborted_);
  return std::vector<std::string>(size(), std::string(value));
}

void SimCommunicator::Abort(const absl::Status& reason) {
  if (size() == 1 || !aborted_.ok()) return;
  aborted_ = absl::AbortedError(
      absl::StrCat("comm: '", name(), "' is aborted: by rank ",
                   members()[rank()], ": ", reason.ToString()));
}

absl::Status SimCommunicator::Enqueue(absl::Span<const Collective> calls,
                                      int64_t) {
  TESSERA_RETURN_IF_ERROR(aborted_);
  sim_stream_.LaunchCollective(CollectiveKindName(calls.front().kind), name(),
                               prices_.TimeOf(calls));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Communicator>> SimCommunicator::MakeSubgroup(
    absl::Span<const int> members, absl::string_view name, Stream& stream) {
  TESSERA_RETURN_IF_ERROR(aborted_);
  Subset subset = SubsetOf(members);
  return Create(tiers_, std::move(subset.members), subset.rank, name, stream,
                log());
}

}  // namespace tessera::internal

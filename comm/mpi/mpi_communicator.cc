#include "tessera/comm/mpi/mpi_communicator.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tessera/base/status_macros.h"

namespace tessera::internal {

MpiCommunicator::MpiCommunicator(std::shared_ptr<MpiGroup> group,
                                 absl::string_view name, Stream& stream,
                                 std::shared_ptr<CommLog> log)
    : Communicator(group->members(), group->rank(), name, stream,
                   std::move(log)),
      group_(std::move(group)),
      operations_(std::make_shared<OperationPool>(
          group_, rank(), this->members()[rank()], stream, this->log(),
          progress())) {}

absl::StatusOr<std::vector<std::string>> MpiCommunicator::HostAllGather(
    absl::string_view value) {
  return group_->HostAllGather(value);
}

void MpiCommunicator::SetTimeout(std::chrono::milliseconds timeout) {
  group_->SetTimeout(timeout);
}

void MpiCommunicator::Abort(const absl::Status& reason) {
  if (size() == 1) return;
  group_->Abort(
      absl::StrCat("by rank ", members()[rank()], ": ", reason.ToString()));
}

absl::Status MpiCommunicator::Enqueue(absl::Span<const Collective> calls,
                                      int64_t sequence) {
  return operations_->Launch(calls, sequence, name());
}

absl::StatusOr<std::unique_ptr<Communicator>> MpiCommunicator::MakeSubgroup(
    absl::Span<const int> members, absl::string_view name, Stream& stream) {
  TESSERA_ASSIGN_OR_RETURN(std::shared_ptr<MpiGroup> group,
                           group_->MakeGroup(members, name));
  return std::make_unique<MpiCommunicator>(std::move(group), name, stream,
                                           log());
}

}  // namespace tessera::internal

#include "tessera/comm/local/local_communicator.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tessera/base/status_macros.h"

namespace tessera::internal {

LocalCommunicator::LocalCommunicator(std::shared_ptr<LocalRegistry> registry,
                                     const std::shared_ptr<LocalGroup>& parent,
                                     std::vector<int> members, int rank,
                                     absl::string_view name, Stream& stream,
                                     std::shared_ptr<CommLog> log)
    : Communicator(std::move(members), rank, name, stream, std::move(log)),
      registry_(std::move(registry)),
      group_(registry_->Join(parent,
                             {this->members().begin(), this->members().end()},
                             this->members()[rank], name)),
      operations_(std::make_shared<OperationPool>(group_, rank,
                                                  this->members()[rank], stream,
                                                  this->log(), progress())) {
  group_->Enter(rank, stream);
}

absl::StatusOr<std::vector<std::string>> LocalCommunicator::HostAllGather(
    absl::string_view value) {
  return group_->HostAllGather(rank(), value);
}

void LocalCommunicator::SetTimeout(std::chrono::milliseconds timeout) {
  group_->SetTimeout(rank(), timeout);
}

void LocalCommunicator::Abort(const absl::Status& reason) {
  if (size() == 1) return;
  group_->Abort(
      absl::StrCat("by rank ", members()[rank()], ": ", reason.ToString()));
}

absl::Status LocalCommunicator::Enqueue(absl::Span<const Collective> calls,
                                        int64_t sequence) {
  return operations_->Launch(calls, sequence, name());
}

absl::StatusOr<std::unique_ptr<Communicator>> LocalCommunicator::MakeSubgroup(
    absl::Span<const int> members, absl::string_view name, Stream& stream) {
  TESSERA_RETURN_IF_ERROR(group_->status());
  Subset subset = SubsetOf(members);
  return std::make_unique<LocalCommunicator>(registry_, group_,
                                             std::move(subset.members),
                                             subset.rank, name, stream, log());
}

}  // namespace tessera::internal

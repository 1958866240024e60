#include "tessera/comm/nccl/nccl_communicator.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tessera/base/status_macros.h"
#include "tessera/device/device.h"

namespace tessera::internal {

NcclCommunicator::NcclCommunicator(std::shared_ptr<NcclGroup> group,
                                   CudaStream& stream,
                                   std::shared_ptr<CommLog> log)
    : Communicator(group->members(), group->rank(), group->name(), stream,
                   std::move(log)),
      group_(std::move(group)),
      cuda_stream_(stream) {
  group_->Watch(stream);
}

absl::StatusOr<std::vector<std::string>> NcclCommunicator::HostAllGather(
    absl::string_view value) {
  return group_->HostAllGather(value);
}

void NcclCommunicator::SetTimeout(std::chrono::milliseconds timeout) {
  group_->SetTimeout(timeout);
}

void NcclCommunicator::Abort(const absl::Status& reason) {
  group_->Abort(
      absl::StrCat("by rank ", members()[rank()], ": ", reason.ToString()));
}

absl::Status NcclCommunicator::Enqueue(absl::Span<const Collective> calls,
                                       int64_t sequence) {
  return group_->Issue(cuda_stream_, calls, sequence);
}

absl::StatusOr<std::unique_ptr<Communicator>> NcclCommunicator::MakeSubgroup(
    absl::Span<const int> members, absl::string_view name, Stream& stream) {
  TESSERA_ASSIGN_OR_RETURN(CudaStream* const cuda_stream,
                           CudaStreamOf(*group_->context(), stream, name));
  TESSERA_ASSIGN_OR_RETURN(std::shared_ptr<NcclGroup> group,
                           group_->MakeGroup(members, name));
  return std::make_unique<NcclCommunicator>(std::move(group), *cuda_stream,
                                            log());
}

absl::StatusOr<std::unique_ptr<Communicator>> NcclCommunicator::MakePartition(
    absl::Span<const int> members, absl::string_view name, Stream& stream) {
  TESSERA_ASSIGN_OR_RETURN(CudaStream* const cuda_stream,
                           CudaStreamOf(*group_->context(), stream, name));
  TESSERA_ASSIGN_OR_RETURN(std::shared_ptr<NcclGroup> group,
                           group_->Partition(members, name));
  if (group == nullptr) return nullptr;
  return std::make_unique<NcclCommunicator>(std::move(group), *cuda_stream,
                                            log());
}

absl::StatusOr<CudaStream*> CudaStreamOf(const NcclContext& context,
                                         Stream& stream,
                                         absl::string_view group) {
  auto* const cuda_stream = dynamic_cast<CudaStream*>(&stream);
  if (cuda_stream != nullptr && &stream.device() == &context.device()) {
    return cuda_stream;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "comm: '", group, "' wants a stream of ", context.device().name(),
      ", found '", stream.name(), "' of ", stream.device().name()));
}

}  // namespace tessera::internal

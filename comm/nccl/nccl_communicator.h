#ifndef TESSERA_COMM_NCCL_NCCL_COMMUNICATOR_H_
#define TESSERA_COMM_NCCL_NCCL_COMMUNICATOR_H_

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
#include "tessera/comm/nccl/nccl_comm.h"
#include "tessera/comm/nccl/nccl_group.h"
#include "tessera/device/cuda/cuda_stream.h"
#include "tessera/device/stream.h"

namespace tessera::internal {

// This rank's end of an NcclGroup, on a stream.
class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::shared_ptr<NcclGroup> group, CudaStream& stream,
                   std::shared_ptr<CommLog> log);

  // Null in a group of one.
  const std::shared_ptr<NcclComm>& comm() const { return group_->comm(); }
  // Of the GPU.
  int ordinal() const { return group_->context()->device().ordinal(); }

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

  absl::StatusOr<std::unique_ptr<Communicator>> MakePartition(
      absl::Span<const int> members, absl::string_view name,
      Stream& stream) override;

  const std::shared_ptr<NcclGroup> group_;
  CudaStream& cuda_stream_;
};

// `stream` as one of the GPU of this context.
// ERRORS: InvalidArgument for any other, naming the group that wants it.
absl::StatusOr<CudaStream*> CudaStreamOf(const NcclContext& context,
                                         Stream& stream,
                                         absl::string_view group);

}  // namespace tessera::internal

#endif  // TESSERA_COMM_NCCL_NCCL_COMMUNICATOR_H_

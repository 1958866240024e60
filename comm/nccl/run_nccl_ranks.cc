#include "tessera/comm/nccl/run_nccl_ranks.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/call_program.h"
#include "tessera/comm/rank_threads.h"

namespace tessera {
namespace {

using Program = absl::FunctionRef<absl::Status(NcclRank&)>;

// All of them before any rank begins: none waits for one that has no GPU.
absl::StatusOr<std::vector<std::unique_ptr<CudaDevice>>> OpenDevices(
    int num_ranks) {
  TESSERA_ASSIGN_OR_RETURN(const int gpus, CudaDeviceCount());
  if (gpus < num_ranks) {
    return absl::UnavailableError(absl::StrCat(
        "comm: want a GPU for each of ", num_ranks, " ranks, found ", gpus));
  }
  std::vector<std::unique_ptr<CudaDevice>> devices;
  for (int rank = 0; rank < num_ranks; ++rank) {
    TESSERA_ASSIGN_OR_RETURN(auto device, CudaDevice::Create(rank));
    devices.push_back(std::move(device));
  }
  return devices;
}

absl::Status RunRank(CudaDevice& device, const NcclId& id, int num_ranks,
                     const NcclWorld::Options& options, Program program) {
  TESSERA_ASSIGN_OR_RETURN(const auto stream, device.NewStream("compute"));
  TESSERA_ASSIGN_OR_RETURN(
      NcclWorld world,
      NcclWorld::Create(device, id, device.ordinal(), num_ranks, options));
  TESSERA_ASSIGN_OR_RETURN(const auto comm, world.Join(*stream));
  CommSet comms(*comm);
  NcclRank rank = {device.ordinal(), num_ranks, device, *stream, comms};
  absl::Status status = internal::CallProgram([&] { return program(rank); });
  if (!status.ok()) comm->Abort(status);
  status.Update(stream->Synchronize());
  return status;
}

}  // namespace

absl::Status RunNcclRanks(int num_ranks, Program program,
                          const NcclWorld::Options& options) {
  if (num_ranks < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("comm: want at least 1 rank, found ", num_ranks));
  }
  TESSERA_ASSIGN_OR_RETURN(const auto devices, OpenDevices(num_ranks));
  TESSERA_ASSIGN_OR_RETURN(const NcclId id, NewNcclId());
  internal::FirstError error;
  const auto end = [&](int rank, const absl::Status& status) {
    error.Report(rank, status);
  };
  internal::RunOnThreads(
      num_ranks,
      [&](int rank) {
        end(rank, RunRank(*devices[rank], id, num_ranks, options, program));
      },
      end);
  return error.Get();
}

}  // namespace tessera

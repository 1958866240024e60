#include "tessera/comm/nccl/nccl_world.h"

#include <nccl.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/nccl/nccl_communicator.h"
#include "tessera/comm/nccl/nccl_group.h"
#include "tessera/comm/nccl/nccl_status.h"
#include "tessera/comm/nccl/rendezvous.h"
#include "tessera/device/cuda/cuda_status.h"

namespace tessera {
namespace {

using internal::NcclContext;
using internal::NcclGroup;
using internal::NcclStatus;

constexpr absl::string_view kWorld = "world";

std::vector<int> RanksBelow(int end) {
  std::vector<int> ranks(end);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

absl::string_view BytesOf(const NcclId& id) {
  return {id.bytes.data(), id.bytes.size()};
}

// REQUIRES: as many bytes as an id has.
NcclId IdOf(absl::string_view bytes) {
  NcclId id;
  std::memcpy(id.bytes.data(), bytes.data(), id.bytes.size());
  return id;
}

}  // namespace

absl::StatusOr<NcclId> NewNcclId() {
  ncclUniqueId unique;
  TESSERA_RETURN_IF_ERROR(
      NcclStatus("ncclGetUniqueId", ncclGetUniqueId(&unique)));
  return IdOf({unique.internal, sizeof(unique.internal)});
}

absl::StatusOr<NcclWorld> NcclWorld::Create(CudaDevice& device,
                                            const NcclId& id, int rank,
                                            int num_ranks,
                                            const Options& options) {
  if (rank < 0 || rank >= num_ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat("comm: want a rank in [0,", num_ranks, "), found ", rank));
  }
  TESSERA_ASSIGN_OR_RETURN(
      std::shared_ptr<NcclGroup> all,
      NcclGroup::Create(std::make_shared<NcclContext>(device, options), id,
                        std::string(kWorld), RanksBelow(num_ranks), rank));
  return NcclWorld(std::move(all));
}

absl::StatusOr<NcclWorld> NcclWorld::CreateFrom(CudaDevice& device,
                                                Communicator& host,
                                                const Options& options) {
  absl::StatusOr<NcclId> id = NcclId();
  if (host.rank() == 0) id = NewNcclId();
  // Without an id the others are told so.
  TESSERA_ASSIGN_OR_RETURN(
      const std::vector<std::string> given,
      host.HostAllGather(host.rank() == 0 && id.ok() ? BytesOf(*id) : ""));
  TESSERA_RETURN_IF_ERROR(id.status());
  if (given[0].size() != id->bytes.size()) {
    return absl::AbortedError("comm: rank 0 has no ncclUniqueId to give");
  }
  return Create(device, IdOf(given[0]), host.rank(), host.size(), options);
}

absl::StatusOr<NcclWorld> NcclWorld::CreateFromEnvironment(
    CudaDevice& device, const Options& options) {
  TESSERA_ASSIGN_OR_RETURN(const internal::Rendezvous place,
                           internal::Rendezvous::FromEnvironment());
  NcclId id;
  if (place.rank == 0 && place.num_ranks > 1) {
    TESSERA_ASSIGN_OR_RETURN(id, NewNcclId());
  }
  TESSERA_ASSIGN_OR_RETURN(
      const std::string given,
      internal::ShareFromRankZero(place, BytesOf(id), options.timeout));
  return Create(device, IdOf(given), place.rank, place.num_ranks, options);
}

absl::StatusOr<NcclWorld> NcclWorld::Borrow(CudaDevice& device, void* nccl_comm,
                                            const Options& options) {
  const auto comm = static_cast<ncclComm_t>(nccl_comm);
  int ordinal = 0;
  int rank = 0;
  int size = 0;
  TESSERA_RETURN_IF_ERROR(
      NcclStatus("ncclCommCuDevice", ncclCommCuDevice(comm, &ordinal), comm));
  TESSERA_RETURN_IF_ERROR(
      NcclStatus("ncclCommUserRank", ncclCommUserRank(comm, &rank), comm));
  TESSERA_RETURN_IF_ERROR(
      NcclStatus("ncclCommCount", ncclCommCount(comm, &size), comm));
  if (ordinal != device.ordinal()) {
    return absl::InvalidArgumentError(
        absl::StrCat("comm: want an ncclComm_t of ", device.name(),
                     ", found one of cuda:", ordinal));
  }
  return NcclWorld(
      NcclGroup::Borrow(std::make_shared<NcclContext>(device, options), comm,
                        std::string(kWorld), size, rank));
}

int NcclWorld::rank() const { return all_->rank(); }

int NcclWorld::num_ranks() const { return all_->size(); }

absl::StatusOr<std::unique_ptr<Communicator>> NcclWorld::Join(
    Stream& stream, std::shared_ptr<CommLog> log) {
  TESSERA_ASSIGN_OR_RETURN(
      internal::CudaStream* const cuda_stream,
      internal::CudaStreamOf(*all_->context(), stream, kWorld));
  std::shared_ptr<NcclGroup> group = all_;
  if (!all_->TakeStream()) {
    TESSERA_ASSIGN_OR_RETURN(group,
                             all_->MakeGroup(RanksBelow(num_ranks()), kWorld));
  }
  if (log == nullptr) log = std::make_shared<CommLog>();
  return std::make_unique<internal::NcclCommunicator>(
      std::move(group), *cuda_stream, std::move(log));
}

absl::Status NcclWorld::Check() { return all_->context()->Check(); }

}  // namespace tessera

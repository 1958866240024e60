#include "tessera/comm/mpi/mpi_world.h"

#include <mpi.h>

#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/mpi/mpi_communicator.h"
#include "tessera/comm/mpi/mpi_group.h"
#include "tessera/comm/mpi/mpi_transport.h"

namespace tessera {
namespace {

std::vector<int> RanksBelow(int size) {
  std::vector<int> ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

absl::string_view ThreadLevelName(int level) {
  switch (level) {
    case MPI_THREAD_SINGLE:
      return "MPI_THREAD_SINGLE";
    case MPI_THREAD_FUNNELED:
      return "MPI_THREAD_FUNNELED";
    case MPI_THREAD_SERIALIZED:
      return "MPI_THREAD_SERIALIZED";
    default:
      return "MPI_THREAD_MULTIPLE";
  }
}

absl::Status CheckRunning() {
  int started = 0;
  int finished = 0;
  TESSERA_RETURN_IF_ERROR(
      internal::MpiStatus("MPI_Initialized", MPI_Initialized(&started)));
  TESSERA_RETURN_IF_ERROR(
      internal::MpiStatus("MPI_Finalized", MPI_Finalized(&finished)));
  if (started && !finished) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("comm: MPI is ", finished ? "finished" : "not started",
                   "; a world is made between MPI_Init and MPI_Finalize"));
}

absl::Status CheckMpi() {
  TESSERA_RETURN_IF_ERROR(CheckRunning());
  int level = 0;
  TESSERA_RETURN_IF_ERROR(
      internal::MpiStatus("MPI_Query_thread", MPI_Query_thread(&level)));
  if (level == MPI_THREAD_MULTIPLE) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "comm: want MPI_THREAD_MULTIPLE, found ", ThreadLevelName(level)));
}

}  // namespace

absl::Status StartMpi() {
  int started = 0;
  TESSERA_RETURN_IF_ERROR(
      internal::MpiStatus("MPI_Initialized", MPI_Initialized(&started)));
  if (started) {
    return absl::FailedPreconditionError("comm: MPI has been started already");
  }
  int level = 0;
  TESSERA_RETURN_IF_ERROR(internal::MpiStatus(
      "MPI_Init_thread",
      MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level)));
  if (level == MPI_THREAD_MULTIPLE) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "comm: this MPI does not serve several threads");
}

absl::Status FinishMpi() {
  // MPI ends the process where it is not there to be ended.
  TESSERA_RETURN_IF_ERROR(CheckRunning());
  return internal::MpiStatus("MPI_Finalize", MPI_Finalize());
}

absl::StatusOr<MpiWorld> MpiWorld::Create(const Options& options) {
  TESSERA_RETURN_IF_ERROR(CheckMpi());
  return CreateFrom(MPI_Comm_c2f(MPI_COMM_WORLD), options);
}

absl::StatusOr<MpiWorld> MpiWorld::CreateFrom(int comm,
                                              const Options& options) {
  TESSERA_RETURN_IF_ERROR(CheckMpi());
  TESSERA_ASSIGN_OR_RETURN(
      const std::shared_ptr<internal::MpiTransport> transport,
      internal::MpiTransport::Create(MPI_Comm_f2c(comm), options));
  constexpr int64_t kId = 0;  // of the first group, and of all ranks
  transport->TakeId(kId);
  return MpiWorld(std::make_shared<internal::MpiGroup>(
      transport, kId, "all ranks", RanksBelow(transport->size()),
      transport->rank()));
}

int MpiWorld::rank() const { return all_->rank(); }

int MpiWorld::num_ranks() const {
  return static_cast<int>(all_->members().size());
}

absl::StatusOr<std::unique_ptr<Communicator>> MpiWorld::Join(
    Stream& stream, std::shared_ptr<CommLog> log) {
  TESSERA_ASSIGN_OR_RETURN(std::shared_ptr<internal::MpiGroup> group,
                           all_->MakeGroup(RanksBelow(num_ranks()), "world"));
  if (log == nullptr) log = std::make_shared<CommLog>();
  return std::make_unique<internal::MpiCommunicator>(std::move(group), "world",
                                                     stream, std::move(log));
}

}  // namespace tessera

// A program of three ranks, of which rank 1 kills itself between two
// collectives. Survivors whose next collective fails exit with 3.
//
//   mpirun [--enable-recovery] -n 3 mpi_lost_rank

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tessera/base/status_macros.h"
#include "tessera/comm/mpi/mpi_world.h"
#include "tessera/device/cpu/cpu_device.h"

namespace tessera {
namespace {

constexpr int kSurvived = 3;

absl::Status SumTwice() {
  TESSERA_RETURN_IF_ERROR(StartMpi());
  TESSERA_ASSIGN_OR_RETURN(MpiWorld world, MpiWorld::Create());
  CpuDevice device;
  TESSERA_ASSIGN_OR_RETURN(const auto stream, device.NewStream("compute"));
  TESSERA_ASSIGN_OR_RETURN(const auto comm, world.Join(*stream));
  std::vector<float> memory(1 << 16, 1.0f);
  const TensorView view = TensorView::Flat(memory.data(), DType::kF32,
                                           static_cast<int64_t>(memory.size()));
  TESSERA_RETURN_IF_ERROR(comm->AllReduce(ReduceOp::kSum, view, view));
  // Survivors may be late by themselves, but not that late.
  comm->SetTimeout(std::chrono::milliseconds(3000));
  if (comm->rank() == 1) std::raise(SIGKILL);
  const absl::Status failure = comm->AllReduce(ReduceOp::kSum, view, view);
  // Whoever calls again is answered at once.
  if (failure.ok() || comm->Barrier().code() != absl::StatusCode::kAborted) {
    return absl::OkStatus();
  }
  return failure;
}

int Main() {
  const absl::Status status = SumTwice();
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::fflush(stderr);
  // MPI_Finalize would wait for the lost rank.
  std::_Exit(status.ok() ? EXIT_SUCCESS : kSurvived);
}

}  // namespace
}  // namespace tessera

int main() { return tessera::Main(); }

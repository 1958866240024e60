#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/comm_set.h"
#include "tessera/comm/mpi/mpi_world.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tests/comm/conformance/conformance.h"
#include "tests/comm/mpi_tests.h"

namespace tessera::testing {
namespace {

absl::Status RunThisRank(CpuStreams streams, ConformanceProgram program) {
  CpuDevice device({.streams = streams});
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream,
                           device.NewStream("compute"));
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> communicator,
                           MpiTestWorld().Join(*stream));
  CommSet comms(*communicator);
  ConformanceRank rank = {communicator->rank(), communicator->size(), device,
                          *stream, comms};
  const absl::Status status = program(rank);
  if (!status.ok()) communicator->Abort(status);
  return status;
}

ConformanceWorld Mpi(CpuStreams streams) {
  return {.name = streams == CpuStreams::kInline ? "Inline" : "Worker",
          .ranks = MpiTestWorld().num_ranks(),
          .run = [=](ConformanceProgram program) {
            return RunThisRank(streams, program);
          }};
}

// Where processes share few cores, one kind of stream will do.
std::vector<ConformanceWorld> Worlds() {
  if (MpiTestWorld().num_ranks() > 4) return {Mpi(CpuStreams::kWorker)};
  return {Mpi(CpuStreams::kInline), Mpi(CpuStreams::kWorker)};
}

INSTANTIATE_TEST_SUITE_P(Mpi, CommConformance, ::testing::ValuesIn(Worlds()),
                         WorldName);

}  // namespace
}  // namespace tessera::testing

#ifndef TESSERA_TESTS_EMULATION_RUN_EMULATED_GPUS_H_
#define TESSERA_TESTS_EMULATION_RUN_EMULATED_GPUS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "tessera/device/cuda/cuda_device.h"
#include "tessera/testing/run_scheduled_ranks.h"
#include "tests/emulation/machine.h"

namespace tessera::emulation {

// What the program of one rank gets to work with.
struct GpuRank {
  int rank;
  int num_ranks;
  CudaDevice& device;  // number `rank`
};

struct GpuRunOptions {
  uint64_t seed = 0;
  // Is taken out of the program, as if somebody had forgotten it.
  std::optional<testing::DroppedWait> drop_wait = std::nullopt;
  // Where a call fails, the device of its rank may not come to be.
  Machine::Options machine = {};
  CudaDevice::Options device = {};
};

struct GpuReport {
  // As testing::ScheduledReport.
  std::vector<std::string> problems;
  std::vector<std::vector<testing::StreamWait>> waits;
  std::vector<std::string> steps;
  std::vector<int64_t> calls;  // of CUDA and NCCL that may fail, by rank
};

// As testing::RunScheduledRanks, with Tessera's own CUDA sources on emulated
// GPUs, one for each rank. Problems are also: memory of a GPU that is not
// freed, uses of what is destroyed. One run at a time.
absl::Status RunEmulatedGpus(int num_ranks,
                             absl::FunctionRef<absl::Status(GpuRank&)> program,
                             const GpuRunOptions& options = {},
                             GpuReport* report = nullptr);

}  // namespace tessera::emulation

#endif  // TESSERA_TESTS_EMULATION_RUN_EMULATED_GPUS_H_

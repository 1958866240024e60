#ifndef TESSERA_TESTS_GPU_COMM_SPEED_H_
#define TESSERA_TESTS_GPU_COMM_SPEED_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tessera/comm/communicator.h"
#include "tessera/device/cuda/cuda_device.h"

namespace tessera::testing {

// How fast a collective is, as nccl-tests define busbw: what a link would have
// to carry, whatever the number of ranks.
struct CommSpeed {
  std::string collective;
  int64_t bytes = 0;  // of the larger side of a rank
  // Medians over turns; bytes a second.
  double nccl_busbw = 0;
  double tessera_busbw = 0;
  double ratio = 0;  // Tessera's to NCCL's, of each turn
};

struct CommSpeedOptions {
  std::vector<int64_t> sizes = {int64_t{1} << 20, int64_t{64} << 20,
                                int64_t{1} << 30};
  int turns = 7;  // each runs both
  int calls = 8;  // of a collective in a turn
};

// Tessera's all-reduce, reduce-scatter, all-gather and all-to-all of f32 beside
// the bare calls of NCCL in an ncclComm_t of the same ranks, on the same stream
// and memory. A turn takes as long as its slowest rank, from a barrier until
// the stream is done. COLLECTIVE over `world`, which is on `device` and gives
// all ranks the same answer.
// ERRORS: Internal with NCCL's own text; ResourceExhausted.
absl::StatusOr<std::vector<CommSpeed>> MeasureCommSpeed(
    CudaDevice& device, Communicator& world, const CommSpeedOptions& options);

// A line for each.
std::string ToTable(absl::Span<const CommSpeed> speeds);

}  // namespace tessera::testing

#endif  // TESSERA_TESTS_GPU_COMM_SPEED_H_

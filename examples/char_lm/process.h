#ifndef CHAR_LM_PROCESS_H_
#define CHAR_LM_PROCESS_H_

#include <chrono>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "char_lm/options.h"
#include "tessera/comm/comm_set.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tessera/device/stream.h"

namespace char_lm {

// How long a rank with a GPU waits for the others.
inline constexpr auto kNcclTimeout = std::chrono::minutes(2);

// What devices of a CPU are made with.
tessera::CpuDevice::Options CpuOptions(const Options& options);

// The program of one rank: its number, communicators of all ranks, and the
// stream that it computes on.
using RankProgram = absl::FunctionRef<absl::Status(
    int rank, tessera::CommSet& comms, tessera::Stream& compute)>;

// This process as one rank of a run, where ranks are processes.
class Process {
 public:
  // The one that mpirun has started, or, with a GPU, a launcher that sets RANK
  // and what NcclWorld::CreateFromEnvironment reads, and LOCAL_RANK, the number
  // of the GPU. Null where ranks are threads of this process. COLLECTIVE over
  // the processes.
  // ERRORS: Unavailable where the backend is not built in or, for kNccl, there
  // is no GPU; InvalidArgument for what the launcher has set, naming it; those
  // of the backend.
  static absl::StatusOr<std::shared_ptr<Process>> Join(const Options& options);

  virtual ~Process() = default;
  virtual int rank() const = 0;
  virtual int num_ranks() const = 0;

  // Runs the program of this rank, whose device has used no memory before.
  // COLLECTIVE over the processes.
  virtual absl::Status Run(RankProgram program) = 0;

  // Once all has gone well. COLLECTIVE over the processes.
  virtual absl::Status Finish() { return absl::OkStatus(); }
};

}  // namespace char_lm

#endif  // CHAR_LM_PROCESS_H_

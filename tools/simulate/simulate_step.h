#ifndef TESSERA_TOOLS_SIMULATE_SIMULATE_STEP_H_
#define TESSERA_TOOLS_SIMULATE_SIMULATE_STEP_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tessera/comm/comm_log.h"
#include "tessera/device/memory.h"
#include "tessera/device/trace.h"
#include "tessera/mesh/topology.h"
#include "tools/models/model.h"
#include "tools/simulate/model_trainer.h"

namespace tessera::tools {

// Rates at which the simulated device computes, at least 1. What has none
// takes no time.
struct DeviceRates {
  std::optional<int64_t> flops_per_second = std::nullopt;
  std::optional<int64_t> memory_bytes_per_second = std::nullopt;
};

// What a step of ModelTrainer costs rank 0. Times are picoseconds.
struct StepReport {
  // Along one mesh axis: zeros where there was no communication.
  struct Axis {
    std::string name;
    int64_t calls = 0;
    int64_t bytes_received = 0;
    int64_t busy_ps = 0;
    int64_t exposed_ps = 0;  // no computation ran meanwhile
  };

  int64_t step_ps = 0;
  int64_t compute_ps = 0;       // on the compute stream, collectives aside
  int64_t exposed_ps = 0;       // of any axis; what two expose together, once
  std::vector<Axis> axes = {};  // as in the mesh
  CommLog::Counters collectives = {};
  MemoryReport memory = {};  // with the peaks since the units were made
  Trace trace = {};          // of the step, memory included
};

// Trains two steps as rank 0 of the mesh, on a simulated device, and reports
// the second: what all but the first are like. ERRORS: those of
// SimWorld::Create and of ModelTrainer.
absl::StatusOr<StepReport> SimulateStep(const Model& model,
                                        const TrainingOptions& options,
                                        const Topology& topology,
                                        const DeviceRates& rates);

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_SIMULATE_SIMULATE_STEP_H_

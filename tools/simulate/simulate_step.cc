#include "tools/simulate/simulate_step.h"

#include <memory>

#include "absl/strings/string_view.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/sim/sim_world.h"
#include "tessera/device/sim/sim_device.h"

namespace tessera::tools {
namespace {

constexpr char kComputeStream[] = "compute";

// Of the launches on the compute stream.
int64_t ComputeTime(const Trace& trace) {
  int64_t time_ps = 0;
  for (const TracedOperation& operation : trace.operations) {
    const bool on_compute_stream =
        trace.streams[operation.stream] == kComputeStream;
    if (!on_compute_stream || !operation.communicator.empty()) continue;
    time_ps += operation.end_ps - operation.begin_ps;
  }
  return time_ps;
}

// The runtime communicates along one axis at a time: communicators have the
// axes' names.
StepReport::Axis AxisReport(const std::string& name, const TraceTimes& times,
                            const CommLog::Counters& collectives) {
  StepReport::Axis axis = {.name = name};
  for (const auto& [key, counter] : collectives) {
    if (key.first != name) continue;
    axis.calls += counter.calls;
    axis.bytes_received += counter.bytes_received;
  }
  const auto found = times.communicators.find(name);
  if (found == times.communicators.end()) return axis;
  axis.busy_ps = found->second.busy_ps;
  axis.exposed_ps = found->second.exposed_ps;
  return axis;
}

StepReport ReportOf(const SimDevice& device, const CommLog& log,
                    const DeviceMesh& mesh) {
  StepReport report = {.collectives = log.counters(),
                       .memory = device.memory(),
                       .trace = device.trace()};
  const TraceTimes times = TimesOf(report.trace, kComputeStream);
  report.step_ps = times.total_ps;
  report.compute_ps = ComputeTime(report.trace);
  report.exposed_ps = times.communication.exposed_ps;
  for (const MeshAxis& axis : mesh.axes()) {
    report.axes.push_back(AxisReport(axis.name, times, report.collectives));
  }
  return report;
}

}  // namespace

absl::StatusOr<StepReport> SimulateStep(const Model& model,
                                        const TrainingOptions& options,
                                        const Topology& topology,
                                        const DeviceRates& rates) {
  SimDevice device({.memory_bytes_per_second = rates.memory_bytes_per_second,
                    .flops_per_second = rates.flops_per_second,
                    .trace_memory = true});
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> compute,
                           device.NewStream(kComputeStream));
  TESSERA_ASSIGN_OR_RETURN(const SimWorld world,
                           SimWorld::Create(options.mesh, topology));
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> comm,
                           world.Join(/*rank=*/0, *compute));
  TESSERA_ASSIGN_OR_RETURN(
      const std::unique_ptr<ModelTrainer> trainer,
      ModelTrainer::Create(model, options, *comm, *compute));
  // Not the first step, before which nothing has run.
  TESSERA_RETURN_IF_ERROR(trainer->Step());
  device.ClearTrace();
  comm->log()->Clear();
  TESSERA_RETURN_IF_ERROR(trainer->Step());
  return ReportOf(device, *comm->log(), options.mesh);
}

}  // namespace tessera::tools

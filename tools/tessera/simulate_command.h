#ifndef TESSERA_TOOLS_TESSERA_SIMULATE_COMMAND_H_
#define TESSERA_TOOLS_TESSERA_SIMULATE_COMMAND_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "tessera/fsdp/placements.h"
#include "tessera/mesh/topology.h"
#include "tools/simulate/simulate_step.h"
#include "tools/tessera/program.h"

namespace CLI {
class App;
}

namespace tessera::tools {

// `tessera simulate`: what a training step of a model costs one of many ranks,
// as a table, as JSON and as a trace.
class SimulateCommand {
 public:
  // LIFETIME: the app writes to this object when it parses.
  void AddFlags(CLI::App& app);
  absl::StatusOr<Outcome> Run() const;

 private:
  // Those of --strategy or --placements.
  absl::StatusOr<UnitPlacements> Placements(const DeviceMesh& mesh) const;
  DeviceRates Rates(const Topology& topology) const;

  std::string model_;
  std::string mesh_;
  std::string strategy_;
  std::string placements_;
  std::string topology_ = "h100-ib";
  int64_t tokens_ = 0;
  int microbatches_ = 1;
  std::string optimizer_ = "sgd";
  OverlapOptions overlap_;
  double active_percent_ = 100;
  double tflops_ = 400;
  double memory_bandwidth_ = 0;  // GB/s; 0: the topology's
  std::string trace_path_;
  bool json_ = false;
};

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_TESSERA_SIMULATE_COMMAND_H_

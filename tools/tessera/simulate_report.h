#ifndef TESSERA_TOOLS_TESSERA_SIMULATE_REPORT_H_
#define TESSERA_TOOLS_TESSERA_SIMULATE_REPORT_H_

#include <string>

#include "tools/models/model.h"
#include "tools/simulate/simulate_step.h"

namespace tessera::tools {

// A simulated step and what it is a step of.
struct SimulateReport {
  Model model = {};
  std::string strategy = {};  // empty where placements were given
  TrainingOptions training = {};
  std::string topology = {};
  DeviceRates rates = {};
  StepReport step = {};

  // REQUIRES, both: rates are given.
  std::string ToTable() const;
  // As docs/simulate.schema.json describes it.
  std::string ToJson() const;
};

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_TESSERA_SIMULATE_REPORT_H_

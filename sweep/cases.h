#ifndef TESSERA_SWEEP_CASES_H_
#define TESSERA_SWEEP_CASES_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tessera/redistribute/plan_many.h"
#include "tessera/sweep/sweep.h"

namespace tessera::internal {

// One combination of a sweep.
struct SweepCase {
  // Mesh, tensor, layouts and, where there is nothing to measure, why.
  SweepRow row;
  std::optional<Redistribution> redistribution;
};

// All combinations, in the order of RunSweep. ERRORS: as there.
absl::StatusOr<std::vector<SweepCase>> SweepCases(const SweepSpec& spec);

}  // namespace tessera::internal

#endif  // TESSERA_SWEEP_CASES_H_

// A plan of this project checked without a test framework.

#include <iostream>

#include "shardings.h"
#include "tessera/base/status_macros.h"
#include "tessera/mesh/topology.h"
#include "tessera/redistribute/planner.h"
#include "tessera/testing/plan_checks.h"

namespace plan_tests {
namespace {

absl::Status Check() {
  TESSERA_ASSIGN_OR_RETURN(const Move move, GradientToShards());
  TESSERA_ASSIGN_OR_RETURN(
      const tessera::Plan plan,
      tessera::MakePlan(move.from, move.to, tessera::Topology::Unit()));
  TESSERA_RETURN_IF_ERROR(tessera::testing::CheckVerified(plan));
  TESSERA_RETURN_IF_ERROR(tessera::testing::CheckLaunchesAtMost(plan, 1));
  return tessera::testing::CheckNeverGathers(plan, "tp");
}

}  // namespace
}  // namespace plan_tests

int main() {
  const absl::Status status = plan_tests::Check();
  if (!status.ok()) std::cerr << status.message() << "\n";
  return status.ok() ? 0 : 1;
}

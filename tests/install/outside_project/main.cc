// Plans, proves and executes a redistribution with the installed library.

#include <iostream>

#include "tessera/base/status_macros.h"
#include "tessera/comm/local/run_ranks.h"
#include "tessera/mesh/topology.h"
#include "tessera/redistribute/execute.h"
#include "tessera/redistribute/planner.h"
#include "tessera/redistribute/sharded_tensor.h"
#include "tessera/redistribute/verify.h"

namespace {

using namespace tessera;

absl::Status Run() {
  TESSERA_ASSIGN_OR_RETURN(const DeviceMesh mesh,
                           DeviceMesh::Parse("dp=2,tp=2"));
  TESSERA_ASSIGN_OR_RETURN(const Layout from,
                           Layout::Parse("f32[6,4] [S(0), R]", mesh));
  TESSERA_ASSIGN_OR_RETURN(const Layout to, from.With("[R, S(1)]"));
  TESSERA_ASSIGN_OR_RETURN(const Plan plan,
                           MakePlan(from, to, Topology::LocalCpu()));
  TESSERA_RETURN_IF_ERROR(Verify(plan));
  std::cout << plan << "\n";
  return RunLocalRanks(mesh.size(), [&](LocalRank& rank) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(
        const ShardedTensor x,
        ShardedTensor::Allocate(from, rank.rank, rank.device));
    TESSERA_ASSIGN_OR_RETURN(
        const ShardedTensor y,
        ShardedTensor::Allocate(to, rank.rank, rank.device));
    return Execute(plan, x.local(), y.local(), rank.comms, rank.stream);
  });
}

}  // namespace

int main() {
  const absl::Status status = Run();
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}

#include <mpi.h>

#include <cstdio>

#include "absl/status/status.h"
#include "tessera/comm/mpi/mpi_world.h"

// A world wants MPI for all threads: this process has it for one.
int main() {
  const absl::Status before = tessera::MpiWorld::Create().status();
  int level = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SINGLE, &level);
  const absl::Status single = tessera::MpiWorld::Create().status();
  MPI_Finalize();
  std::printf("%s\n%s\n", before.ToString().c_str(), single.ToString().c_str());
  return absl::IsFailedPrecondition(before) &&
                 absl::IsFailedPrecondition(single)
             ? 0
             : 1;
}

#include <mpi.h>

#include <cstdio>

#include "absl/status/status.h"
#include "tessera/comm/mpi/mpi_world.h"

// A world wants MPI for all threads: this process has it for one. What is not
// there cannot be finished.
int main() {
  const absl::Status before = tessera::MpiWorld::Create().status();
  int level = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SINGLE, &level);
  const absl::Status single = tessera::MpiWorld::Create().status();
  const absl::Status finished = tessera::FinishMpi();
  const absl::Status again = tessera::FinishMpi();
  for (const absl::Status& status : {before, single, finished, again}) {
    std::printf("%s\n", status.ToString().c_str());
  }
  return absl::IsFailedPrecondition(before) &&
                 absl::IsFailedPrecondition(single) && finished.ok() &&
                 absl::IsFailedPrecondition(again)
             ? 0
             : 1;
}

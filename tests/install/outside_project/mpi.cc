#include <iostream>

#include "tessera/comm/mpi/mpi_world.h"

// There is no world before MPI_Init, nor without MPI.
int main() {
  const absl::Status status = tessera::MpiWorld::Create().status();
  std::cout << status << "\n";
  return absl::IsFailedPrecondition(status) || absl::IsUnavailable(status) ? 0
                                                                           : 1;
}

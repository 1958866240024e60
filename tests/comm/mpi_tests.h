#ifndef TESSERA_TESTS_COMM_MPI_TESTS_H_
#define TESSERA_TESTS_COMM_MPI_TESTS_H_

#include "tessera/comm/mpi/mpi_world.h"

namespace tessera::testing {

// The world of all processes of a test that mpirun has started: every process
// runs every case. There from before the first case to the end.
MpiWorld& MpiTestWorld();

}  // namespace tessera::testing

#endif  // TESSERA_TESTS_COMM_MPI_TESTS_H_

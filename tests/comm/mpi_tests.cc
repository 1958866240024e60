// The main function of tests that mpirun starts. The exit status of mpirun is
// not 0 where that of any process is not.

#include "tests/comm/mpi_tests.h"

#include <chrono>
#include <cstdio>
#include <optional>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace tessera::testing {
namespace {

std::optional<MpiWorld> test_world;

absl::Status MakeWorld() {
  absl::Status status = StartMpi();
  if (!status.ok()) return status;
  MpiWorld::Options options;
  // A rank that has failed leaves the others in the lurch.
  options.timeout = std::chrono::seconds(20);
  absl::StatusOr<MpiWorld> world = MpiWorld::Create(options);
  if (world.ok()) test_world = *std::move(world);
  return world.status();
}

int Main(int argc, char** argv) {
  const absl::Status status = MakeWorld();
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    return 1;
  }
  ::testing::InitGoogleTest(&argc, argv);
  const bool passed = RUN_ALL_TESTS() == 0;
  return FinishMpi().ok() && passed ? 0 : 1;
}

}  // namespace

MpiWorld& MpiTestWorld() { return *test_world; }

}  // namespace tessera::testing

int main(int argc, char** argv) { return tessera::testing::Main(argc, argv); }

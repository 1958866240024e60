#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/comm/mpi/mpi_world.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::StatusIs;
using ::testing::HasSubstr;

TEST(NoMpi, AnswersUnavailable) {
  const auto unavailable = StatusIs(absl::StatusCode::kUnavailable,
                                    HasSubstr("this build has no MPI"));
  EXPECT_THAT(StartMpi(), unavailable);
  EXPECT_THAT(MpiWorld::Create().status(), unavailable);
  EXPECT_THAT(MpiWorld::CreateFrom(0).status(), unavailable);
  EXPECT_THAT(FinishMpi(), unavailable);
}

}  // namespace
}  // namespace tessera

#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/comm/nccl/nccl_world.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using testing::StatusIs;

const auto kNotBuilt =
    StatusIs(absl::StatusCode::kUnavailable, HasSubstr("TESSERA_NCCL=ON"));

TEST(NoNcclTest, SaysHowToBuildTheBackend) {
  EXPECT_THAT(NewNcclId(), kNotBuilt);
  EXPECT_THAT(NcclAllocator::Create(), kNotBuilt);
}

}  // namespace
}  // namespace tessera

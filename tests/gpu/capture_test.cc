// A step captured in a CUDA graph, on real GPUs.

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/gpu/captured_steps.h"
#include "tests/gpu/run_gpu_ranks.h"
#include "tests/status_matchers.h"

namespace tessera::testing {
namespace {

TEST(GpuCaptureTest, AGraphTrainsAsStepsDo) {
  TESSERA_NEEDS_GPUS(1);
  EXPECT_OK(RunGpuRanks(std::min(FindGpus().count, 8), [](ScheduledRank& rank) {
    return CheckCapturedSteps(rank.comms.world());
  }));
}

}  // namespace
}  // namespace tessera::testing

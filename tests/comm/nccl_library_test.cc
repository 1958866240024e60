// The real libraries of CUDA and NCCL, on a host without a GPU.

#include <nccl.h>

#include <iostream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/comm/nccl/nccl_world.h"
#include "tessera/comm/nccl/run_nccl_ranks.h"
#include "tessera/device/cuda/cuda_device.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using testing::StatusIs;

TEST(NcclLibraryTest, IsTheOneOfTheHeader) {
  int version = 0;
  ASSERT_EQ(ncclGetVersion(&version), ncclSuccess);
  std::cout << "NCCL " << version << ", built with " << NCCL_VERSION_CODE
            << "\n";
  EXPECT_GE(version, NCCL_VERSION_CODE);
}

TEST(NcclLibraryTest, MakesIdsThatDiffer) {
  const auto one = NewNcclId();
  const auto two = NewNcclId();
  ASSERT_OK(one);
  ASSERT_OK(two);
  EXPECT_NE(one->bytes, two->bytes);
}

TEST(NcclLibraryTest, IsUnavailableWithoutAGpu) {
  if (CudaDeviceCount().ok()) GTEST_SKIP() << "there is a GPU";
  EXPECT_THAT(CudaDeviceCount(), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(CudaDevice::Create(0), StatusIs(absl::StatusCode::kUnavailable));
  const auto memory = NcclAllocator::Create();
  ASSERT_OK(memory);
  EXPECT_EQ((*memory)->Allocate(1, nullptr), nullptr);
}

TEST(NcclLibraryTest, RunsNoRankWithoutAGpuForEach) {
  int runs = 0;
  const auto program = [&](NcclRank&) {
    ++runs;
    return absl::OkStatus();
  };
  // More than any host has.
  EXPECT_THAT(RunNcclRanks(1000, program),
              StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(RunNcclRanks(0, program),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(runs, 0);
}

}  // namespace
}  // namespace tessera

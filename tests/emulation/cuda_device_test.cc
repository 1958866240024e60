#include "tessera/device/cuda/cuda_device.h"

#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/emulation/run_emulated_gpus.h"
#include "tests/status_matchers.h"

namespace tessera::emulation {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(CudaDeviceTest, FillsMemoryInTheOrderOfAStream) {
  EXPECT_OK(RunEmulatedGpus(2, [](GpuRank& rank) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(const auto stream,
                             rank.device.NewStream("compute"));
    TESSERA_ASSIGN_OR_RETURN(Buffer x,
                             rank.device.Allocate(40, "x", stream.get()));
    const TensorView view = TensorView::Flat(x.data(), DType::kF32, 10);
    TESSERA_RETURN_IF_ERROR(rank.device.kernels().Fill(*stream, view, 2.5));
    std::vector<float> host(10);
    TESSERA_RETURN_IF_ERROR(
        rank.device.kernels().CopyToHost(*stream, host.data(), view));
    TESSERA_RETURN_IF_ERROR(stream->Synchronize());
    EXPECT_THAT(host, Each(2.5f));
    x.ResetAfter(*stream);
    return absl::OkStatus();
  }));
}

}  // namespace
}  // namespace tessera::emulation

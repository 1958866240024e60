#include "tessera/device/host_scalar.h"

#include <latch>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tessera/device/sim/sim_device.h"
#include "tests/cpu_streams.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::IsOkAndHolds;
using ::tessera::testing::StatusIs;

class HostScalarTest : public ::testing::TestWithParam<CpuStreams> {
 protected:
  CpuDevice device_{{.streams = GetParam()}};
  std::unique_ptr<Stream> stream_ = device_.NewStream("s").value();
  Kernels& kernels_ = device_.kernels();
};

INSTANTIATE_TEST_SUITE_P(Streams, HostScalarTest, testing::BothStreams(),
                         testing::StreamsName);

TEST_P(HostScalarTest, BringsWhatKernelsAddedUp) {
  std::vector<float> x = {3, 4};
  std::vector<double> y = {12, std::numeric_limits<double>::infinity()};
  ASSERT_OK_AND_ASSIGN(HostScalar sum, HostScalar::Create(*stream_, "norm"));
  ASSERT_OK_AND_ASSIGN(HostScalar bad, HostScalar::Create(*stream_, "norm"));
  const TensorView f32 = TensorView::Flat(x.data(), DType::kF32, 2);
  const TensorView f64 = TensorView::Flat(y.data(), DType::kF64, 2);
  ASSERT_OK(kernels_.AddSquares(*stream_, sum.view(), f32));
  ASSERT_OK(kernels_.AddSquares(*stream_, sum.view(), f64.Slice(0, {0, 1})));
  for (const TensorView& view : {f32, f64}) {
    ASSERT_OK(kernels_.CountNonFinite(*stream_, bad.view(), view));
  }
  ASSERT_OK(sum.Request());
  ASSERT_OK(bad.Request());
  EXPECT_THAT(sum.Value(), IsOkAndHolds(169.0));
  EXPECT_THAT(bad.Value(), IsOkAndHolds(1.0));
}

TEST_P(HostScalarTest, IsWhatItWasWhenItWasRequested) {
  ASSERT_OK_AND_ASSIGN(HostScalar scalar, HostScalar::Create(*stream_, "x"));
  ASSERT_OK(kernels_.Fill(*stream_, scalar.view(), 5));
  ASSERT_OK(scalar.Request());
  ASSERT_OK(scalar.Zero());
  EXPECT_THAT(scalar.Value(), IsOkAndHolds(5.0));
  EXPECT_THAT(scalar.Value(), IsOkAndHolds(5.0));
  ASSERT_OK(scalar.Request());
  EXPECT_THAT(scalar.Value(), IsOkAndHolds(0.0));
}

TEST_P(HostScalarTest, WantsToBeRequested) {
  ASSERT_OK_AND_ASSIGN(const HostScalar scalar,
                       HostScalar::Create(*stream_, "x"));
  EXPECT_THAT(scalar.Value(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "host_scalar: the value was not requested"));
}

TEST_P(HostScalarTest, MemoryGoesWithIt) {
  {
    ASSERT_OK_AND_ASSIGN(HostScalar scalar, HostScalar::Create(*stream_, "x"));
    const HostScalar moved = std::move(scalar);
    EXPECT_EQ(device_.memory().by_tag.at("x").current_bytes, 8);
  }
  EXPECT_EQ(device_.memory().total.current_bytes, 0);
}

TEST_P(HostScalarTest, HasTheStreamsError) {
  ASSERT_OK_AND_ASSIGN(HostScalar scalar, HostScalar::Create(*stream_, "x"));
  ASSERT_OK(scalar.Request());
  ASSERT_OK(stream_->Synchronize());
  stream_->Launch({.name = "fail"}, [] { return absl::DataLossError("lost"); })
      .IgnoreError();
  absl::Status status = scalar.Request();
  status.Update(stream_->Synchronize());
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss, "lost"));
}

// Neither enqueueing nor requesting waits; Value does.
TEST(HostScalarWaitingTest, NothingWaitsBeforeTheValueIsAskedFor) {
  CpuDevice device({.streams = CpuStreams::kWorker});
  const auto stream = device.NewStream("s").value();
  std::latch asked(1);
  ASSERT_OK(stream->Launch({.name = "wait"}, [&asked] {
    asked.wait();
    return absl::OkStatus();
  }));
  ASSERT_OK_AND_ASSIGN(HostScalar scalar, HostScalar::Create(*stream, "x"));
  ASSERT_OK(device.kernels().Fill(*stream, scalar.view(), 7));
  ASSERT_OK(scalar.Request());
  asked.count_down();  // all of the above came here while the stream stood
  EXPECT_THAT(scalar.Value(), IsOkAndHolds(7.0));
}

TEST(HostScalarSimTest, IsZeroOnASimulatedDevice) {
  SimDevice device;
  ASSERT_OK_AND_ASSIGN(const auto stream, device.NewStream("s"));
  ASSERT_OK_AND_ASSIGN(HostScalar scalar, HostScalar::Create(*stream, "x"));
  ASSERT_OK_AND_ASSIGN(const Buffer buffer, device.Allocate(400, "g"));
  const TensorView x = TensorView::Flat(buffer.data(), DType::kF32, 100);
  ASSERT_OK(device.kernels().AddSquares(*stream, scalar.view(), x));
  ASSERT_OK(scalar.Request());
  EXPECT_THAT(scalar.Value(), IsOkAndHolds(0.0));
}

}  // namespace
}  // namespace tessera

// Kernels allocate nothing once a stream is warm.

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tests/count_allocations.h"
#include "tests/cpu_streams.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::NumAllocations;

class KernelAllocations : public ::testing::TestWithParam<CpuStreams> {};

INSTANTIATE_TEST_SUITE_P(Streams, KernelAllocations, testing::BothStreams(),
                         testing::StreamsName);

TEST_P(KernelAllocations, NoneOnceWarm) {
  CpuDevice device({.streams = GetParam()});
  const auto stream = device.NewStream("s").value();
  const auto other = device.NewStream("other").value();
  Kernels& kernels = device.kernels();

  const TensorMeta meta = TensorMeta::Create(DType::kF32, {6, 5, 4, 3}).value();
  std::vector<float> memory(6 * meta.num_elements());
  const TensorView x(memory.data(), meta);
  const TensorView y(memory.data() + meta.num_elements(), meta);
  const TensorView z(memory.data() + 4 * meta.num_elements(), meta);
  const TensorView z2(memory.data() + 5 * meta.num_elements(), meta);
  const TensorView strided =
      TensorView::Strided(memory.data() + 2 * meta.num_elements(), meta,
                          {4, 24, 120, 480 / 4})
          .value();
  double value = 0;
  const TensorView number = TensorView::Flat(&value, DType::kF64, 1);
  std::vector<BFloat16> halves(meta.num_elements());
  const TensorView half(
      halves.data(),
      TensorMeta::Create(DType::kBF16, meta.shape().extents()).value());
  std::vector<float> host(meta.num_elements());

  const std::vector<std::pair<std::string, std::function<absl::Status()>>>
      launches = {
          {"fill", [&] { return kernels.Fill(*stream, x, 1); }},
          {"copy", [&] { return kernels.Copy(*stream, y, x); }},
          {"strided copy", [&] { return kernels.Copy(*stream, y, strided); }},
          {"cast", [&] { return kernels.Cast(*stream, half, x); }},
          {"scale", [&] { return kernels.Scale(*stream, x, 0.5); }},
          {"strided scale", [&] { return kernels.Scale(*stream, strided, 2); }},
          {"add", [&] { return kernels.Add(*stream, x, y); }},
          {"accumulate_scaled",
           [&] { return kernels.AccumulateScaled(*stream, x, half, 0.5); }},
          {"sgd",
           [&] {
             return kernels.Sgd(*stream, x, y, z,
                                {.learning_rate = 0.1, .momentum = 0.9});
           }},
          {"adamw",
           [&] {
             return kernels.AdamW(*stream, x, y, z, z2, {.learning_rate = 0.1});
           }},
          {"add_squares",
           [&] { return kernels.AddSquares(*stream, number, x); }},
          {"count_non_finite",
           [&] { return kernels.CountNonFinite(*stream, number, x); }},
          {"clip_to_norm",
           [&] { return kernels.ClipToNorm(*stream, x, number, 0.5); }},
          {"copy_from_host",
           [&] { return kernels.CopyFromHost(*stream, x, host.data()); }},
          {"copy_to_host",
           [&] { return kernels.CopyToHost(*stream, host.data(), x); }},
          {"wait", [&] { return stream->Wait(other->Record()); }},
      };
  for (const auto& [name, launch] : launches) {
    EXPECT_OK(launch());
    EXPECT_OK(stream->Synchronize());
    const int64_t before = NumAllocations();
    absl::Status status;
    for (int i = 0; i < 3; ++i) status.Update(launch());
    status.Update(stream->Synchronize());
    EXPECT_EQ(NumAllocations() - before, 0) << name;
    EXPECT_OK(status);
  }
}

// Events of a stream that still has work.
TEST_P(KernelAllocations, NoneForEvents) {
  CpuDevice device({.streams = GetParam()});
  const auto first = device.NewStream("first").value();
  const auto second = device.NewStream("second").value();
  std::vector<float> memory(1 << 20);
  const TensorView x = TensorView::Flat(memory.data(), DType::kF32,
                                        static_cast<int64_t>(memory.size()));
  const auto run = [&] {
    absl::Status status = device.kernels().Fill(*first, x, 1);
    const Event filled = first->Record();
    status.Update(second->Wait(filled));
    status.Update(device.kernels().Scale(*second, x, 2));
    status.Update(second->Synchronize());
    status.Update(first->Synchronize());
    return status;
  };
  EXPECT_OK(run());
  const int64_t before = NumAllocations();
  const absl::Status status = run();
  EXPECT_EQ(NumAllocations() - before, 0);
  EXPECT_OK(status);
}

}  // namespace
}  // namespace tessera

// What the element-wise kernels of the CPU cost beside a memcpy that reads and
// writes as much, on one thread.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "bench/smoke.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tessera/device/cpu/elementwise.h"
#include "tessera/device/cpu/norm_kernels.h"
#include "tessera/device/cpu/optimizer_kernels.h"

namespace tessera {
namespace {

double Seconds(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  benchmark::ClobberMemory();
  const auto end = std::chrono::steady_clock::now();
  return std::chrono::duration<double>(end - begin).count();
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size()) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Runs the kernel and a memcpy of half its traffic by turns.
void Report(benchmark::State& state, int64_t traffic,
            const std::function<void()>& kernel) {
  const int turns = TurnsOr(21);
  std::vector<char> from(traffic / 2);
  std::vector<char> to(traffic / 2);
  const auto copy = [&] { std::memcpy(to.data(), from.data(), to.size()); };
  kernel();
  copy();
  std::vector<double> kernel_seconds;
  std::vector<double> copy_seconds;
  for (int turn = 0; turn < turns; ++turn) {
    kernel_seconds.push_back(Seconds(kernel));
    copy_seconds.push_back(Seconds(copy));
  }
  const double median = Median(kernel_seconds);
  for (auto _ : state) state.SetIterationTime(median);
  state.counters["ratio"] = median / Median(copy_seconds);
}

// Memory for elements.
class Elements {
 public:
  Elements(DType dtype, int64_t n)
      : bytes_(n * SizeOf(dtype)),
        view_(TensorView::Flat(bytes_.data(), dtype, n)) {}
  const TensorView& view() const { return view_; }
  int64_t bytes() const { return view_.num_bytes(); }

 private:
  std::vector<char> bytes_;
  TensorView view_;
};

void Fill(benchmark::State& state, DType dtype) {
  const Elements x(dtype, state.range(0));
  Report(state, x.bytes(), [&] { FillElements(x.view(), 1.0); });
}

void Cast(benchmark::State& state, DType from, DType to) {
  const Elements src(from, state.range(0));
  const Elements dst(to, state.range(0));
  Report(state, src.bytes() + dst.bytes(),
         [&] { CastElements(dst.view(), src.view()); });
}

void Scale(benchmark::State& state, DType dtype) {
  const Elements x(dtype, state.range(0));
  Report(state, 2 * x.bytes(), [&] { ScaleElements(x.view(), 0.5); });
}

void Add(benchmark::State& state, DType dtype) {
  const Elements dst(dtype, state.range(0));
  const Elements src(dtype, state.range(0));
  Report(state, 2 * dst.bytes() + src.bytes(),
         [&] { AddElements(dst.view(), src.view()); });
}

void AccumulateScaled(benchmark::State& state, DType from) {
  const Elements dst(DType::kF32, state.range(0));
  const Elements src(from, state.range(0));
  Report(state, 2 * dst.bytes() + src.bytes(),
         [&] { AccumulateScaledElements(dst.view(), src.view(), 0.25); });
}

void Sgd(benchmark::State& state, DType dtype) {
  const Elements weight(dtype, state.range(0));
  const Elements gradient(dtype, state.range(0));
  const Elements momentum(dtype, state.range(0));
  const internal::UpdateRows rows = {.n = state.range(0),
                                     .dtype = dtype,
                                     .weight = weight.view().data(),
                                     .gradient_dtype = dtype,
                                     .gradient = gradient.view().data(),
                                     .first = momentum.view().data()};
  Report(state, 5 * weight.bytes(), [&] {
    internal::SgdRow(rows, {.learning_rate = 0.1, .momentum = 0.9});
  });
}

void AdamW(benchmark::State& state, DType dtype) {
  const Elements weight(dtype, state.range(0));
  const Elements gradient(dtype, state.range(0));
  const Elements moments(dtype, 2 * state.range(0));
  const internal::UpdateRows rows = {
      .n = state.range(0),
      .dtype = dtype,
      .weight = weight.view().data(),
      .gradient_dtype = dtype,
      .gradient = gradient.view().data(),
      .first = moments.view().data(),
      .second =
          moments.view().Slice(0, {state.range(0), 2 * state.range(0)}).data()};
  Report(state, 7 * weight.bytes(),
         [&] { internal::AdamWRow(rows, {.learning_rate = 0.1}); });
}

void SumOfSquares(benchmark::State& state, DType dtype) {
  const Elements x(dtype, state.range(0));
  Report(state, x.bytes(), [&] {
    benchmark::DoNotOptimize(
        internal::SumOfSquares(dtype, x.view().data(), state.range(0)));
  });
}

void ClipToNorm(benchmark::State& state, DType dtype) {
  CpuDevice device;
  const std::unique_ptr<Stream> stream = *device.NewStream("clip");
  const Elements x(dtype, state.range(0));
  double squares = 4.0;  // a norm of 2, so that all is scaled
  const TensorView sum = TensorView::Flat(&squares, DType::kF64, 1);
  Report(state, 2 * x.bytes(), [&] {
    device.kernels().ClipToNorm(*stream, x.view(), sum, 1.0).IgnoreError();
  });
}

void CountNonFinite(benchmark::State& state, DType dtype) {
  const Elements x(dtype, state.range(0));
  Report(state, x.bytes(), [&] {
    benchmark::DoNotOptimize(
        internal::CountNonFinite(dtype, x.view().data(), state.range(0)));
  });
}

void Reduce(benchmark::State& state, DType dtype) {
  constexpr int kSources = 8;
  const Elements dst(dtype, state.range(0));
  const Elements src(dtype, kSources * state.range(0));
  std::vector<TensorView> views;
  for (int k = 0; k < kSources; ++k) {
    views.push_back(
        src.view().Slice(0, CeilSplit(src.view().num_elements(), kSources, k)));
  }
  Report(state, src.bytes() + dst.bytes(),
         [&] { ReduceElements(ReduceOp::kSum, dst.view(), views); });
}

// From one order of the outer dims to the other, in units of `state`
// elements.
void Transpose(benchmark::State& state, DType dtype) {
  const int64_t unit = state.range(0);
  constexpr int64_t kEdge = 1024;
  const Elements src(dtype, kEdge * kEdge * unit);
  const Elements dst(dtype, kEdge * kEdge * unit);
  const TensorMeta meta =
      TensorMeta::Create(dtype, {kEdge, kEdge, unit}).value();
  const TensorView turned =
      TensorView::Strided(src.view().data(), meta, {unit, kEdge * unit, 1})
          .value();
  Report(state, src.bytes() + dst.bytes(),
         [&] { CopyElements(TensorView(dst.view().data(), meta), turned); });
}

void Sizes(benchmark::internal::Benchmark* b) {
  b->Arg(1 << 14)->Arg(1 << 22);
  b->UseManualTime()->Iterations(1)->Unit(benchmark::kMicrosecond);
}

void Units(benchmark::internal::Benchmark* b) {
  for (int64_t unit : {1, 2, 3, 4, 8, 16}) b->Arg(unit);
  b->UseManualTime()->Iterations(1)->Unit(benchmark::kMicrosecond);
}

BENCHMARK_CAPTURE(Fill, f32, DType::kF32)->Apply(Sizes);
BENCHMARK_CAPTURE(Fill, bf16, DType::kBF16)->Apply(Sizes);
BENCHMARK_CAPTURE(Cast, f32_bf16, DType::kF32, DType::kBF16)->Apply(Sizes);
BENCHMARK_CAPTURE(Cast, bf16_f32, DType::kBF16, DType::kF32)->Apply(Sizes);
BENCHMARK_CAPTURE(Cast, f32_f16, DType::kF32, DType::kF16)->Apply(Sizes);
BENCHMARK_CAPTURE(Cast, f16_f32, DType::kF16, DType::kF32)->Apply(Sizes);
BENCHMARK_CAPTURE(Cast, f32_f64, DType::kF32, DType::kF64)->Apply(Sizes);
BENCHMARK_CAPTURE(Cast, f64_f32, DType::kF64, DType::kF32)->Apply(Sizes);
BENCHMARK_CAPTURE(Scale, f32, DType::kF32)->Apply(Sizes);
BENCHMARK_CAPTURE(Scale, bf16, DType::kBF16)->Apply(Sizes);
BENCHMARK_CAPTURE(Add, f32, DType::kF32)->Apply(Sizes);
BENCHMARK_CAPTURE(Add, bf16, DType::kBF16)->Apply(Sizes);
BENCHMARK_CAPTURE(AccumulateScaled, f32, DType::kF32)->Apply(Sizes);
BENCHMARK_CAPTURE(AccumulateScaled, bf16, DType::kBF16)->Apply(Sizes);
BENCHMARK_CAPTURE(AccumulateScaled, f16, DType::kF16)->Apply(Sizes);
BENCHMARK_CAPTURE(Sgd, f32, DType::kF32)->Apply(Sizes);
BENCHMARK_CAPTURE(AdamW, f32, DType::kF32)->Apply(Sizes);
BENCHMARK_CAPTURE(SumOfSquares, f32, DType::kF32)->Apply(Sizes);
BENCHMARK_CAPTURE(ClipToNorm, f32, DType::kF32)->Apply(Sizes);
BENCHMARK_CAPTURE(CountNonFinite, f32, DType::kF32)->Apply(Sizes);
BENCHMARK_CAPTURE(Reduce, f32, DType::kF32)->Apply(Sizes);
BENCHMARK_CAPTURE(Reduce, bf16, DType::kBF16)->Apply(Sizes);
BENCHMARK_CAPTURE(Reduce, f16, DType::kF16)->Apply(Sizes);
BENCHMARK_CAPTURE(Transpose, f32, DType::kF32)->Apply(Units);
BENCHMARK_CAPTURE(Transpose, bf16, DType::kBF16)->Apply(Units);

}  // namespace
}  // namespace tessera

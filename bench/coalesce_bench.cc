// What a coalesced all-reduce of many tensors costs beside one all-reduce of as
// much, by the size of its chunks.
//
// Four ranks do both by turns; `ratio` is that of the medians.

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/smoke.h"
#include "tessera/base/status_macros.h"
#include "tessera/fsdp/coalesced_all_reduce.h"
#include "tessera/sweep/turns.h"

namespace tessera {
namespace {

constexpr int kRanks = 4;
constexpr int64_t kTensors = 1024;
constexpr int64_t kTensorBytes = 256 << 10;
constexpr int64_t kTotalMiB = kTensors * kTensorBytes >> 20;

// The tensors, one behind the other but for `gap` bytes.
class Gradients {
 public:
  explicit Gradients(int64_t gap) : bytes_(kTensors * (kTensorBytes + gap)) {
    for (int64_t i = 0; i < kTensors; ++i) {
      list_.emplace_back(
          TensorView::Flat(bytes_.data() + i * (kTensorBytes + gap),
                           DType::kF32, kTensorBytes / 4));
    }
  }
  absl::Span<const CoalescedTensor> list() const { return list_; }
  TensorView whole() {
    return TensorView::Flat(bytes_.data(), DType::kF32,
                            kTensors * kTensorBytes / 4);
  }

 private:
  std::vector<std::byte> bytes_;
  std::vector<CoalescedTensor> list_;
};

// The coalesced all-reduce, then the single one.
absl::StatusOr<std::vector<internal::Work>> WorksOf(int64_t chunk_bytes,
                                                    int64_t gap,
                                                    LocalRank& rank) {
  const DeviceMesh mesh = DeviceMesh::Parse("tp=4").value();
  TESSERA_ASSIGN_OR_RETURN(
      CoalescedAllReduce made,
      CoalescedAllReduce::Create(mesh, rank.comms,
                                 {.max_chunk_bytes = chunk_bytes}));
  const auto coalesced = std::make_shared<CoalescedAllReduce>(std::move(made));
  TESSERA_ASSIGN_OR_RETURN(Communicator * comm,
                           rank.comms.Get(mesh, {0}, rank.stream));
  const auto gradients = std::make_shared<Gradients>(gap);
  return std::vector<internal::Work>{
      [=, &rank] {
        TESSERA_RETURN_IF_ERROR(
            coalesced->Run("tp", gradients->list(), {}, rank.stream));
        return rank.stream.Synchronize();
      },
      [=, &rank] {
        TESSERA_RETURN_IF_ERROR(comm->AllReduce(
            ReduceOp::kSum, gradients->whole(), gradients->whole()));
        return rank.stream.Synchronize();
      }};
}

void CoalesceChunks(benchmark::State& state, int64_t gap) {
  const int64_t chunk_bytes = state.range(0) << 20;
  const auto medians = internal::MedianSeconds(
      kRanks, {.count = TurnsOr(11)},
      [&](LocalRank& rank) { return WorksOf(chunk_bytes, gap, rank); });
  if (!medians.ok()) {
    state.SkipWithError(medians.status().ToString().c_str());
    return;
  }
  for (auto _ : state) state.SetIterationTime((*medians)[0]);
  state.counters["ratio"] = (*medians)[0] / (*medians)[1];
}

// From 1 MiB to one buffer.
void Sizes(benchmark::internal::Benchmark* b) {
  b->ArgName("MiB")->RangeMultiplier(4)->Range(1, kTotalMiB);
  b->UseManualTime()->Iterations(1)->Unit(benchmark::kMillisecond);
}

BENCHMARK_CAPTURE(CoalesceChunks, packed, /*gap=*/64)->Apply(Sizes);
BENCHMARK_CAPTURE(CoalesceChunks, in_place, /*gap=*/0)->Apply(Sizes);

}  // namespace
}  // namespace tessera

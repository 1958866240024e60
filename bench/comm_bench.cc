// What collectives of the local backend cost beside a memcpy of the bytes that
// they must move.
//
// Four ranks run a collective and the memcpy by turns; `ratio` is the median of
// the collective's turns over that of the memcpy's. Traffic is what is read and
// what is written, so a memcpy of n bytes makes 2n.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/run_ranks.h"
#include "tessera/sweep/turns.h"
#include "tessera/tensor/tensor_view.h"

namespace tessera {
namespace {

constexpr int kRanks = 4;
constexpr int64_t kRowBytes = 64 << 10;

// --- Measuring --------------------------------------------------------------

// A collective as one of the ranks calls it.
struct Case {
  TensorMeta send;
  TensorMeta recv;
  int64_t traffic = 0;  // of one rank, in bytes
  std::function<absl::Status(Communicator&, const TensorView& send,
                             const TensorView& recv)>
      call;
};

// Of one rank.
struct Memory {
  explicit Memory(const Case& c)
      : send(c.send.num_bytes()),
        recv(c.recv.num_bytes()),
        from(c.traffic / 2),
        to(c.traffic / 2) {}

  std::vector<char> send;
  std::vector<char> recv;
  std::vector<char> from;
  std::vector<char> to;
};

// Median seconds of a turn.
struct Medians {
  double collective = 0;
  double memcpy = 0;
};

// `calls` of the collective make a turn.
absl::StatusOr<Medians> Measure(const Case& c, int turns, int calls = 1) {
  TESSERA_ASSIGN_OR_RETURN(
      const std::vector<double> medians,
      internal::MedianSeconds(
          kRanks, {.count = turns},
          [&](LocalRank& rank) -> absl::StatusOr<std::vector<internal::Work>> {
            const auto memory = std::make_shared<Memory>(c);
            Communicator& comm = rank.comms.world();
            return std::vector<internal::Work>{
                [&c, &comm, memory, calls] {
                  const TensorView send(memory->send.data(), c.send);
                  const TensorView recv(memory->recv.data(), c.recv);
                  absl::Status status;
                  for (int call = 0; call < calls; ++call) {
                    status.Update(c.call(comm, send, recv));
                  }
                  return status;
                },
                [memory] {
                  std::memcpy(memory->to.data(), memory->from.data(),
                              memory->to.size());
                  benchmark::ClobberMemory();
                  return absl::OkStatus();
                }};
          }));
  return Medians{medians[0], medians[1]};
}

void Report(benchmark::State& state, const Case& c) {
  const int64_t bytes = std::max(c.send.num_bytes(), c.recv.num_bytes());
  const int turns = static_cast<int>(std::max<int64_t>(9, (256 << 20) / bytes));
  const absl::StatusOr<Medians> medians = Measure(c, turns);
  if (!medians.ok()) {
    state.SkipWithError(medians.status().ToString().c_str());
    return;
  }
  for (auto _ : state) state.SetIterationTime(medians->collective);
  state.counters["ratio"] = medians->collective / medians->memcpy;
}

// --- Cases ------------------------------------------------------------------

// Rows of kRowBytes, as many as `state` says MiB.
TensorMeta Whole(const benchmark::State& state, DType dtype) {
  return TensorMeta::Create(dtype, {(state.range(0) << 20) / kRowBytes,
                                    kRowBytes / SizeOf(dtype)})
      .value();
}

TensorView PieceOf(const TensorView& view, int dim, int rank) {
  return view.Slice(dim, CeilSplit(view.shape().extent(dim), kRanks, rank));
}

TensorMeta PieceOf(const TensorMeta& meta, int dim) {
  return PieceOf(TensorView(nullptr, meta), dim, 0).meta();
}

// The pieces of `meta` along `dim`, joined along dim 0.
TensorMeta Joined(const TensorMeta& meta, int dim) {
  const Shape piece = PieceOf(meta, dim).shape();
  return TensorMeta::Create(meta.dtype(),
                            {piece.extent(0) * kRanks, piece.extent(1)})
      .value();
}

// A rank reads a piece of everyone's and writes its own; then it reads and
// writes the others' pieces.
void AllReduce(benchmark::State& state, DType dtype) {
  const TensorMeta whole = Whole(state, dtype);
  const int64_t piece = whole.num_bytes() / kRanks;
  Report(state, {.send = whole,
                 .recv = whole,
                 .traffic = whole.num_bytes() + piece +
                            2 * (whole.num_bytes() - piece),
                 .call = [](Communicator& comm, const TensorView& send,
                            const TensorView& recv) {
                   return comm.AllReduce(ReduceOp::kSum, send, recv);
                 }});
}

void ReduceScatter(benchmark::State& state, DType dtype) {
  const TensorMeta whole = Whole(state, dtype);
  const int dim = static_cast<int>(state.range(1));
  const TensorMeta piece = PieceOf(whole, dim);
  Report(state, {.send = whole,
                 .recv = piece,
                 .traffic = whole.num_bytes() + piece.num_bytes(),
                 .call = [dim](Communicator& comm, const TensorView& send,
                               const TensorView& recv) {
                   return comm.ReduceScatter(ReduceOp::kSum, send, recv, dim);
                 }});
}

void AllGather(benchmark::State& state) {
  const TensorMeta whole = Whole(state, DType::kF32);
  const int dim = static_cast<int>(state.range(1));
  Report(state, {.send = PieceOf(whole, dim),
                 .recv = whole,
                 .traffic = 2 * whole.num_bytes(),
                 .call = [dim](Communicator& comm, const TensorView& send,
                               const TensorView& recv) {
                   return comm.AllGather(send, recv, dim);
                 }});
}

void AllToAll(benchmark::State& state) {
  const TensorMeta whole = Whole(state, DType::kF32);
  const int dim = static_cast<int>(state.range(1));
  Report(state, {.send = whole,
                 .recv = Joined(whole, dim),
                 .traffic = 2 * whole.num_bytes(),
                 .call = [dim](Communicator& comm, const TensorView& send,
                               const TensorView& recv) {
                   return comm.AllToAll(send, dim, {}, recv, 0, {});
                 }});
}

// The same as messages.
void Exchange(benchmark::State& state) {
  const TensorMeta whole = Whole(state, DType::kF32);
  const int dim = static_cast<int>(state.range(1));
  Report(state, {.send = whole,
                 .recv = Joined(whole, dim),
                 .traffic = 2 * whole.num_bytes(),
                 .call = [dim](Communicator& comm, const TensorView& send,
                               const TensorView& recv) {
                   std::vector<Transfer> sends;
                   std::vector<Transfer> recvs;
                   for (int peer = 0; peer < kRanks; ++peer) {
                     sends.push_back({peer, PieceOf(send, dim, peer)});
                     recvs.push_back({peer, PieceOf(recv, 0, peer)});
                   }
                   return comm.SendRecv(sends, recvs);
                 }});
}

void Sizes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"MiB"})->ArgsProduct({{1, 16, 64}});
}

void SizesAndDims(benchmark::internal::Benchmark* b) {
  b->ArgNames({"MiB", "dim"})->ArgsProduct({{1, 16, 64}, {0, 1}});
}

void ByHand(benchmark::internal::Benchmark* b) {
  b->UseManualTime()->Iterations(1)->Unit(benchmark::kMillisecond);
}

BENCHMARK_CAPTURE(AllReduce, f32, DType::kF32)->Apply(Sizes)->Apply(ByHand);
BENCHMARK_CAPTURE(AllReduce, bf16, DType::kBF16)->Apply(Sizes)->Apply(ByHand);
BENCHMARK_CAPTURE(ReduceScatter, f32, DType::kF32)
    ->Apply(SizesAndDims)
    ->Apply(ByHand);
BENCHMARK_CAPTURE(ReduceScatter, bf16, DType::kBF16)
    ->Apply(SizesAndDims)
    ->Apply(ByHand);
BENCHMARK(AllGather)->Apply(SizesAndDims)->Apply(ByHand);
BENCHMARK(AllToAll)->Apply(SizesAndDims)->Apply(ByHand);
BENCHMARK(Exchange)->Apply(SizesAndDims)->Apply(ByHand);

// One call out of many, back to back.
void AllReduceOf1KiB(benchmark::State& state) {
  constexpr int kCalls = 1000;
  const TensorMeta meta = TensorMeta::Create(DType::kF32, {256}).value();
  const absl::StatusOr<Medians> medians =
      Measure({.send = meta,
               .recv = meta,
               .traffic = 2 * meta.num_bytes(),
               .call =
                   [](Communicator& comm, const TensorView& send,
                      const TensorView& recv) {
                     return comm.AllReduce(ReduceOp::kSum, send, recv);
                   }},
              /*turns=*/21, kCalls);
  if (!medians.ok()) {
    state.SkipWithError(medians.status().ToString().c_str());
    return;
  }
  for (auto _ : state) state.SetIterationTime(medians->collective / kCalls);
}
BENCHMARK(AllReduceOf1KiB)->Apply(ByHand)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace tessera

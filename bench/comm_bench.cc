// What collectives of the local backend cost beside a memcpy of the bytes that
// they must move.
//
// Ranks run a collective and the memcpy by turns; `ratio` is the median of
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
#include "bench/smoke.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/run_ranks.h"
#include "tessera/sweep/turns.h"
#include "tessera/tensor/tensor_view.h"

namespace tessera {
namespace {

constexpr int64_t kRowBytes = 64 << 10;

// --- Measuring --------------------------------------------------------------

// A collective as one of the ranks calls it.
struct Case {
  int ranks = 1;
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
          c.ranks, {.count = TurnsOr(turns)},
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

// The arguments of a benchmark: MiB, ranks and, where it counts, dim.
int RanksOf(const benchmark::State& state) {
  return static_cast<int>(state.range(1));
}

int DimOf(const benchmark::State& state) {
  return static_cast<int>(state.range(2));
}

TensorView PieceOf(const TensorView& view, int dim, int ranks, int rank) {
  return view.Slice(dim, CeilSplit(view.shape().extent(dim), ranks, rank));
}

TensorMeta PieceOf(const TensorMeta& meta, int dim, int ranks) {
  return PieceOf(TensorView(nullptr, meta), dim, ranks, 0).meta();
}

// The pieces of `meta` along `dim`, joined along dim 0.
TensorMeta Joined(const TensorMeta& meta, int dim, int ranks) {
  const Shape piece = PieceOf(meta, dim, ranks).shape();
  return TensorMeta::Create(meta.dtype(),
                            {piece.extent(0) * ranks, piece.extent(1)})
      .value();
}

// A rank reads a piece of everyone's and writes its own; then it reads and
// writes the others' pieces.
void AllReduce(benchmark::State& state, DType dtype) {
  const TensorMeta whole = Whole(state, dtype);
  const int64_t piece = whole.num_bytes() / RanksOf(state);
  Report(state, {.ranks = RanksOf(state),
                 .send = whole,
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
  const int dim = DimOf(state);
  const TensorMeta piece = PieceOf(whole, dim, RanksOf(state));
  Report(state, {.ranks = RanksOf(state),
                 .send = whole,
                 .recv = piece,
                 .traffic = whole.num_bytes() + piece.num_bytes(),
                 .call = [dim](Communicator& comm, const TensorView& send,
                               const TensorView& recv) {
                   return comm.ReduceScatter(ReduceOp::kSum, send, recv, dim);
                 }});
}

void AllGather(benchmark::State& state, DType dtype) {
  const TensorMeta whole = Whole(state, dtype);
  const int dim = DimOf(state);
  Report(state, {.ranks = RanksOf(state),
                 .send = PieceOf(whole, dim, RanksOf(state)),
                 .recv = whole,
                 .traffic = 2 * whole.num_bytes(),
                 .call = [dim](Communicator& comm, const TensorView& send,
                               const TensorView& recv) {
                   return comm.AllGather(send, recv, dim);
                 }});
}

void AllToAll(benchmark::State& state, DType dtype) {
  const TensorMeta whole = Whole(state, dtype);
  const int dim = DimOf(state);
  Report(state, {.ranks = RanksOf(state),
                 .send = whole,
                 .recv = Joined(whole, dim, RanksOf(state)),
                 .traffic = 2 * whole.num_bytes(),
                 .call = [dim](Communicator& comm, const TensorView& send,
                               const TensorView& recv) {
                   return comm.AllToAll(send, dim, {}, recv, 0, {});
                 }});
}

// The same as messages.
void Exchange(benchmark::State& state, DType dtype) {
  const TensorMeta whole = Whole(state, dtype);
  const int dim = DimOf(state);
  Report(state,
         {.ranks = RanksOf(state),
          .send = whole,
          .recv = Joined(whole, dim, RanksOf(state)),
          .traffic = 2 * whole.num_bytes(),
          .call = [dim](Communicator& comm, const TensorView& send,
                        const TensorView& recv) {
            std::vector<Transfer> sends;
            std::vector<Transfer> recvs;
            for (int peer = 0; peer < comm.size(); ++peer) {
              sends.push_back({peer, PieceOf(send, dim, comm.size(), peer)});
              recvs.push_back({peer, PieceOf(recv, 0, comm.size(), peer)});
            }
            return comm.SendRecv(sends, recvs);
          }});
}

// All sizes and numbers of ranks, but for the largest size on most ranks.
void SizesAndRanks(benchmark::internal::Benchmark* b) {
  b->ArgNames({"MiB", "ranks"});
  b->ArgsProduct({{1, 16}, {2, 4, 8}})->Args({64, 4});
}

// On four ranks along either dim.
void SizesRanksAndDims(benchmark::internal::Benchmark* b) {
  b->ArgNames({"MiB", "ranks", "dim"});
  b->ArgsProduct({{1, 16}, {2, 8}, {0}});
  b->ArgsProduct({{1, 16, 64}, {4}, {0, 1}});
}

void ByHand(benchmark::internal::Benchmark* b) {
  b->UseManualTime()->Iterations(1)->Unit(benchmark::kMillisecond);
}

#define TESSERA_BENCH_COLLECTIVE(name, arguments)                             \
  BENCHMARK_CAPTURE(name, f32, DType::kF32)->Apply(arguments)->Apply(ByHand); \
  BENCHMARK_CAPTURE(name, bf16, DType::kBF16)->Apply(arguments)->Apply(ByHand)

TESSERA_BENCH_COLLECTIVE(AllReduce, SizesAndRanks);
TESSERA_BENCH_COLLECTIVE(ReduceScatter, SizesRanksAndDims);
TESSERA_BENCH_COLLECTIVE(AllGather, SizesRanksAndDims);
TESSERA_BENCH_COLLECTIVE(AllToAll, SizesRanksAndDims);
TESSERA_BENCH_COLLECTIVE(Exchange, SizesRanksAndDims);

// One call out of many, back to back.
void AllReduceOf1KiB(benchmark::State& state) {
  const int calls = IsSmoke() ? 1 : 1000;
  const TensorMeta meta = TensorMeta::Create(DType::kF32, {256}).value();
  const absl::StatusOr<Medians> medians =
      Measure({.ranks = 4,
               .send = meta,
               .recv = meta,
               .traffic = 2 * meta.num_bytes(),
               .call =
                   [](Communicator& comm, const TensorView& send,
                      const TensorView& recv) {
                     return comm.AllReduce(ReduceOp::kSum, send, recv);
                   }},
              /*turns=*/21, calls);
  if (!medians.ok()) {
    state.SkipWithError(medians.status().ToString().c_str());
    return;
  }
  for (auto _ : state) state.SetIterationTime(medians->collective / calls);
}
BENCHMARK(AllReduceOf1KiB)->Apply(ByHand)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace tessera

// Collectives allocate nothing once a communicator is warm.

#include <cstdint>
#include <functional>
#include <latch>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/run_ranks.h"
#include "tests/count_allocations.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::NumAllocations;

constexpr int kRanks = 3;

// Elements per rank: what the last rank to come does alone, and what all do.
class CollectiveAllocations
    : public ::testing::TestWithParam<std::pair<CpuStreams, int64_t>> {};

INSTANTIATE_TEST_SUITE_P(
    StreamsAndSizes, CollectiveAllocations,
    ::testing::Values(std::pair(CpuStreams::kInline, 12),
                      std::pair(CpuStreams::kInline, 120'000),
                      std::pair(CpuStreams::kWorker, 12),
                      std::pair(CpuStreams::kWorker, 120'000)),
    [](const auto& test) {
      return std::string(test.param.first == CpuStreams::kInline ? "Inline"
                                                                 : "Worker") +
             std::to_string(test.param.second);
    });

// A collective, any number of times.
using Call = std::function<absl::Status()>;

// On every rank the same list. `rows` x 4 is the shape of a whole tensor.
std::vector<std::pair<std::string, Call>> CallsOf(
    Communicator& comm, std::vector<float>& memory, int64_t rows,
    std::vector<Transfer>& sends, std::vector<Transfer>& recvs) {
  const TensorMeta meta = TensorMeta::Create(DType::kF32, {rows, 4}).value();
  constexpr int64_t kRest = 8;
  memory.resize(3 * meta.num_elements() + kRest);
  const TensorView a(memory.data(), meta);
  const TensorView b(memory.data() + meta.num_elements(), meta);
  const TensorView strided =
      TensorView::Strided(memory.data() + 2 * meta.num_elements(), meta,
                          {1, rows})
          .value();
  const TensorView rest = TensorView::Flat(
      memory.data() + 3 * meta.num_elements(), DType::kF32, kRest);
  const ExtentSplit split = ExtentSplit::Explicit({1, rows - 2, 1}).value();
  const auto piece = [&comm](const TensorView& view, const ExtentSplit& by) {
    return view.Slice(0, by.Piece(view.shape().extent(0), kRanks, comm.rank()));
  };
  const TensorView own = piece(b, {});
  const TensorView uneven = piece(b, split);
  for (int peer = 0; peer < kRanks; ++peer) {
    const Interval part = CeilSplit(rows, kRanks, peer);
    sends.push_back({peer, a.Slice(0, {0, 2})});
    sends.push_back({peer, a.Slice(0, part)});
    recvs.push_back({peer, b.Slice(0, {2 * peer, 2 * peer + 2})});
    recvs.push_back(
        {peer, strided.Slice(0, CeilSplit(rows, kRanks, comm.rank()))});
  }
  return {
      {"all_reduce",
       [=, &comm] { return comm.AllReduce(ReduceOp::kSum, a, b); }},
      {"all_reduce in place",
       [=, &comm] { return comm.AllReduce(ReduceOp::kMax, a, a); }},
      {"strided all_reduce",
       [=, &comm] { return comm.AllReduce(ReduceOp::kAvg, strided, b); }},
      {"reduce_scatter",
       [=, &comm] { return comm.ReduceScatter(ReduceOp::kSum, a, own); }},
      {"reduce_scatter by sizes",
       [=, &comm] {
         return comm.ReduceScatter(ReduceOp::kSum, a, uneven, 0, split);
       }},
      {"all_gather", [=, &comm] { return comm.AllGather(own, a); }},
      {"all_gather by sizes",
       [=, &comm] { return comm.AllGather(uneven, a, 0, split); }},
      {"all_to_all", [=, &comm] { return comm.AllToAll(a, 0, {}, b, 0, {}); }},
      {"broadcast", [=, &comm] { return comm.Broadcast(b, 1); }},
      {"send_recv", [&] { return comm.SendRecv(sends, recvs); }},
      {"barrier", [&comm] { return comm.Barrier(); }},
      {"several in one launch",
       [=, &comm, &sends, &recvs] {
         Collective reduction;
         reduction.kind = CollectiveKind::kAllReduce;
         reduction.send = rest;
         reduction.recv = rest;
         Collective exchange;
         exchange.kind = CollectiveKind::kSendRecv;
         exchange.sends = sends;
         exchange.recvs = recvs;
         return comm.Issue({reduction, exchange});
       }},
  };
}

constexpr int kCalls = 3;

// Makes all calls of a round; on a worker, before it begins with the first one.
absl::Status WarmUp(Stream& stream, CpuStreams streams, const Call& call) {
  std::latch enqueued(streams == CpuStreams::kWorker ? 1 : 0);
  absl::Status status = stream.Launch({.name = "hold"}, [&enqueued] {
    enqueued.wait();
    return absl::OkStatus();
  });
  for (int i = 0; i < kCalls; ++i) status.Update(call());
  if (streams == CpuStreams::kWorker) enqueued.count_down();
  status.Update(stream.Synchronize());
  return status;
}

TEST_P(CollectiveAllocations, NoneOnceWarm) {
  const auto [streams, elements] = GetParam();
  const int64_t rows = elements / 4 / kRanks * kRanks;
  EXPECT_OK(RunLocalRanks(
      kRanks,
      [rows, streams = streams](LocalRank& rank) -> absl::Status {
        TESSERA_ASSIGN_OR_RETURN(
            const auto comm,
            rank.comms.world().Subgroup({0, 1, 2}, "a name of many letters",
                                        rank.stream));
        std::vector<float> memory;
        std::vector<Transfer> sends;
        std::vector<Transfer> recvs;
        const auto calls = CallsOf(*comm, memory, rows, sends, recvs);
        // All ranks have come, and none goes on before all have counted.
        const auto meet = [&] {
          absl::Status status = rank.comms.world().Barrier();
          status.Update(rank.stream.Synchronize());
          return status;
        };
        TESSERA_RETURN_IF_ERROR(meet());
        for (const auto& [name, call] : calls) {
          TESSERA_RETURN_IF_ERROR(WarmUp(rank.stream, streams, call));
          TESSERA_RETURN_IF_ERROR(meet());
          const int64_t before = NumAllocations();
          absl::Status status = meet();
          for (int i = 0; i < kCalls; ++i) status.Update(call());
          status.Update(meet());
          const int64_t after = NumAllocations();
          status.Update(meet());
          TESSERA_RETURN_IF_ERROR(status);
          EXPECT_EQ(after - before, 0) << name << " on rank " << rank.rank;
        }
        return absl::OkStatus();
      },
      {.device = {.streams = streams}}));
}

}  // namespace
}  // namespace tessera

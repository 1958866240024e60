#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/run_ranks.h"
#include "tests/comm/collective_cases.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::AllCollectiveCases;
using ::tessera::testing::CollectiveCase;
using ::tessera::testing::CollectiveRun;
using ::tessera::testing::Pack;
using ::tessera::testing::RandomElements;

struct WorldParam {
  int ranks;
  CpuStreams streams;
};

class LocalCollectives : public ::testing::TestWithParam<WorldParam> {
 protected:
  int ranks() const { return GetParam().ranks; }
  LocalRunOptions options() const {
    LocalRunOptions options;
    options.device.streams = GetParam().streams;
    return options;
  }
};

std::string WorldName(const ::testing::TestParamInfo<WorldParam>& world) {
  return absl::StrCat(
      world.param.ranks, "Ranks",
      world.param.streams == CpuStreams::kInline ? "Inline" : "Worker");
}

INSTANTIATE_TEST_SUITE_P(Worlds, LocalCollectives,
                         ::testing::Values(WorldParam{1, CpuStreams::kInline},
                                           WorldParam{2, CpuStreams::kInline},
                                           WorldParam{3, CpuStreams::kWorker},
                                           WorldParam{4, CpuStreams::kInline},
                                           WorldParam{4, CpuStreams::kWorker},
                                           WorldParam{8, CpuStreams::kWorker}),
                         WorldName);

TEST_P(LocalCollectives, GiveTheReferenceResultBitByBit) {
  const std::vector<CollectiveCase> cases = AllCollectiveCases(ranks());
  constexpr size_t kBatch = 200;  // bounds the memory in use
  for (size_t begin = 0; begin < cases.size(); begin += kBatch) {
    const size_t end = std::min(cases.size(), begin + kBatch);
    std::vector<CollectiveRun> runs;
    for (size_t i = begin; i < end; ++i) runs.emplace_back(cases[i], 100 * i);
    ASSERT_OK(RunLocalRanks(
        ranks(),
        [&](LocalRank& rank) -> absl::Status {
          for (const CollectiveRun& run : runs) {
            TESSERA_RETURN_IF_ERROR(run.Issue(rank.comms.world()));
          }
          return absl::OkStatus();
        },
        options()));
    for (const CollectiveRun& run : runs) {
      for (int r = 0; r < ranks(); ++r) ASSERT_EQ(run.Check(r), "");
    }
  }
}

// Any calls, up to seven at once.
TEST_P(LocalCollectives, GiveTheSameBitsSeveralInOneLaunch) {
  const std::vector<CollectiveCase> cases = AllCollectiveCases(ranks());
  std::mt19937 random(1);
  constexpr int kLaunches = 60;
  std::vector<std::vector<CollectiveRun>> launches(kLaunches);
  for (std::vector<CollectiveRun>& launch : launches) {
    const size_t calls = 1 + random() % 7;
    while (launch.size() < calls) {
      launch.emplace_back(cases[random() % cases.size()], random());
    }
  }
  ASSERT_OK(RunLocalRanks(
      ranks(),
      [&](LocalRank& rank) -> absl::Status {
        for (const std::vector<CollectiveRun>& launch : launches) {
          std::vector<Collective> calls;
          for (const CollectiveRun& run : launch) {
            calls.push_back(run.Call(rank.rank));
          }
          TESSERA_RETURN_IF_ERROR(rank.comms.world().Issue(calls));
        }
        return absl::OkStatus();
      },
      options()));
  for (const std::vector<CollectiveRun>& launch : launches) {
    for (const CollectiveRun& run : launch) {
      for (int r = 0; r < ranks(); ++r) ASSERT_EQ(run.Check(r), "");
    }
  }
}

// All-to-all along one dim with any counts: rank i sends counts[i][j] elements
// to rank j.
TEST_P(LocalCollectives, AllToAllTakesAnyMatrixOfCounts) {
  const int n = ranks();
  for (int seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    std::vector<std::vector<int64_t>> to(n, std::vector<int64_t>(n));
    std::vector<std::vector<int64_t>> from(n, std::vector<int64_t>(n));
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j < n; ++j) {
        to[i][j] = from[j][i] = random() % 3 == 0 ? 0 : random() % 40;
      }
    }
    std::vector<std::string> sent(n);
    std::vector<std::string> received(n);
    std::vector<std::string> expected(n);
    constexpr int64_t kSize = sizeof(int32_t);
    for (int i = 0; i < n; ++i) {
      const int64_t out = std::accumulate(to[i].begin(), to[i].end(), 0);
      const int64_t in = std::accumulate(from[i].begin(), from[i].end(), 0);
      sent[i] = RandomElements(DType::kI32, out, 100 * seed + i);
      received[i] = std::string(in * kSize, '\xa5');
      const char* next = sent[i].data();
      for (int j = 0; j < n; next += to[i][j] * kSize, ++j) {
        expected[j].append(next, to[i][j] * kSize);
      }
    }
    ASSERT_OK(RunLocalRanks(
        n,
        [&](LocalRank& rank) -> absl::Status {
          std::string& out = sent[rank.rank];
          std::string& in = received[rank.rank];
          TESSERA_ASSIGN_OR_RETURN(const ExtentSplit outs,
                                   ExtentSplit::Explicit(to[rank.rank]));
          TESSERA_ASSIGN_OR_RETURN(const ExtentSplit ins,
                                   ExtentSplit::Explicit(from[rank.rank]));
          return rank.comms.world().AllToAll(
              TensorView::Flat(out.data(), DType::kI32, out.size() / kSize), 0,
              outs, TensorView::Flat(in.data(), DType::kI32, in.size() / kSize),
              0, ins);
        },
        options()));
    EXPECT_EQ(received, expected);
  }
}

TEST_P(LocalCollectives, SendRecvDeliversMessagesOfAPairInOrder) {
  const int n = ranks();
  struct Message {
    int from;
    int to;
    DType dtype;
    std::string sent;
    std::string received;
    TensorView View(std::string& bytes) const {
      return TensorView::Flat(
          bytes.data(), dtype,
          static_cast<int64_t>(bytes.size()) / SizeOf(dtype));
    }
  };
  for (int seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    std::vector<Message> messages(random() % 30);
    for (Message& m : messages) {
      m.from = static_cast<int>(random() % n);
      m.to = static_cast<int>(random() % n);
      m.dtype = kAllDTypes[random() % std::size(kAllDTypes)];
      m.sent = RandomElements(m.dtype, random() % 50, random());
      m.received = std::string(m.sent.size(), '\xa5');
    }
    ASSERT_OK(RunLocalRanks(
        n,
        [&](LocalRank& rank) -> absl::Status {
          std::vector<Transfer> sends;
          std::vector<Transfer> recvs;
          for (Message& m : messages) {
            if (m.from == rank.rank) sends.push_back({m.to, m.View(m.sent)});
            if (m.to == rank.rank) {
              recvs.push_back({m.from, m.View(m.received)});
            }
          }
          return rank.comms.world().SendRecv(sends, recvs);
        },
        options()));
    for (const Message& m : messages) EXPECT_EQ(m.received, m.sent);
  }
}

TEST_P(LocalCollectives, BarrierPassesOnceAllHaveCome) {
  std::atomic<int> come = 0;
  ASSERT_OK(RunLocalRanks(
      ranks(),
      [&](LocalRank& rank) -> absl::Status {
        for (int round = 1; round <= 50; ++round) {
          ++come;
          TESSERA_RETURN_IF_ERROR(rank.comms.world().Barrier());
          TESSERA_RETURN_IF_ERROR(rank.stream.Synchronize());
          EXPECT_GE(come, round * rank.num_ranks);
        }
        return absl::OkStatus();
      },
      options()));
}

TEST_P(LocalCollectives, HostAllGatherReturnsWhatEveryRankGave) {
  ASSERT_OK(RunLocalRanks(
      ranks(),
      [&](LocalRank& rank) -> absl::Status {
        for (int round = 0; round < 50; ++round) {
          std::vector<std::string> want;
          for (int r = 0; r < rank.num_ranks; ++r) {
            want.push_back(absl::StrCat(std::string(r, 'x'), round));
          }
          TESSERA_ASSIGN_OR_RETURN(
              const std::vector<std::string> got,
              rank.comms.world().HostAllGather(want[rank.rank]));
          EXPECT_EQ(got, want);
        }
        return absl::OkStatus();
      },
      options()));
}

// Rows, columns and the whole of a grid, each on a stream of its own, work side
// by side.
TEST_P(LocalCollectives, ManyGroupsAndStreamsWorkAtOnce) {
  constexpr int kRounds = 30;
  const int rows = ranks() % 2 == 0 ? 2 : 1;
  ASSERT_OK(RunLocalRanks(
      ranks(),
      [&](LocalRank& rank) -> absl::Status {
        TESSERA_ASSIGN_OR_RETURN(
            const DeviceMesh mesh,
            DeviceMesh::Create({{"y", rows}, {"x", rank.num_ranks / rows}}));
        struct Lane {
          std::unique_ptr<Stream> stream;
          Communicator* communicator;
          std::vector<int64_t> value;
        };
        std::vector<Lane> lanes;
        const std::vector<std::vector<int>> all_axes = {
            {0}, {1}, {0, 1}, {1, 0}, {0}};
        for (const std::vector<int>& axes : all_axes) {
          TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream,
                                   rank.device.NewStream("lane"));
          TESSERA_ASSIGN_OR_RETURN(Communicator* const communicator,
                                   rank.comms.Get(mesh, axes, *stream));
          lanes.push_back({std::move(stream), communicator,
                           std::vector<int64_t>(1000, rank.rank + 1)});
        }
        for (int round = 0; round < kRounds; ++round) {
          for (Lane& lane : lanes) {
            const TensorView view =
                TensorView::Flat(lane.value.data(), DType::kI64, 1000);
            TESSERA_RETURN_IF_ERROR(
                lane.communicator->AllReduce(ReduceOp::kSum, view, view));
          }
        }
        for (Lane& lane : lanes) {
          TESSERA_RETURN_IF_ERROR(lane.stream->Synchronize());
          uint64_t want = 0;  // wraps, as the sums do
          for (int member : lane.communicator->members()) want += member + 1;
          for (int round = 1; round < kRounds; ++round) {
            want *= lane.communicator->size();
          }
          EXPECT_THAT(lane.value, ::testing::Each(static_cast<int64_t>(want)));
        }
        return absl::OkStatus();
      },
      options()));
}

}  // namespace
}  // namespace tessera

#include "tessera/redistribute/redistributor.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/run_ranks.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::StatusIs;
using ::testing::ElementsAre;

Layout ParseLayout(const std::string& mesh, const std::string& text) {
  return Layout::Parse(text, DeviceMesh::Parse(mesh).value()).value();
}

std::vector<float> ValuesOf(const ShardedTensor& tensor) {
  const float* data = tensor.local().as<float>();
  return {data, data + tensor.local().num_elements()};
}

TEST(RedistributorTest, KeepsPlansPrepared) {
  PlanCache plans(Topology::LocalCpu(), 8);
  const Layout from = ParseLayout("x=2", "f32[3] [S(0)]");
  const Layout to = from.With("[R]").value();
  EXPECT_OK(RunLocalRanks(2, [&](LocalRank& self) -> absl::Status {
    Redistributor redistributor(plans, self.comms, self.stream);
    TESSERA_ASSIGN_OR_RETURN(PreparedPlan * prepared,
                             redistributor.Prepare(from, to));
    std::vector<float> memory(self.rank == 0 ? 2 : 1);
    TESSERA_ASSIGN_OR_RETURN(
        const ShardedTensor source,
        ShardedTensor::Borrow(
            from, self.rank,
            TensorView(memory.data(), from.LocalMeta(self.rank))));
    for (float start : {1.f, 7.f}) {
      memory.assign(memory.size(), start + self.rank);
      TESSERA_ASSIGN_OR_RETURN(const ShardedTensor result,
                               redistributor.Redistribute(source, to));
      TESSERA_RETURN_IF_ERROR(self.stream.Synchronize());
      EXPECT_EQ(result.layout(), to);
      EXPECT_THAT(ValuesOf(result), ElementsAre(start, start, start + 1));
    }
    EXPECT_EQ(redistributor.Prepare(from, to).value(), prepared);
    return absl::OkStatus();
  }));
  EXPECT_EQ(plans.size(), 1);
}

TEST(RedistributorTest, KeepsPlansPreparedThatTheCacheHasDropped) {
  PlanCache plans(Topology::LocalCpu(), 1);
  const Layout from = ParseLayout("x=2", "f32[3] [S(0)]");
  const Layout to = from.With("[R]").value();
  EXPECT_OK(RunLocalRanks(2, [&](LocalRank& self) -> absl::Status {
    Redistributor redistributor(plans, self.comms, self.stream);
    TESSERA_ASSIGN_OR_RETURN(PreparedPlan * prepared,
                             redistributor.Prepare(from, to));
    TESSERA_RETURN_IF_ERROR(redistributor.Prepare(to, from).status());
    EXPECT_EQ(redistributor.Prepare(from, to).value(), prepared);
    return absl::OkStatus();
  }));
}

TEST(RedistributorTest, SharesAWorkspaceThatGrows) {
  PlanCache plans(Topology::LocalCpu(), 8);
  for (CpuStreams streams : {CpuStreams::kInline, CpuStreams::kWorker}) {
    LocalRunOptions options;
    options.device.streams = streams;
    EXPECT_OK(RunLocalRanks(
        2,
        [&](LocalRank& self) -> absl::Status {
          const auto in_use = [&] {
            const auto report = self.device.memory().by_tag;
            const auto found = report.find("workspace");
            return found == report.end() ? 0 : found->second.current_bytes;
          };
          {
            Redistributor redistributor(plans, self.comms, self.stream);
            int64_t most = 0;
            for (int64_t extent : {4, 16, 8, 16, 32}) {
              const Layout from = ParseLayout(
                  "x=2", absl::StrCat("f32[", extent, "] [P(max)]"));
              const Layout to = from.With("[P(sum)]").value();
              std::vector<float> values(extent, 1 + self.rank);
              std::vector<float> result(extent, -77);
              TESSERA_ASSIGN_OR_RETURN(
                  const ShardedTensor source,
                  ShardedTensor::Borrow(
                      from, self.rank,
                      TensorView::Flat(values.data(), DType::kF32, extent)));
              TESSERA_ASSIGN_OR_RETURN(
                  const ShardedTensor target,
                  ShardedTensor::Borrow(
                      to, self.rank,
                      TensorView::Flat(result.data(), DType::kF32, extent)));
              TESSERA_RETURN_IF_ERROR(
                  redistributor.RedistributeInto(source, target));
              TESSERA_RETURN_IF_ERROR(self.stream.Synchronize());
              EXPECT_EQ(std::accumulate(result.begin(), result.end(), 0.f),
                        static_cast<float>(extent));
              most = std::max(most, extent / 2 * 4);
              EXPECT_EQ(in_use(), most);
            }
          }
          EXPECT_EQ(in_use(), 0);
          return absl::OkStatus();
        },
        options));
  }
}

TEST(RedistributorTest, ForgetsThePlansNotAskedForLongest) {
  PlanCache plans(Topology::LocalCpu(), 8);
  const Layout shard = ParseLayout("x=2", "f32[4] [S(0)]");
  const Layout whole = shard.With("[R]").value();
  const Layout sum = shard.With("[P(sum)]").value();
  EXPECT_OK(RunLocalRanks(2, [&](LocalRank& self) -> absl::Status {
    Redistributor redistributor(plans, self.comms, self.stream,
                                /*capacity=*/1);
    for (int i = 0; i < 3; ++i) {
      for (const Layout& target : {whole, sum}) {
        TESSERA_ASSIGN_OR_RETURN(PreparedPlan * prepared,
                                 redistributor.Prepare(shard, target));
        EXPECT_EQ(prepared->plan()->target(), target);
      }
    }
    return absl::OkStatus();
  }));
}

// Plans go, and memory that is too small, while the stream still has to run
// what was enqueued with them.
TEST(RedistributorTest, GrowsAndForgetsBehindABusyStream) {
  constexpr int kTensors = 12;
  PlanCache plans(Topology::LocalCpu(), /*capacity=*/2);
  LocalRunOptions options;
  options.device.streams = CpuStreams::kWorker;
  EXPECT_OK(RunLocalRanks(
      2,
      [&](LocalRank& self) -> absl::Status {
        std::vector<std::vector<float>> sources;
        std::vector<ShardedTensor> results;
        {
          Redistributor redistributor(plans, self.comms, self.stream,
                                      /*capacity=*/1);
          TESSERA_RETURN_IF_ERROR(self.stream.Launch({.name = "hold"}, [] {
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            return absl::OkStatus();
          }));
          for (int i = 0; i < kTensors; ++i) {
            const int64_t extent = int64_t{4} << i;
            const Layout from =
                ParseLayout("x=2", absl::StrCat("f32[", extent, "] [P(max)]"));
            sources.emplace_back(extent, 1 + self.rank + i);
            TESSERA_ASSIGN_OR_RETURN(
                const ShardedTensor source,
                ShardedTensor::Borrow(from, self.rank,
                                      TensorView::Flat(sources.back().data(),
                                                       DType::kF32, extent)));
            TESSERA_ASSIGN_OR_RETURN(
                ShardedTensor result,
                redistributor.Redistribute(source,
                                           from.With("[P(sum)]").value()));
            results.push_back(std::move(result));
          }
        }
        TESSERA_RETURN_IF_ERROR(self.stream.Synchronize());
        for (int i = 0; i < kTensors; ++i) {
          const int64_t extent = int64_t{4} << i;
          std::vector<float> wanted(extent, 0);
          std::fill_n(wanted.begin() + self.rank * extent / 2, extent / 2,
                      static_cast<float>(2 + i));
          EXPECT_EQ(ValuesOf(results[i]), wanted);
        }
        return absl::OkStatus();
      },
      options));
}

TEST(RedistributorTest, PassesOnWhatThePlannerRejects) {
  PlanCache plans(Topology::LocalCpu(), 8);
  const Layout from = ParseLayout("x=1", "f32[3] [R]");
  EXPECT_OK(RunLocalRanks(1, [&](LocalRank& self) -> absl::Status {
    Redistributor redistributor(plans, self.comms, self.stream);
    TESSERA_ASSIGN_OR_RETURN(
        const ShardedTensor source,
        ShardedTensor::Allocate(from, self.rank, self.device));
    EXPECT_THAT(
        redistributor.Redistribute(source, ParseLayout("x=1", "f32[4] [R]")),
        StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_EQ(self.device.memory().by_tag.at("sharded_tensor").current_bytes,
              12);
    return absl::OkStatus();
  }));
}

}  // namespace
}  // namespace tessera

// Redistributions at the same time: of several worlds, on several streams, of
// one tensor.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/run_ranks.h"
#include "tessera/redistribute/execute_many.h"
#include "tessera/redistribute/planner.h"
#include "tessera/redistribute/redistributor.h"
#include "tests/redistribute/random_layouts.h"
#include "tests/redistribute/reference.h"
#include "tests/redistribute/run_plans.h"
#include "tests/redistribute/sampling.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::GlobalValue;
using ::tessera::testing::HeldElements;
using ::tessera::testing::kSampleOnly;
using ::tessera::testing::LocalValues;
using ::tessera::testing::RandomLayout;
using ::tessera::testing::RunAndFindFault;
using ::tessera::testing::SeededRandom;
using ::testing::Each;

constexpr CpuStreams kBothStreams[] = {CpuStreams::kInline,
                                       CpuStreams::kWorker};

Layout ParseLayout(const std::string& mesh, const std::string& text) {
  return Layout::Parse(text, DeviceMesh::Parse(mesh).value()).value();
}

Plan PlanOf(const Layout& source, const Layout& target) {
  return MakePlan(source, target, Topology::LocalCpu()).value();
}

// What `rank` holds of a layout without Partial.
std::vector<float> WantedOf(const Layout& layout, int rank) {
  std::vector<float> wanted;
  for (int64_t number : HeldElements(layout, rank)) {
    wanted.push_back(static_cast<float>(GlobalValue(number)));
  }
  return wanted;
}

std::vector<float> SourceOf(const Layout& layout, int rank) {
  const std::vector<double> values = LocalValues(layout, rank);
  return {values.begin(), values.end()};
}

// Ragged cuts over several axes, axes of size 1, dims without extent, tensors
// without dims, more dims and axes than are kept inline; other meshes that
// share some ranks, all, or none.
TEST(ExecuteRandomTest, GivesTheReferenceValues) {
  constexpr int kPlans = kSampleOnly ? 40 : 300;
  constexpr int kWorld = 8;
  SeededRandom random;
  for (const char* meta :
       {"f32[5,3]", "bf16[]", "i32[7]", "f32[2,0,3]", "f64[2,1,3,2,1,2]"}) {
    const TensorMeta tensor = TensorMeta::Parse(meta).value();
    for (const char* name :
         {"a=2,b=2", "a=2,b=1,c=3@1", "a=2,b=1,c=2,d=1,e=2,f=1", "a=1@3"}) {
      const DeviceMesh mesh = DeviceMesh::Parse(name).value();
      const DeviceMesh other =
          DeviceMesh::Parse(random() % 2 == 0 ? "p=3@2" : "p=2:1,q=2:4@1")
              .value();
      std::vector<Plan> plans;
      for (int i = 0; i < kPlans; ++i) {
        const Layout source =
            RandomLayout(tensor, mesh, /*may_be_partial=*/true, random);
        const Layout target = RandomLayout(tensor, i % 3 == 0 ? other : mesh,
                                           /*may_be_partial=*/false, random);
        plans.push_back(PlanOf(source, target));
      }
      for (CpuStreams streams : kBothStreams) {
        EXPECT_EQ(RunAndFindFault(kWorld, plans, streams), "")
            << meta << " on " << name;
      }
    }
  }
}

TEST(ExecuteSideBySideTest, WorldsExecuteDifferentPlans) {
  constexpr int kPlans = kSampleOnly ? 40 : 200;
  SeededRandom random;
  const TensorMeta tensor = TensorMeta::Parse("f32[5,6]").value();
  struct World {
    int size;
    CpuStreams streams;
    std::vector<Plan> plans;
    std::string fault = "did not run";
  };
  std::vector<World> worlds;
  for (const char* name : {"x=2,y=2", "x=3", "y=3,x=2", "x=2,y=1,z=2"}) {
    const DeviceMesh mesh = DeviceMesh::Parse(name).value();
    World& world = worlds.emplace_back();
    world.size = mesh.size();
    world.streams = kBothStreams[worlds.size() % 2];
    for (int i = 0; i < kPlans; ++i) {
      const Layout source =
          RandomLayout(tensor, mesh, /*may_be_partial=*/true, random);
      world.plans.push_back(
          PlanOf(source,
                 RandomLayout(tensor, mesh, /*may_be_partial=*/false, random)));
    }
  }
  std::vector<std::thread> threads;
  for (World& world : worlds) {
    threads.emplace_back([&world] {
      world.fault = RunAndFindFault(world.size, world.plans, world.streams);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const World& world : worlds) EXPECT_EQ(world.fault, "");
}

// Every rank redistributes one tensor to several layouts, each on a stream of
// its own, over and over without waiting.
TEST(ExecuteSideBySideTest, SeveralRedistributionsReadOneTensor) {
  constexpr int kRanks = 4;
  constexpr int kRounds = 5;
  const Layout from = ParseLayout("x=2,y=2", "f32[300,401] [P(sum), S(0)]");
  std::vector<Layout> targets;
  for (const char* target : {"[R, R]", "[S(1), R]", "[S(1), S(0)]", "[R, R]"}) {
    targets.push_back(from.With(target).value());
  }
  PlanCache plans(Topology::LocalCpu(), 16);
  LocalRunOptions options;
  options.device.streams = CpuStreams::kWorker;
  EXPECT_OK(RunLocalRanks(
      kRanks,
      [&](LocalRank& self) -> absl::Status {
        std::vector<float> memory = SourceOf(from, self.rank);
        const std::vector<float> unchanged = memory;
        TESSERA_ASSIGN_OR_RETURN(
            const ShardedTensor source,
            ShardedTensor::Borrow(
                from, self.rank,
                TensorView(memory.data(), from.LocalMeta(self.rank))));
        std::vector<std::unique_ptr<Stream>> streams;
        std::vector<std::unique_ptr<Redistributor>> redistributors;
        for (size_t i = 0; i < targets.size(); ++i) {
          TESSERA_ASSIGN_OR_RETURN(streams.emplace_back(),
                                   self.device.NewStream(absl::StrCat(i)));
        }
        // The communicators do not outlive the streams.
        CommSet comms(self.comms.world());
        for (const auto& stream : streams) {
          redistributors.push_back(
              std::make_unique<Redistributor>(plans, comms, *stream));
        }
        std::vector<ShardedTensor> results;
        for (int round = 0; round < kRounds; ++round) {
          for (size_t i = 0; i < targets.size(); ++i) {
            TESSERA_ASSIGN_OR_RETURN(
                ShardedTensor result,
                redistributors[i]->Redistribute(source, targets[i]));
            results.push_back(std::move(result));
          }
        }
        absl::Status status;
        for (const auto& stream : streams) status.Update(stream->Synchronize());
        for (size_t i = 0; i < results.size(); ++i) {
          const float* data = results[i].local().as<float>();
          const std::vector<float> found(
              data, data + results[i].local().num_elements());
          EXPECT_EQ(found, WantedOf(results[i].layout(), self.rank));
        }
        EXPECT_EQ(memory, unchanged);
        return status;
      },
      options));
}

// As sources of one list.
TEST(ExecuteSideBySideTest, AListReadsOneTensorSeveralTimes) {
  const Layout from = ParseLayout("x=2,y=2", "f32[300,401] [P(sum), S(0)]");
  std::vector<Redistribution> tensors;
  for (const char* target : {"[R, R]", "[S(1), R]", "[S(1), S(0)]", "[R, R]"}) {
    tensors.push_back({from, from.With(target).value()});
  }
  const ManyPlan many = PlanMany(tensors, Topology::LocalCpu()).value();
  for (CpuStreams streams : kBothStreams) {
    LocalRunOptions options;
    options.device.streams = streams;
    EXPECT_OK(RunLocalRanks(
        4,
        [&](LocalRank& self) -> absl::Status {
          std::vector<float> memory = SourceOf(from, self.rank);
          const std::vector<TensorView> sources(
              tensors.size(), {memory.data(), from.LocalMeta(self.rank)});
          std::vector<std::vector<float>> results;
          std::vector<TensorView> targets;
          for (const Redistribution& tensor : tensors) {
            const TensorMeta meta = tensor.target.LocalMeta(self.rank);
            results.emplace_back(meta.num_elements(), -77.f);
            targets.emplace_back(results.back().data(), meta);
          }
          TESSERA_RETURN_IF_ERROR(
              ExecuteMany(many, sources, targets, self.comms, self.stream));
          TESSERA_RETURN_IF_ERROR(self.stream.Synchronize());
          for (size_t i = 0; i < tensors.size(); ++i) {
            EXPECT_EQ(results[i], WantedOf(tensors[i].target, self.rank));
          }
          return absl::OkStatus();
        },
        options));
  }
}

}  // namespace
}  // namespace tessera

// Inputs on which other systems went wrong, and the right answers.

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/run_ranks.h"
#include "tessera/redistribute/planner.h"
#include "tessera/redistribute/sharded_tensor.h"
#include "tests/redistribute/reference.h"
#include "tests/redistribute/run_plans.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::HeldElements;
using ::tessera::testing::RunAndFindFault;
using ::tessera::testing::StatusIs;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What one rank holds.
struct Held {
  std::string meta;
  std::vector<float> values;
};

// Fills `tensor` with the row-major numbers of its elements.
void FillWithNumbers(const ShardedTensor& tensor, int rank) {
  const std::vector<int64_t> numbers = HeldElements(tensor.layout(), rank);
  for (size_t i = 0; i < numbers.size(); ++i) {
    tensor.local().as<float>()[i] = static_cast<float>(numbers[i]);
  }
}

// What every rank holds after f32 0, 1, 2, ... has gone from the first of the
// layouts to the second, and so on to the last.
std::vector<Held> SendNumbers(const std::string& mesh_text,
                              const std::vector<std::string>& layouts) {
  const DeviceMesh mesh = DeviceMesh::Parse(mesh_text).value();
  std::vector<Held> held(mesh.size());
  EXPECT_OK(RunLocalRanks(mesh.size(), [&](LocalRank& self) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(const Layout first,
                             Layout::Parse(layouts[0], mesh));
    TESSERA_ASSIGN_OR_RETURN(
        ShardedTensor tensor,
        ShardedTensor::Allocate(first, self.rank, self.device));
    FillWithNumbers(tensor, self.rank);
    for (size_t i = 1; i < layouts.size(); ++i) {
      TESSERA_ASSIGN_OR_RETURN(const Layout next, first.With(layouts[i]));
      TESSERA_ASSIGN_OR_RETURN(
          tensor, Redistribute(tensor, next, Topology::LocalCpu(), self.comms,
                               self.stream));
      TESSERA_RETURN_IF_ERROR(self.stream.Synchronize());
    }
    const float* data = tensor.local().as<float>();
    held[self.rank] = {tensor.local().meta().ToString(),
                       {data, data + tensor.local().num_elements()}};
    return absl::OkStatus();
  }));
  return held;
}

std::vector<float> Numbers(int64_t count) {
  std::vector<float> numbers;
  for (int64_t i = 0; i < count; ++i) {
    numbers.push_back(static_cast<float>(i));
  }
  return numbers;
}

Plan PlanBetween(const std::string& mesh, const std::string& source,
                 const std::string& target) {
  const Layout from =
      Layout::Parse(source, DeviceMesh::Parse(mesh).value()).value();
  return MakePlan(from, from.With(target).value(), Topology::LocalCpu())
      .value();
}

TEST(ReportsTest, NestedUnevenShardsOfOneDimAreGatheredWhole) {
  for (const char* shape : {"[5,3]", "[1001,1024]"}) {
    const std::string meta = std::string("f32") + shape;
    const int64_t count = TensorMeta::Parse(meta).value().num_elements();
    for (const Held& held :
         SendNumbers("x=2,y=2", {meta + " [S(0), S(0)]", "[R, R]"})) {
      EXPECT_EQ(held.meta, meta);
      EXPECT_EQ(held.values, Numbers(count));
    }
  }
}

TEST(ReportsTest, PartialsAreScatteredToNestedUnevenShards) {
  const Plan plan = PlanBetween("x=2,y=3", "f32[4,3] [P, P]", "[S(0), S(0)]");
  std::vector<int64_t> rows;
  for (int rank = 0; rank < 6; ++rank) {
    rows.push_back(plan.target().LocalMeta(rank).shape().extent(0));
  }
  EXPECT_THAT(rows, ElementsAre(1, 1, 0, 1, 1, 0));
  EXPECT_EQ(RunAndFindFault(6, {plan}), "");
}

TEST(ReportsTest, PaddingNeverShowsAfterSliceAndGather) {
  for (const Held& held :
       SendNumbers("x=4", {"f32[5,10] [R]", "[S(0)]", "[R]"})) {
    EXPECT_EQ(held.meta, "f32[5,10]");
    EXPECT_EQ(held.values, Numbers(50));
  }
}

TEST(ReportsTest, AnotherCuttingOrderIsAnotherLayout) {
  const std::string source = "f32[18] [S(0), S(0)]";
  const std::string target = "[S(0)[1], S(0)[0]]";
  const Plan plan = PlanBetween("x=2,y=3", source, target);
  EXPECT_NE(plan.source(), plan.target());
  EXPECT_GT(plan.launches(), 0);
  const std::vector<Held> held = SendNumbers("x=2,y=3", {source, target});
  // Rank (x, y) holds piece 2y + x of six.
  EXPECT_THAT(held[1].values, ElementsAre(6, 7, 8));
  EXPECT_THAT(held[3].values, ElementsAre(3, 4, 5));
  EXPECT_EQ(RunAndFindFault(6, {plan}), "");
}

TEST(ReportsTest, SumToAverageIsAConversion) {
  const Plan plan = PlanBetween("x=4", "f32[3] [P(sum)]", "[P(avg)]");
  EXPECT_EQ(plan.ToString(), "[P(sum)] -SC(x)-> [P(avg)]");
  EXPECT_EQ(RunAndFindFault(4, {plan}), "");
  // Every rank had the numbers as its addend: the average is their sum.
  for (const Held& held :
       SendNumbers("x=4", {"f32[3] [P(sum)]", "[P(avg)]", "[R]"})) {
    EXPECT_THAT(held.values, ElementsAre(0, 4, 8));
  }
}

TEST(ReportsTest, AveragesOfIntegersAreRejected) {
  const DeviceMesh mesh = DeviceMesh::Parse("x=4").value();
  const Layout sums = Layout::Parse("i32[3] [P(sum)]", mesh).value();
  EXPECT_THAT(sums.With("[P(avg)]"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("avg")));
}

TEST(ReportsTest, IntegersComeBackFromAPartial) {
  const DeviceMesh mesh = DeviceMesh::Parse("x=3").value();
  const Layout whole = Layout::Parse("i32[4] [R]", mesh).value();
  EXPECT_OK(RunLocalRanks(3, [&](LocalRank& self) -> absl::Status {
    std::vector<int32_t> values = {1, -2, 1'000'000'007, 5};
    TESSERA_ASSIGN_OR_RETURN(
        const ShardedTensor source,
        ShardedTensor::Borrow(whole, self.rank,
                              TensorView(values.data(), whole.meta())));
    TESSERA_ASSIGN_OR_RETURN(const Layout sums, whole.With("[P(sum)]"));
    TESSERA_ASSIGN_OR_RETURN(const ShardedTensor partial,
                             Redistribute(source, sums, Topology::LocalCpu(),
                                          self.comms, self.stream));
    TESSERA_ASSIGN_OR_RETURN(const ShardedTensor back,
                             Redistribute(partial, whole, Topology::LocalCpu(),
                                          self.comms, self.stream));
    TESSERA_RETURN_IF_ERROR(self.stream.Synchronize());
    const int32_t* data = back.local().as<int32_t>();
    EXPECT_EQ(std::vector<int32_t>(data, data + 4), values);
    return absl::OkStatus();
  }));
}

// Addends whose sum depends on the order in which they are added.
TEST(ReportsTest, ReplicasAlongTheOtherAxisAreBitwiseEqual) {
  const DeviceMesh mesh = DeviceMesh::Parse("x=3,y=2").value();
  const Layout sums = Layout::Parse("f32[1000] [P(sum), R]", mesh).value();
  const Layout whole = sums.With("[R, R]").value();
  std::vector<std::vector<float>> results(mesh.size());
  EXPECT_OK(RunLocalRanks(mesh.size(), [&](LocalRank& self) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(
        const ShardedTensor source,
        ShardedTensor::Allocate(sums, self.rank, self.device));
    const int x = self.rank / 2;
    for (int i = 0; i < 1000; ++i) {
      source.local().as<float>()[i] =
          1.0f / static_cast<float>(1 + i * (x + 3));
    }
    TESSERA_ASSIGN_OR_RETURN(const ShardedTensor result,
                             Redistribute(source, whole, Topology::LocalCpu(),
                                          self.comms, self.stream));
    TESSERA_RETURN_IF_ERROR(self.stream.Synchronize());
    const float* data = result.local().as<float>();
    results[self.rank].assign(data, data + 1000);
    return absl::OkStatus();
  }));
  for (const std::vector<float>& result : results) {
    EXPECT_EQ(std::memcmp(result.data(), results[0].data(), 4000), 0);
  }
}

TEST(ReportsTest, AxesOfSizeOneNeedNoCommunication) {
  const DeviceMesh four = DeviceMesh::Parse("a=1,b=1,c=1,d=1").value();
  ASSERT_OK_AND_ASSIGN(const DeviceMesh flat, four.Flatten({"b", "c"}, "bc"));
  ASSERT_OK_AND_ASSIGN(
      const DeviceMesh sliced,
      flat.Slice(std::vector<absl::string_view>{"bc", "d"}, 0));
  for (const DeviceMesh& mesh : {four, flat, sliced}) {
    const std::vector<Placement> partial(mesh.num_axes(), Placement::Partial());
    const std::vector<Placement> shards(mesh.num_axes(), Placement::Shard(0));
    const TensorMeta meta = TensorMeta::Parse("f32[5,3]").value();
    const Plan plan = MakePlan(Layout::Create(meta, mesh, partial).value(),
                               Layout::Create(meta, mesh, shards).value(),
                               Topology::LocalCpu())
                          .value();
    EXPECT_EQ(plan.launches(), 0);
    EXPECT_EQ(RunAndFindFault(1, {plan}), "");
  }
}

// Moves for which other systems replicate the tensor, or go a longer way: the
// values arrive, and no rank receives more than it lacks.
TEST(ReportsTest, WhatMovesDirectlyArrives) {
  EXPECT_EQ(
      RunAndFindFault(16, {PlanBetween("x=4,y=4", "f32[16,16] [S(0), S(1)]",
                                       "[S(1), S(0)]")}),
      "");
  EXPECT_EQ(RunAndFindFault(
                8, {PlanBetween("x=2,y=2,z=2", "f32[8,8,8] [S(0), S(0), S(0)]",
                                "[S(1), S(1), S(1)]"),
                    PlanBetween("x=4,y=2", "f32[16,16,16] [S(2), S(0)]",
                                "[S(1), S(1)]")}),
            "");
  const std::string four = "a=2,b=2,c=2,d=2";
  EXPECT_EQ(RunAndFindFault(
                16, {PlanBetween(four, "f32[16,16] [R, S(0), R, R]",
                                 "[S(1), R, S(1), S(1)]"),
                     PlanBetween(four, "f32[16,16] [R, S(0), R, R]",
                                 "[S(1), S(0), S(1), S(1)]"),
                     PlanBetween(four, "f32[16,16] [S(1), S(0), S(1), S(1)]",
                                 "[S(1), R, S(1), S(1)]")}),
            "");
  EXPECT_EQ(
      RunAndFindFault(
          4, {PlanBetween("x=2,y=2", "f32[96] [S(0), R]", "[R, S(0)]"),
              PlanBetween("x=2,y=2", "f32[96] [S(0), S(0)]", "[R, S(0)]"),
              PlanBetween("x=2,y=2", "f32[96] [S(0), S(0)]", "[S(0), R]")}),
      "");
}

TEST(ReportsTest, MeshesOfOtherSizesLiveSideBySide) {
  const std::vector<Plan> plans = {
      PlanBetween("five=5", "f32[7] [S(0)]", "[R]"),
      PlanBetween("x=2,y=4", "f32[7] [S(0), P]", "[R, S(0)]"),
      PlanBetween("five=5", "f32[7] [P]", "[S(0)]")};
  EXPECT_TRUE(plans[0].source().RegionOf(6).box[0].empty());
  EXPECT_EQ(RunAndFindFault(8, plans), "");
}

TEST(ReportsTest, SizesThatNothingDividesAreLegal) {
  const std::string large = "f32[1000003]";
  EXPECT_EQ(RunAndFindFault(7, {PlanBetween("x=7", large + " [S(0)]", "[R]"),
                                PlanBetween("x=7", large + " [P]", "[S(0)]")}),
            "");
  EXPECT_EQ(RunAndFindFault(4, {PlanBetween("x=4", "f32[0,4] [S(0)]", "[S(1)]"),
                                PlanBetween("x=4", "f32[0,4] [P]", "[R]"),
                                PlanBetween("x=4", "f32[] [P]", "[R]"),
                                PlanBetween("x=4", "f32[] [R]", "[P]")}),
            "");
}

}  // namespace
}  // namespace tessera

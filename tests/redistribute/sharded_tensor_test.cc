#include "tessera/redistribute/sharded_tensor.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/run_ranks.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Layout ParseLayout(const char* text, const char* mesh) {
  return Layout::Parse(text, DeviceMesh::Parse(mesh).value()).value();
}

TEST(ShardedTensorTest, AllocatesThePieceOfARank) {
  CpuDevice device;
  const Layout layout = ParseLayout("bf16[5,3] [S(0)]", "x=2");
  {
    ASSERT_OK_AND_ASSIGN(const ShardedTensor tensor,
                         ShardedTensor::Allocate(layout, 1, device, "mine"));
    EXPECT_EQ(tensor.layout(), layout);
    EXPECT_EQ(tensor.local().meta().ToString(), "bf16[2,3]");
    EXPECT_NE(tensor.local().data(), nullptr);
    EXPECT_TRUE(tensor.owned());
    EXPECT_EQ(device.memory().by_tag.at("mine").current_bytes, 12);
  }
  EXPECT_EQ(device.memory().total.current_bytes, 0);
}

TEST(ShardedTensorTest, HoldsNothingOutsideTheMesh) {
  CpuDevice device;
  ASSERT_OK_AND_ASSIGN(const ShardedTensor tensor,
                       ShardedTensor::Allocate(
                           ParseLayout("f32[5,3] [S(0)]", "x=2"), 2, device));
  EXPECT_EQ(tensor.local().num_elements(), 0);
}

TEST(ShardedTensorTest, BorrowsAViewOfTheRightMeta) {
  const Layout layout = ParseLayout("f32[5] [S(0)]", "x=2");
  std::vector<float> memory(3);
  ASSERT_OK_AND_ASSIGN(
      const ShardedTensor tensor,
      ShardedTensor::Borrow(layout, 0,
                            TensorView::Flat(memory.data(), DType::kF32, 3)));
  EXPECT_EQ(tensor.local().data(), memory.data());
  EXPECT_FALSE(tensor.owned());
  EXPECT_THAT(
      ShardedTensor::Borrow(layout, 1,
                            TensorView::Flat(memory.data(), DType::kF32, 3)),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("rank 1"), HasSubstr("wants a view of f32[2]"),
                     HasSubstr("found f32[3]"))));
}

TEST(ShardedTensorTest, FreesInStreamOrder) {
  CpuDevice device;
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Stream> stream,
                       device.NewStream("s"));
  ASSERT_OK_AND_ASSIGN(
      ShardedTensor tensor,
      ShardedTensor::Allocate(ParseLayout("f32[5] [R]", "x=2"), 0, device));
  tensor.ResetAfter(*stream);
  EXPECT_FALSE(tensor.owned());
  EXPECT_EQ(device.memory().total.current_bytes, 0);
}

TEST(RedistributeTest, GivesANewTensorInTheTargetLayout) {
  const Layout from = ParseLayout("f32[3] [S(0)]", "x=2");
  const Layout to = from.With("[R]").value();
  EXPECT_OK(RunLocalRanks(2, [&](LocalRank& self) -> absl::Status {
    std::vector<float> memory(self.rank == 0 ? 2 : 1,
                              static_cast<float>(self.rank + 1));
    TESSERA_ASSIGN_OR_RETURN(
        const ShardedTensor source,
        ShardedTensor::Borrow(
            from, self.rank,
            TensorView(memory.data(), from.LocalMeta(self.rank))));
    TESSERA_ASSIGN_OR_RETURN(ShardedTensor result,
                             Redistribute(source, to, Topology::LocalCpu(),
                                          self.comms, self.stream));
    TESSERA_RETURN_IF_ERROR(self.stream.Synchronize());
    EXPECT_EQ(result.layout(), to);
    const float* data = result.local().as<float>();
    EXPECT_THAT(std::vector<float>(data, data + 3), ElementsAre(1, 1, 2));
    return absl::OkStatus();
  }));
}

TEST(RedistributeTest, PassesOnWhatThePlannerRejects) {
  const Layout from = ParseLayout("f32[3] [R]", "x=1");
  EXPECT_OK(RunLocalRanks(1, [&](LocalRank& self) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(
        const ShardedTensor source,
        ShardedTensor::Allocate(from, self.rank, self.device));
    EXPECT_THAT(Redistribute(source, ParseLayout("f32[4] [R]", "x=1"),
                             Topology::LocalCpu(), self.comms, self.stream),
                StatusIs(absl::StatusCode::kInvalidArgument));
    return absl::OkStatus();
  }));
}

}  // namespace
}  // namespace tessera

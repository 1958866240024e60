#include "tessera/testing/shards.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/mesh/topology.h"
#include "tessera/redistribute/planner.h"
#include "tessera/testing/reference_executor.h"
#include "tests/status_matchers.h"

namespace tessera::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Layout ParseLayout(const std::string& mesh, const std::string& text) {
  return Layout::Parse(text, DeviceMesh::Parse(mesh).value()).value();
}

// What the ranks hold, one text for each.
std::vector<std::string> Texts(const std::vector<HostTensor>& pieces) {
  std::vector<std::string> texts;
  for (const HostTensor& piece : pieces) texts.push_back(piece.ToString());
  return texts;
}

std::vector<std::string> ShardTexts(const std::string& mesh,
                                    const std::string& layout) {
  const Layout parsed = ParseLayout(mesh, layout);
  return Texts(Shards(Arange(parsed.meta()), parsed).value());
}

TEST(HostTensorTest, ComparesAndPrintsItsElements) {
  HostTensor tensor(TensorMeta::Parse("bf16[2,2]").value());
  EXPECT_EQ(tensor.ToString(), "bf16[2,2] 0 0 0 0");
  const HostTensor zeros = tensor;
  tensor.values<BFloat16>()[3] = BFloat16(1.5f);
  EXPECT_EQ(tensor.At(3), 1.5);
  EXPECT_NE(tensor, zeros);
  EXPECT_NE(zeros, HostTensor(TensorMeta::Parse("bf16[4]").value()));
  EXPECT_THAT(Arange(TensorMeta::Parse("i64[40]").value()).ToString(),
              AllOf(HasSubstr("i64[40] 0 1 2"), HasSubstr("31 ...")));
}

TEST(ArangeTest, CountsInEveryDtype) {
  for (DType dtype : kAllDTypes) {
    const HostTensor whole = Arange(TensorMeta::Create(dtype, {2, 3}).value());
    for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(whole.At(i), i) << dtype;
  }
}

TEST(ShardsTest, AreWhatLayoutsSay) {
  EXPECT_THAT(ShardTexts("x=2", "i32[2,3] [S(0)]"),
              ElementsAre("i32[1,3] 0 1 2", "i32[1,3] 3 4 5"));
  EXPECT_THAT(ShardTexts("x=2", "i32[2,3] [S(1)]"),
              ElementsAre("i32[2,2] 0 1 3 4", "i32[2,1] 2 5"));
  EXPECT_THAT(ShardTexts("x=2,y=2", "i32[3] [R, S(0)]"),
              ElementsAre("i32[2] 0 1", "i32[1] 2", "i32[2] 0 1", "i32[1] 2"));
  EXPECT_THAT(ShardTexts("x=3", "i32[5] [Ragged(0,1,1,5)]"),
              ElementsAre("i32[1] 0", "i32[0]", "i32[4] 1 2 3 4"));
}

TEST(ShardsTest, PartialPiecesAreWhatFillsMake) {
  EXPECT_THAT(ShardTexts("x=2", "f32[2] [P(sum)]"),
              ElementsAre("f32[2] 0 1", "f32[2] -0 -0"));
  EXPECT_THAT(ShardTexts("x=2", "i32[2] [P(product)]"),
              ElementsAre("i32[2] 0 1", "i32[2] 1 1"));
  EXPECT_THAT(ShardTexts("x=2", "f32[2] [P(avg)]"),
              ElementsAre("f32[2] 0 1", "f32[2] 0 1"));
  EXPECT_THAT(ShardTexts("x=2,y=2", "f32[1] [P(avg), P(sum)]"),
              ElementsAre("f32[1] 0", "f32[1] -0", "f32[1] 0", "f32[1] -0"));
}

TEST(ShardsTest, RejectAnotherTensor) {
  EXPECT_THAT(Shards(Arange(TensorMeta::Parse("f32[3]").value()),
                     ParseLayout("x=2", "f32[4] [R]")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "testing: want a whole f32[4] to shard, found f32[3]"));
}

constexpr const char* kLayouts[][2] = {
    {"", "f32[2,3] []"},
    {"x=2", "f64[] [P(max)]"},
    {"x=4", "i64[5,3] [S(0)]"},
    {"x=2,y=3", "bf16[5,3] [S(0), S(0)]"},
    {"x=2,y=3", "f16[7] [S(0)[1], S(0)[0]]"},
    {"x=2,y=3", "i32[0,4] [S(0), P]"},
    {"x=2,y=3", "f32[5,3] [P(sum), R]"},
    {"x=2,y=3", "f32[5,3] [P(sum), P(avg)]"},
    {"x=2,y=3", "f64[5,3] [P(avg), P(avg)]"},
    {"x=2,y=3", "i32[5,3] [P(product), S(1)]"},
    {"x=2,y=3", "f32[5,3] [P(min), Ragged(0,4,11,15)]"},
    {"x=2,y=2,z=2", "f32[5,3,2] [S(1), P(max), P(max)]"},
    {"x=2:3@1", "f32[5,3] [S(1)]"},
};

TEST(ReassembleTest, IsTheInverseOfShards) {
  for (const auto& [mesh, text] : kLayouts) {
    SCOPED_TRACE(text);
    const Layout layout = ParseLayout(mesh, text);
    const HostTensor whole = Arange(layout.meta());
    ASSERT_OK_AND_ASSIGN(const std::vector<HostTensor> pieces,
                         Shards(whole, layout));
    EXPECT_THAT(Reassemble(pieces, layout), IsOkAndHolds(whole));
  }
}

TEST(ReassembleTest, ReducesWhatIsPartial) {
  const Layout layout = ParseLayout("x=3", "f32[2] [P(sum)]");
  std::vector<HostTensor> pieces(3, HostTensor(layout.meta()));
  for (int rank = 0; rank < 3; ++rank) {
    pieces[rank].values<float>()[1] = static_cast<float>(rank + 1);
  }
  EXPECT_EQ(Reassemble(pieces, layout).value().ToString(), "f32[2] 0 6");
  EXPECT_EQ(
      Reassemble(pieces, layout.With("[P(avg)]").value()).value().ToString(),
      "f32[2] 0 2");
  EXPECT_EQ(Reassemble(pieces, layout.With("[P(product)]").value())
                .value()
                .ToString(),
            "f32[2] 0 6");
}

// Plans that the reference executor applies lead from shards to shards.
TEST(ReassembleTest, FindsTheTensorBehindAPlan) {
  const Layout from = ParseLayout("x=2,y=3", "f32[5,6] [P, S(0)]");
  const Layout to = from.With("[S(1), R]").value();
  const Plan plan = MakePlan(from, to, Topology::Unit()).value();
  const HostTensor whole = Arange(from.meta());
  ASSERT_OK_AND_ASSIGN(std::vector<HostTensor> sources, Shards(whole, from));
  std::vector<HostTensor> targets;
  std::vector<TensorView> source_views;
  std::vector<TensorView> target_views;
  for (int rank = 0; rank < 6; ++rank) {
    source_views.push_back(sources[rank].view());
    targets.emplace_back(to.LocalMeta(rank));
  }
  for (HostTensor& target : targets) target_views.push_back(target.view());
  ASSERT_OK(ExecuteReference(plan, source_views, target_views));
  EXPECT_THAT(Reassemble(targets, to), IsOkAndHolds(whole));
}

TEST(ReassembleTest, FindsReplicasThatDiffer) {
  const Layout layout = ParseLayout("x=2,y=2", "f32[4] [R, S(0)]");
  ASSERT_OK_AND_ASSIGN(std::vector<HostTensor> pieces,
                       Shards(Arange(layout.meta()), layout));
  pieces[3].values<float>()[1] = 7;
  EXPECT_THAT(Reassemble(pieces, layout),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "testing: want replicas of element 3 of f32[4] [R, S(0)]"
                       " that are alike, found 3 in piece 1 and 7 in piece 3"));
}

TEST(ReassembleTest, RejectsOtherPieces) {
  const Layout layout = ParseLayout("x=2", "f32[3] [S(0)]");
  ASSERT_OK_AND_ASSIGN(std::vector<HostTensor> pieces,
                       Shards(Arange(layout.meta()), layout));
  EXPECT_THAT(
      Reassemble({pieces[0]}, layout),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("each of the 2 ranks of mesh 'x=2', found 1")));
  EXPECT_THAT(Reassemble({pieces[0], pieces[0]}, layout),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("want f32[1] as piece 1 of f32[3] [S(0)], "
                                 "found f32[2]")));
}

TEST(FillTest, WritesWhatShardsGive) {
  for (const auto& [mesh, text] : kLayouts) {
    SCOPED_TRACE(text);
    const Layout layout = ParseLayout(mesh, text);
    std::vector<HostTensor> filled;
    // In the order of mesh coordinates, which is that of ranks here.
    for (int rank = 0; rank < layout.mesh().end_rank(); ++rank) {
      if (!layout.mesh().Contains(rank)) continue;
      HostTensor& piece = filled.emplace_back(layout.LocalMeta(rank));
      ASSERT_OK(Fill(layout, rank, piece.view(), [](int64_t number) {
        return static_cast<double>(number);
      }));
    }
    EXPECT_THAT(Shards(Arange(layout.meta()), layout), IsOkAndHolds(filled));
  }
}

TEST(FillTest, TakesStridesAndRejectsOtherViews) {
  const Layout layout = ParseLayout("x=2", "f32[4] [S(0)]");
  std::vector<float> data(4, -1);
  const TensorView every_other =
      TensorView::Strided(data.data(), layout.LocalMeta(1), {2}).value();
  const auto square = [](int64_t number) {
    return static_cast<double>(number * number);
  };
  ASSERT_OK(Fill(layout, 1, every_other, square));
  EXPECT_THAT(data, ElementsAre(4, -1, 9, -1));
  EXPECT_THAT(
      Fill(layout, 1, TensorView::Flat(data.data(), DType::kF32, 4), square),
      StatusIs(absl::StatusCode::kInvalidArgument,
               "testing: want f32[2] to fill for rank 1 of f32[4] [S(0)], "
               "found f32[4]"));
  // A rank outside the mesh holds nothing.
  EXPECT_OK(Fill(layout, 2, TensorView::Flat(nullptr, DType::kF32, 0), square));
}

}  // namespace
}  // namespace tessera::testing

#include "tessera/testing/reference_executor.h"

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/run_ranks.h"
#include "tessera/redistribute/execute.h"
#include "tessera/redistribute/planner.h"
#include "tessera/tensor/dtype.h"
#include "tests/redistribute/all_layouts.h"
#include "tests/status_matchers.h"

namespace tessera::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Layout ParseLayout(const std::string& mesh, const std::string& text) {
  return Layout::Parse(text, DeviceMesh::Parse(mesh).value()).value();
}

Plan PlanBetween(const std::string& mesh, const std::string& source,
                 const std::string& target) {
  const Layout from = ParseLayout(mesh, source);
  return MakePlan(from, from.With(target).value(), Topology::LocalCpu())
      .value();
}

// What ranks 0, 1, ... of a row-major mesh hold, as bytes.
class RankPieces {
 public:
  RankPieces(const Layout& layout, unsigned char byte) : layout_(layout) {
    for (int rank = 0; rank < layout.mesh().size(); ++rank) {
      metas_.push_back(layout.LocalMeta(rank));
      bytes_.emplace_back(metas_.back().num_bytes(), byte);
    }
  }

  TensorView view(int rank) {
    return TensorView(bytes_[rank].data(), metas_[rank]);
  }
  std::vector<TensorView> views() {
    std::vector<TensorView> all;
    for (size_t rank = 0; rank < bytes_.size(); ++rank) {
      all.push_back(view(static_cast<int>(rank)));
    }
    return all;
  }

  // Numbers whose sums and products round; replicas agree.
  void FillAtRandom(std::mt19937& random) {
    for (size_t rank = 0; rank < bytes_.size(); ++rank) {
      bytes_[rank] = bytes_[FirstReplica(static_cast<int>(rank))];
      if (FirstReplica(static_cast<int>(rank)) != static_cast<int>(rank)) {
        continue;
      }
      VisitDType(metas_[rank].dtype(), [&]<typename T>() {
        T* const data = view(static_cast<int>(rank)).template as<T>();
        std::uniform_real_distribution<float> numbers(-1000, 1000);
        for (int64_t i = 0; i < metas_[rank].num_elements(); ++i) {
          data[i] = static_cast<T>(numbers(random));
        }
      });
    }
  }

  friend bool operator==(const RankPieces& a, const RankPieces& b) {
    return a.bytes_ == b.bytes_;
  }

 private:
  // The rank at coordinate 0 of the axes that replicate.
  int FirstReplica(int rank) const {
    MeshCoords coords = layout_.mesh().CoordsOf(rank).value();
    for (size_t axis = 0; axis < coords.size(); ++axis) {
      if (layout_.placement(static_cast<int>(axis)).is_replicate()) {
        coords[axis] = 0;
      }
    }
    return layout_.mesh().RankAt(coords);
  }

  Layout layout_;
  std::vector<TensorMeta> metas_;
  std::vector<std::vector<unsigned char>> bytes_;
};

// Both executors on the same sources, the targets poisoned differently.
struct BothRuns {
  explicit BothRuns(const Plan& p)
      : plan(p),
        source(p.source(), 0),
        executed(p.target(), 0x7f),
        reference(p.target(), 0x55) {}

  Plan plan;
  RankPieces source;
  RankPieces executed;
  RankPieces reference;
};

// --gtest_shuffle draws other pairs.
class ReferenceExecutorPairsTest
    : public ::testing::TestWithParam<const char*> {};

TEST_P(ReferenceExecutorPairsTest, GivesTheBitsOfExecute) {
  constexpr int kPairs = 60;
  const unsigned seed = ::testing::UnitTest::GetInstance()->random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const TensorMeta meta = TensorMeta::Parse(GetParam()).value();
  std::vector<ReduceOp> ops = {ReduceOp::kSum, ReduceOp::kMax,
                               ReduceOp::kProduct};
  if (IsFloating(meta.dtype())) ops.push_back(ReduceOp::kAvg);
  for (const char* mesh_text : {"x=3", "x=2,y=3", "x=2,y=1,z=2"}) {
    const DeviceMesh mesh = DeviceMesh::Parse(mesh_text).value();
    const std::vector<Layout> layouts = AllLayouts(meta, mesh, ops);
    std::vector<BothRuns> runs;
    for (int i = 0; i < kPairs; ++i) {
      const Layout& source = layouts[random() % layouts.size()];
      const Layout& target = layouts[random() % layouts.size()];
      runs.emplace_back(MakePlan(source, target, Topology::LocalCpu()).value());
      runs.back().source.FillAtRandom(random);
    }
    ASSERT_OK(RunLocalRanks(mesh.size(), [&](LocalRank& self) -> absl::Status {
      for (BothRuns& run : runs) {
        TESSERA_RETURN_IF_ERROR(Execute(run.plan, run.source.view(self.rank),
                                        run.executed.view(self.rank),
                                        self.comms, self.stream));
      }
      return self.stream.Synchronize();
    }));
    for (BothRuns& run : runs) {
      ASSERT_OK(ExecuteReference(run.plan, run.source.views(),
                                 run.reference.views()));
      EXPECT_EQ(run.executed, run.reference)
          << meta.ToString() << " on '" << mesh_text << "' " << run.plan;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ReferenceExecutorPairsTest,
                         ::testing::Values("f32[5,3]", "bf16[4,6]", "bf16[1,7]",
                                           "i32[5,3]", "i32[2,2]"));

TEST(ReferenceExecutorTest, TakesRanksRowMajorWhateverTheMeshStrides) {
  const Plan plan =
      PlanBetween("x=2:1,y=2:2", "f32[4] [S(0), S(0)]", "[R, S(0)]");
  float source[] = {1, 2, 3, 4};
  float target[4][2] = {};
  std::vector<TensorView> sources;
  std::vector<TensorView> targets;
  for (int i = 0; i < 4; ++i) {
    sources.push_back(TensorView::Flat(&source[i], DType::kF32, 1));
    targets.push_back(TensorView::Flat(target[i], DType::kF32, 2));
  }
  ASSERT_OK(ExecuteReference(plan, sources, targets));
  // (x, y) = (0, 0), (0, 1), (1, 0), (1, 1).
  EXPECT_THAT(target[0], ElementsAre(1, 2));
  EXPECT_THAT(target[1], ElementsAre(3, 4));
  EXPECT_THAT(target[2], ElementsAre(1, 2));
  EXPECT_THAT(target[3], ElementsAre(3, 4));
}

TEST(ReferenceExecutorTest, TakesStridedViews) {
  const Plan plan = PlanBetween("x=2", "f32[2,2] [S(0)]", "[S(1)]");
  float source[] = {1, 0, 2, 0, 3, 0, 4, 0};
  float target[] = {0, 0, 0, 0, 0, 0, 0, 0};
  const auto view = [](float* data, const char* meta, int64_t stride) {
    return TensorView::Strided(data, TensorMeta::Parse(meta).value(),
                               {stride, stride})
        .value();
  };
  ASSERT_OK(ExecuteReference(
      plan, {view(source, "f32[1,2]", 2), view(source + 4, "f32[1,2]", 2)},
      {view(target, "f32[2,1]", 2), view(target + 1, "f32[2,1]", 2)}));
  EXPECT_THAT(target, ElementsAre(1, 2, 3, 4, 0, 0, 0, 0));
}

TEST(ReferenceExecutorTest, HandlesRaggedPieces) {
  const Plan plan =
      PlanBetween("x=2,y=2", "i32[3] [P, Ragged(0,1,3)]", "[R, Ragged(0,1,3)]");
  int32_t source[] = {1, 20, 21, 2, 30, 31};
  int32_t target[6] = {};
  const auto views = [](int32_t* data) -> std::vector<TensorView> {
    return {TensorView::Flat(data, DType::kI32, 1),
            TensorView::Flat(data + 1, DType::kI32, 2),
            TensorView::Flat(data + 3, DType::kI32, 1),
            TensorView::Flat(data + 4, DType::kI32, 2)};
  };
  ASSERT_OK(ExecuteReference(plan, views(source), views(target)));
  EXPECT_THAT(target, ElementsAre(3, 50, 52, 3, 50, 52));
}

// --- Errors -----------------------------------------------------------------

// `plan` on zeros.
absl::Status RunOnZeros(const Plan& plan) {
  RankPieces source(plan.source(), 0);
  RankPieces target(plan.target(), 0);
  return ExecuteReference(plan, source.views(), target.views());
}

template <typename... Texts>
auto IsWrong(const Texts&... texts) {
  return StatusIs(absl::StatusCode::kInvalidArgument,
                  AllOf(HasSubstr("reference: "), HasSubstr(texts)...));
}

TEST(ReferenceExecutorTest, RejectsViewsThatAreNotTheLayouts) {
  const Plan plan = PlanBetween("x=2", "f32[3] [S(0)]", "[R]");
  RankPieces source(plan.source(), 0);
  RankPieces target(plan.target(), 0);
  EXPECT_THAT(ExecuteReference(plan, {source.view(0)}, target.views()),
              IsWrong("want one source for each of the 2 ranks", "found 1"));
  EXPECT_THAT(
      ExecuteReference(plan, source.views(), {target.view(0), source.view(1)}),
      IsWrong("the target of rank 1", "f32[3]", "found f32[1]"));
}

TEST(ReferenceExecutorTest, RejectsElementsThatNobodyHolds) {
  Step step;
  step.kind = StepKind::kAllGather;
  step.axes = {0};
  step.before = ParseLayout("x=2,y=2", "f32[4] [S(0), S(0)]");
  step.after = step.before.With("[R, S(0)]").value();
  EXPECT_THAT(RunOnZeros(Plan(step.before, step.after, {step})),
              IsWrong("step 1: AG(x) at element 1 of rank 0",
                      "want one of the ranks (0,2) to hold it, found none"));
  step.kind = StepKind::kAllReduce;
  EXPECT_THAT(RunOnZeros(Plan(step.before, step.after, {step})),
              IsWrong("want something Partial to reduce"));
  step.before = step.before.With("[P, S(0)]").value();
  step.after = step.before.With("[R, R]").value();
  EXPECT_THAT(RunOnZeros(Plan(step.before, step.after, {step})),
              IsWrong("AR(x) at element 2 of rank 0: rank 0 does not hold it"));
  step.kind = StepKind::kFill;
  EXPECT_THAT(RunOnZeros(Plan(step.before, step.after, {step})),
              IsWrong("want something Partial to fill"));
  step.kind = StepKind::kScale;
  EXPECT_THAT(RunOnZeros(Plan(step.before, step.after, {step})),
              IsWrong("want a sum and an average to scale"));
  step.axes = {2};
  EXPECT_THAT(RunOnZeros(Plan(step.before, step.after, {step})),
              IsWrong("step 1: want axes of the mesh"));
}

TEST(ReferenceExecutorTest, TakesAViewPerRankOfTwoMeshes) {
  Step step;
  step.kind = StepKind::kExchange;
  step.axes = {0};
  step.before = ParseLayout("x=2", "f32[4] [S(0)]");
  step.after = ParseLayout("y=3@1", "f32[4] [Ragged(0,1,1,4)]");
  const Plan plan(step.before, step.after, {step});
  std::vector<float> left = {1, 2};
  std::vector<float> right = {3, 4};
  std::vector<float> first(1);
  std::vector<float> last(3);
  const auto flat = [](std::vector<float>& v) {
    return TensorView::Flat(v.data(), DType::kF32,
                            static_cast<int64_t>(v.size()));
  };
  std::vector<float> none;
  EXPECT_OK(ExecuteReference(plan, {flat(left), flat(right)},
                             {flat(first), flat(none), flat(last)}));
  EXPECT_THAT(first, ElementsAre(1));
  EXPECT_THAT(last, ElementsAre(2, 3, 4));
  EXPECT_THAT(ExecuteReference(plan, {flat(left), flat(right)}, {flat(first)}),
              IsWrong("want one target for each of the 3 ranks", "found 1"));
}

TEST(ReferenceExecutorTest, RejectsExchangesOfWhatIsNotThere) {
  Step step;
  step.kind = StepKind::kExchange;
  step.axes = {0};
  step.before = ParseLayout("x=2,y=2", "f32[4] [S(0), S(0)]");
  step.after = step.before.With("[R, R]").value();
  EXPECT_THAT(RunOnZeros(Plan(step.before, step.after, {step})),
              IsWrong("step 1: XC(x) at element 1 of rank 0",
                      "want one of the ranks (0,2) to hold it, found none"));
  step.before = step.before.With("[P, R]").value();
  EXPECT_THAT(RunOnZeros(Plan(step.before, step.after, {step})),
              IsWrong("want nothing Partial to exchange"));
  step.after = ParseLayout("x=2,y=2", "i32[4] [R, R]");
  EXPECT_THAT(RunOnZeros(Plan(step.before, step.after, {step})),
              IsWrong("step 1: want one tensor"));
  step.kind = StepKind::kAllReduce;
  step.after = ParseLayout("a=2,b=2", "f32[4] [R, R]");
  EXPECT_THAT(RunOnZeros(Plan(step.before, step.after, {step})),
              IsWrong("step 1: want one mesh but for an exchange"));
}

TEST(ReferenceExecutorTest, RejectsStepsThatDoNotFollow) {
  const Plan plan = PlanBetween("x=2", "f32[4] [S(0)]", "[R]");
  EXPECT_THAT(RunOnZeros(Plan(plan.source(), plan.target(), {})),
              IsWrong("ranks end with f32[4] [S(0)]", "want f32[4] [R]"));
  const Step& step = plan.steps()[0];
  EXPECT_THAT(RunOnZeros(Plan(plan.source(), plan.target(), {step, step})),
              IsWrong("step 2: ranks hold f32[4] [R]", "want f32[4] [S(0)]"));
}

}  // namespace
}  // namespace tessera::testing

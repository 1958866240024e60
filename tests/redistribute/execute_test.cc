#include "tessera/redistribute/execute.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/run_ranks.h"
#include "tessera/redistribute/planner.h"
#include "tessera/redistribute/verify.h"
#include "tests/redistribute/reference.h"
#include "tests/redistribute/run_plans.h"
#include "tests/redistribute/step_rules.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::HeldElements;
using ::tessera::testing::MakeStep;
using ::tessera::testing::Outcomes;
using ::tessera::testing::RunAndFindFault;
using ::tessera::testing::RunPlans;
using ::tessera::testing::RunReferenceAndFindFault;
using ::tessera::testing::StatusIs;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kPoison = -77;

Layout ParseLayout(const std::string& mesh, const std::string& text) {
  return Layout::Parse(text, DeviceMesh::Parse(mesh).value()).value();
}

Plan PlanBetween(const std::string& mesh, const std::string& source,
                 const std::string& target) {
  const Layout from = ParseLayout(mesh, source);
  return MakePlan(from, from.With(target).value(), Topology::LocalCpu())
      .value();
}

// What the ranks hold after `plan` if rank r starts with values[r] everywhere.
template <typename T>
std::vector<std::vector<T>> RunFrom(const Plan& plan,
                                    const std::vector<T>& values) {
  std::vector<std::vector<T>> results(values.size());
  EXPECT_OK(RunLocalRanks(
      static_cast<int>(values.size()), [&](LocalRank& self) -> absl::Status {
        const TensorMeta before = plan.source().LocalMeta(self.rank);
        const TensorMeta after = plan.target().LocalMeta(self.rank);
        std::vector<T> source(before.num_elements(), values[self.rank]);
        std::vector<T>& target = results[self.rank];
        target.resize(after.num_elements(), T(kPoison));
        TESSERA_RETURN_IF_ERROR(Execute(plan, {source.data(), before},
                                        {target.data(), after}, self.comms,
                                        self.stream));
        TESSERA_RETURN_IF_ERROR(self.stream.Synchronize());
        EXPECT_THAT(source, Each(values[self.rank])) << "source was written";
        return absl::OkStatus();
      }));
  return results;
}

bool IsNegativeZero(float x) { return x == 0 && std::signbit(x); }

TEST(ExecuteTest, FillsWithTheExactIdentity) {
  const auto sum =
      RunFrom<float>(PlanBetween("x=2", "f32[2] [R]", "[P(sum)]"), {3, 3});
  EXPECT_THAT(sum[0], ElementsAre(3, 3));
  EXPECT_THAT(sum[1], Each(::testing::Truly(IsNegativeZero)));
  const auto product =
      RunFrom<float>(PlanBetween("x=2", "f32[2] [R]", "[P(product)]"), {3, 3});
  EXPECT_THAT(product, ElementsAre(ElementsAre(3, 3), ElementsAre(1, 1)));
  const auto integers =
      RunFrom<int32_t>(PlanBetween("x=2", "i32[2] [R]", "[P(sum)]"), {3, 3});
  EXPECT_THAT(integers, ElementsAre(ElementsAre(3, 3), ElementsAre(0, 0)));
  for (const char* op : {"[P(avg)]", "[P(min)]", "[P(max)]"}) {
    const auto kept =
        RunFrom<float>(PlanBetween("x=2", "f32[2] [R]", op), {3, 3});
    EXPECT_THAT(kept, Each(ElementsAre(3, 3))) << op;
  }
}

TEST(ExecuteTest, PutsAPieceAmongIdentities) {
  const auto pieces =
      RunFrom<float>(PlanBetween("x=2", "f32[3] [S(0)]", "[P(sum)]"), {3, 4});
  EXPECT_THAT(pieces[0], ElementsAre(3, 3, 0));
  EXPECT_TRUE(IsNegativeZero(pieces[0][2]));
  EXPECT_THAT(pieces[1], ElementsAre(0, 0, 4));
  EXPECT_TRUE(IsNegativeZero(pieces[1][0]));
  EXPECT_TRUE(IsNegativeZero(pieces[1][1]));
}

// A negative zero stays one on its way through a sum.
TEST(ExecuteTest, KeepsTheSignOfZeros) {
  const std::string mesh = "x=3";
  const auto partial = RunFrom<float>(PlanBetween(mesh, "f32[1] [R]", "[P]"),
                                      {-0.f, -0.f, -0.f});
  const auto back =
      RunFrom<float>(PlanBetween(mesh, "f32[1] [P]", "[R]"),
                     {partial[0][0], partial[1][0], partial[2][0]});
  for (const auto& piece : back) EXPECT_TRUE(IsNegativeZero(piece[0]));
}

TEST(ExecuteTest, CopiesWhereSourceAndTargetAreEqual) {
  const auto copied =
      RunFrom<float>(PlanBetween("x=2", "f32[3] [S(0)]", "[S(0)]"), {1, 2});
  EXPECT_THAT(copied, ElementsAre(ElementsAre(1, 1), ElementsAre(2)));
  const auto relabelled = RunFrom<float>(
      PlanBetween("x=2,y=1", "f32[3] [S(0), P(min)]", "[S(0), S(0)]"), {1, 2});
  EXPECT_THAT(relabelled, ElementsAre(ElementsAre(1, 1), ElementsAre(2)));
}

// The steps `kinds` between the layouts `chain`, along `axes` each, with the
// figures that they should have.
Plan ChainOf(const std::vector<Layout>& chain,
             const std::vector<std::pair<StepKind, MeshCoords>>& steps) {
  std::vector<Step> made;
  for (size_t i = 0; i < steps.size(); ++i) {
    made.push_back(
        MakeStep(steps[i].first, steps[i].second, chain[i], chain[i + 1]));
  }
  return Plan(chain.front(), chain.back(), made);
}

struct FlattenedCase {
  const char* mesh;
  StepKind kind;
  MeshCoords axes;
  const char* before;
  const char* after;
};

TEST(ExecuteTest, RunsCollectivesOverSeveralAxesAsOne) {
  const FlattenedCase kCases[] = {
      {"x=2,y=2", StepKind::kAllGather, {0, 1}, "[S(0), S(0)]", "[R, R]"},
      {"x=2,y=3", StepKind::kAllGather, {1, 0}, "[S(1)[1], S(1)[0]]", "[R, R]"},
      {"x=2,y=2,z=2",
       StepKind::kAllGather,
       {0, 1, 2},
       "[S(0), S(0), S(0)]",
       "[R, R, R]"},
      {"x=2,y=2,z=2",
       StepKind::kAllGather,
       {0, 2},
       "[S(1), S(0), S(1)]",
       "[R, S(0), R]"},
      // Of 4 rows the pieces are 1, 1, 0, 1, 1, 0.
      {"x=2,y=3", StepKind::kReduceScatter, {0, 1}, "[P, P]", "[S(0), S(0)]"},
      {"x=2,y=3",
       StepKind::kReduceScatter,
       {1, 0},
       "[P(max), P(max)]",
       "[S(0)[1], S(0)[0]]"},
      {"x=2,y=2,z=2",
       StepKind::kReduceScatter,
       {2, 0, 1},
       "[P(avg), P(avg), P(avg)]",
       "[S(1)[1], S(1)[2], S(1)[0]]"},
      {"x=2,y=3", StepKind::kAllReduce, {0, 1}, "[P, P]", "[R, R]"},
      {"x=2,y=2,z=2",
       StepKind::kAllReduce,
       {2, 0},
       "[P(min), S(0), P(min)]",
       "[R, S(0), R]"},
      {"x=2,y=2,z=2",
       StepKind::kAllReduce,
       {0, 1, 2},
       "[P(avg), P(avg), P(avg)]",
       "[R, R, R]"},
      {"x=2,y=3", StepKind::kAllToAll, {0, 1}, "[S(0), S(0)]", "[S(1), S(1)]"},
      {"x=2,y=3",
       StepKind::kAllToAll,
       {1, 0},
       "[S(1)[1], S(1)[0]]",
       "[S(0)[1], S(0)[0]]"},
      {"x=2,y=2,z=2",
       StepKind::kAllToAll,
       {0, 1, 2},
       "[S(0), S(0), S(0)]",
       "[S(1), S(1), S(1)]"},
  };
  for (const char* meta : {"f32[4,6]", "f32[5,3]", "f32[12,8]", "f32[1,0]"}) {
    std::vector<Plan> plans;
    for (const FlattenedCase& c : kCases) {
      const Layout before =
          ParseLayout(c.mesh, absl::StrCat(meta, " ", c.before));
      plans.push_back(
          ChainOf({before, before.With(c.after).value()}, {{c.kind, c.axes}}));
      EXPECT_OK(Verify(plans.back())) << plans.back();
      EXPECT_EQ(RunReferenceAndFindFault(plans.back()), "");
    }
    EXPECT_EQ(RunAndFindFault(8, plans), "");
    EXPECT_EQ(RunAndFindFault(8, plans, CpuStreams::kWorker), "");
  }
}

// The piece in the middle is the largest on a rank that has little before.
TEST(ExecuteTest, CountsTheLargestRaggedPieceAsWorkspace) {
  const Layout from = ParseLayout("x=3", "f32[4,3] [S(0)]");
  const Layout ragged = from.With("[Ragged(0,0,1,12)]").value();
  const Layout to = from.With("[S(1)]").value();
  const Plan plan = ChainOf({from, ragged, to}, {{StepKind::kExchange, {0}},
                                                 {StepKind::kExchange, {0}}});
  EXPECT_OK(Verify(plan));
  EXPECT_EQ(plan.workspace_bytes(), 11 * 4);
  const absl::StatusOr<Outcomes> outcomes = RunPlans(3, {plan});
  ASSERT_OK(outcomes);
  EXPECT_EQ((*outcomes)[0][1].workspace_peak, 1 * 4);
  EXPECT_EQ((*outcomes)[0][2].workspace_peak, 11 * 4);
  EXPECT_EQ(RunAndFindFault(3, {plan}), "");
}

// In whichever order a step names its axes.
TEST(ExecuteTest, ExchangesOverOneGroupPerSetOfAxes) {
  const Layout from = ParseLayout("x=2,y=2", "f32[4,3] [S(0), R]");
  const Layout to = from.With("[R, S(0)]").value();
  const absl::StatusOr<Outcomes> outcomes =
      RunPlans(4, {ChainOf({from, to}, {{StepKind::kExchange, {0, 1}}}),
                   ChainOf({from, to}, {{StepKind::kExchange, {1, 0}}})});
  ASSERT_OK(outcomes);
  for (const auto& outcome : *outcomes) {
    ASSERT_EQ(outcome[0].collectives.size(), 1u);
    EXPECT_EQ(outcome[0].collectives[0].communicator, "x.y");
  }
}

// Each rank takes the steps of its own mesh, and the exchange.
TEST(ExecuteTest, GoesFromOneMeshToAnotherAndBack) {
  for (const char* there : {"a=3@4", "a=3@2", "a=4:1", "a=1@1"}) {
    const Layout from = ParseLayout("x=2,y=2", "f32[5,3] [P(sum), S(0)]");
    const Layout reduced = from.With("[S(1), S(0)]").value();
    const Layout arrived = ParseLayout(there, "f32[5,3] [S(0)]");
    const Layout turned = arrived.With("[S(1)]").value();
    const Layout back = from.With("[R, S(1)]").value();
    std::vector<std::pair<StepKind, MeshCoords>> steps = {
        {StepKind::kReduceScatter, {0}}, {StepKind::kExchange, {0, 1}}};
    MeshCoords axes = {0};
    StepKind turn = StepKind::kAllToAll;
    if (arrived.mesh().size() == 1) {
      axes = {};
      turn = StepKind::kRelabel;
    }
    steps.push_back({turn, {0}});
    std::vector<Plan> plans = {
        ChainOf({from, reduced, arrived, turned}, steps)};
    steps.push_back({StepKind::kExchange, axes});
    plans.push_back(ChainOf({from, reduced, arrived, turned, back}, steps));
    for (const Plan& plan : plans) {
      EXPECT_OK(Verify(plan)) << plan;
      EXPECT_EQ(RunReferenceAndFindFault(plan), "");
    }
    EXPECT_EQ(RunAndFindFault(8, plans), "") << there;
    EXPECT_EQ(RunAndFindFault(8, plans, CpuStreams::kWorker), "") << there;
  }
}

// Rank 0 sends, rank 1 keeps and sends, rank 2 receives, rank 3 never calls.
TEST(ExecuteTest, LooksAtTheViewsOfARanksOwnMeshesAlone) {
  const Layout from = ParseLayout("x=2", "f32[3] [S(0)]");
  const Layout to = ParseLayout("x=2@1", "f32[3] [R]");
  const Plan plan = ChainOf({from, to}, {{StepKind::kExchange, {0}}});
  EXPECT_OK(RunLocalRanks(4, [&](LocalRank& self) -> absl::Status {
    if (self.rank == 3) return absl::OkStatus();
    std::vector<float> piece(from.LocalMeta(self.rank).num_elements(),
                             static_cast<float>(self.rank + 1));
    std::vector<float> whole(3, kPoison);
    const TensorView source =
        self.rank == 2 ? TensorView()
                       : TensorView(piece.data(), from.LocalMeta(self.rank));
    const TensorView target =
        self.rank == 0 ? TensorView() : TensorView(whole.data(), to.meta());
    TESSERA_RETURN_IF_ERROR(
        Execute(plan, source, target, self.comms, self.stream));
    TESSERA_RETURN_IF_ERROR(self.stream.Synchronize());
    const std::vector<float> untouched(3, kPoison);
    const std::vector<float> wanted = {1, 1, 2};
    EXPECT_EQ(whole, self.rank == 0 ? untouched : wanted);
    return absl::OkStatus();
  }));
}

// All messages from and to views whose elements lie apart.
TEST(ExecuteTest, ExchangesStridedViews) {
  const Layout from = ParseLayout("x=2,y=2", "f32[4,3] [Ragged(0,5,12), R]");
  const Layout to = from.With("[S(1), S(0)]").value();
  for (const Plan& plan :
       {ChainOf({from, to}, {{StepKind::kExchange, {0, 1}}}),
        ChainOf({to, from}, {{StepKind::kExchange, {0, 1}}})}) {
    EXPECT_OK(RunLocalRanks(4, [&](LocalRank& self) -> absl::Status {
      // Every element's value is its number.
      const auto strided = [&](const Layout& layout, int64_t step,
                               std::vector<float>& memory, bool fill) {
        const TensorMeta meta = layout.LocalMeta(self.rank);
        memory.assign(meta.num_elements() * step, kPoison);
        const std::vector<int64_t> held = HeldElements(layout, self.rank);
        for (size_t i = 0; i < held.size() && fill; ++i) {
          memory[i * step] = static_cast<float>(held[i]);
        }
        Dims strides(meta.shape().RowMajorStrides());
        for (int64_t& stride : strides) stride *= step;
        return TensorView::Strided(memory.data(), meta, strides).value();
      };
      std::vector<float> source;
      std::vector<float> target;
      std::vector<float> wanted;
      strided(plan.target(), 3, wanted, /*fill=*/true);
      const TensorView out = strided(plan.target(), 3, target, /*fill=*/false);
      TESSERA_RETURN_IF_ERROR(
          Execute(plan, strided(plan.source(), 2, source, /*fill=*/true), out,
                  self.comms, self.stream));
      TESSERA_RETURN_IF_ERROR(self.stream.Synchronize());
      EXPECT_EQ(target, wanted);
      return absl::OkStatus();
    }));
  }
}

TEST(ExecuteTest, ReducesTheFlatPieceBesideARaggedCut) {
  std::vector<Plan> plans;
  for (const char* cut : {"0,4,12", "-3+10", "0,0,12", "0+12"}) {
    const std::string ragged = "Ragged(" + std::string(cut) + ")";
    const std::string source = "f32[4,3] [P, " + ragged + "]";
    for (const char* outer : {"R", "P(avg)", "P(sum)"}) {
      plans.push_back(PlanBetween(
          "x=2,y=2", source, "[" + std::string(outer) + ", " + ragged + "]"));
      EXPECT_EQ(plans.back().workspace_bytes(), 0);
    }
  }
  EXPECT_EQ(RunAndFindFault(4, plans), "");
  EXPECT_EQ(RunAndFindFault(4, plans, CpuStreams::kWorker), "");
}

// Elements of a rank's piece lie two apart in the source, and column by column
// three apart in the target; what lies between is nobody's.
TEST(ExecuteTest, TakesViewsWithAnyStrides) {
  for (const char* target_text :
       {"[S(1), R]", "[R, S(0)]", "[P(avg), R]", "[P(avg), S(1)]"}) {
    const Plan plan =
        PlanBetween("x=2,y=2", "f32[4,3] [P(sum), S(0)]", target_text);
    std::vector<std::vector<float>> dense = RunFrom<float>(plan, {1, 2, 3, 4});
    EXPECT_OK(RunLocalRanks(4, [&](LocalRank& self) -> absl::Status {
      const TensorMeta before = plan.source().LocalMeta(self.rank);
      const TensorMeta after = plan.target().LocalMeta(self.rank);
      const int64_t rows = after.shape().extent(0);
      const int64_t columns = after.shape().extent(1);
      std::vector<float> source(before.num_elements() * 2, kPoison);
      for (size_t i = 0; i < source.size(); i += 2) {
        source[i] = static_cast<float>(self.rank + 1);
      }
      std::vector<float> target(after.num_elements() * 3, kPoison);
      TESSERA_ASSIGN_OR_RETURN(
          const TensorView from,
          TensorView::Strided(source.data(), before,
                              {before.shape().extent(1) * 2, 2}));
      TESSERA_ASSIGN_OR_RETURN(
          const TensorView to,
          TensorView::Strided(target.data(), after, {3, rows * 3}));
      TESSERA_RETURN_IF_ERROR(Execute(plan, from, to, self.comms, self.stream));
      TESSERA_RETURN_IF_ERROR(self.stream.Synchronize());
      for (int64_t i = 0; i < rows * columns * 3; ++i) {
        const int64_t row = i / 3 % rows;
        const int64_t column = i / 3 / rows;
        const float wanted =
            i % 3 == 0 ? dense[self.rank][row * columns + column] : kPoison;
        EXPECT_EQ(target[i], wanted) << plan << " at " << i;
      }
      return absl::OkStatus();
    }));
  }
}

TEST(ExecuteTest, RejectsViewsThatAreNotTheLayoutsBeforeAnyCommunication) {
  const Plan plan = PlanBetween("x=2", "f32[3,2] [S(0)]", "[R]");
  EXPECT_OK(RunLocalRanks(2, [&](LocalRank& self) -> absl::Status {
    std::vector<float> memory(6);
    const auto view = [&](const char* meta) {
      return TensorView(memory.data(), TensorMeta::Parse(meta).value());
    };
    const TensorView source(memory.data(), plan.source().LocalMeta(self.rank));
    const auto is_invalid = [&](const char* end, const char* wanted,
                                const char* found) {
      return StatusIs(absl::StatusCode::kInvalidArgument,
                      AllOf(HasSubstr(end), HasSubstr(wanted), HasSubstr(found),
                            HasSubstr("rank " + std::to_string(self.rank))));
    };
    const std::string wanted = source.meta().ToString();
    EXPECT_THAT(Execute(plan, view("f32[3,2]"), view("f32[3,2]"), self.comms,
                        self.stream),
                is_invalid("source", wanted.c_str(), "f32[3,2]"));
    EXPECT_THAT(Execute(plan, source, view("f32[6]"), self.comms, self.stream),
                is_invalid("target", "f32[3,2]", "f32[6]"));
    EXPECT_THAT(
        Execute(plan, source, view("bf16[3,2]"), self.comms, self.stream),
        is_invalid("target", "f32[3,2]", "bf16[3,2]"));
    EXPECT_TRUE(self.comms.log().recent().empty());
    return self.stream.Synchronize();
  }));
}

TEST(ExecuteTest, RefusesLocalStepsOverSeveralAxes) {
  const Layout from =
      Layout::Parse("f32[4] [R, R]", DeviceMesh::Parse("x=1,y=1").value())
          .value();
  const Layout to = from.With("[S(0), S(0)]").value();
  const Plan plan(from, to,
                  {{.kind = StepKind::kSlice,
                    .axes = {0, 1},
                    .before = from,
                    .after = to}});
  EXPECT_OK(RunLocalRanks(1, [&](LocalRank& rank) -> absl::Status {
    float x[4] = {};
    float y[4] = {};
    EXPECT_THAT(
        Execute(plan, TensorView(x, from.meta()), TensorView(y, from.meta()),
                rank.comms, rank.stream),
        StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("SL(x,y)")));
    return absl::OkStatus();
  }));
}

// The steps need 8 bytes of workspace: one less is too little on every rank.
TEST(ExecuteTest, ReportsMemoryThatIsNotThere) {
  const Plan plan = PlanBetween("x=2", "f32[4] [P(max)]", "[P(sum)]");
  ASSERT_EQ(plan.ToString(), "[P(max)] -RS(x)-> [S(0)] -FI(x)-> [P(sum)]");
  ASSERT_EQ(plan.workspace_bytes(), 8);
  for (int64_t limit : {7, 8}) {
    LocalRunOptions options;
    options.device.memory_limit_bytes = limit;
    const absl::Status status = RunLocalRanks(
        2,
        [&](LocalRank& self) -> absl::Status {
          std::vector<float> source(4);
          std::vector<float> target(4);
          const TensorMeta meta = plan.source().meta();
          TESSERA_RETURN_IF_ERROR(Execute(plan, {source.data(), meta},
                                          {target.data(), meta}, self.comms,
                                          self.stream));
          return self.stream.Synchronize();
        },
        options);
    EXPECT_EQ(status.code(), limit == 8 ? absl::StatusCode::kOk
                                        : absl::StatusCode::kResourceExhausted)
        << status;
  }
}

TEST(ExecuteTest, GivesWorkspaceBack) {
  const Plan plan =
      PlanBetween("x=2,y=2", "f32[8,8] [P(max), S(0)]", "[P(sum), S(0)]");
  ASSERT_GT(plan.workspace_bytes(), 0);
  for (CpuStreams streams : {CpuStreams::kInline, CpuStreams::kWorker}) {
    LocalRunOptions options;
    options.device.streams = streams;
    EXPECT_OK(RunLocalRanks(
        4,
        [&](LocalRank& self) -> absl::Status {
          std::vector<float> source(32);
          std::vector<float> target(32);
          const TensorView from(source.data(),
                                plan.source().LocalMeta(self.rank));
          const TensorView to(target.data(),
                              plan.target().LocalMeta(self.rank));
          for (int i = 0; i < 3; ++i) {
            TESSERA_RETURN_IF_ERROR(
                Execute(plan, from, to, self.comms, self.stream));
          }
          const MemoryUsage usage = self.device.memory().by_tag.at("workspace");
          EXPECT_EQ(usage.current_bytes, 0);
          EXPECT_EQ(usage.peak_bytes, plan.workspace_bytes());
          return self.stream.Synchronize();
        },
        options));
  }
}

TEST(ExecuteTest, RanksOutsideTheMeshAreNotWaitedFor) {
  const Plan plan = PlanBetween("x=2@1", "f32[3] [S(0)]", "[R]");
  EXPECT_OK(RunLocalRanks(4, [&](LocalRank& self) -> absl::Status {
    if (self.rank == 3) return absl::OkStatus();  // never calls
    if (self.rank == 0) {
      return Execute(plan, TensorView(), TensorView(), self.comms, self.stream);
    }
    const TensorMeta before = plan.source().LocalMeta(self.rank);
    std::vector<float> source(before.num_elements(),
                              static_cast<float>(self.rank));
    std::vector<float> target(3, kPoison);
    TESSERA_RETURN_IF_ERROR(Execute(plan, {source.data(), before},
                                    {target.data(), plan.target().meta()},
                                    self.comms, self.stream));
    TESSERA_RETURN_IF_ERROR(self.stream.Synchronize());
    EXPECT_THAT(target, ElementsAre(1, 1, 2));
    return absl::OkStatus();
  }));
}

}  // namespace
}  // namespace tessera

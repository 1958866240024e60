// The proof over all layouts of small tensors on small meshes: of every plan
// that is made, and of every single step that can be written down.

#include <cstddef>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/redistribute/planner.h"
#include "tessera/redistribute/verify.h"
#include "tests/redistribute/all_layouts.h"
#include "tests/redistribute/run_plans.h"
#include "tests/redistribute/sampling.h"
#include "tests/redistribute/step_rules.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::AllLayouts;
using ::tessera::testing::LegalStep;
using ::tessera::testing::MakeStep;
using ::tessera::testing::NamedStep;
using ::tessera::testing::RunAndFindFault;
using ::tessera::testing::RunReferenceAndFindFault;
using ::tessera::testing::Sampler;

std::vector<Layout> LayoutsOf(const std::string& meta, const std::string& mesh,
                              absl::Span<const ReduceOp> ops) {
  return AllLayouts(TensorMeta::Parse(meta).value(),
                    DeviceMesh::Parse(mesh).value(), ops);
}

// --- Plans ------------------------------------------------------------------

class VerifyPlansTest
    : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(VerifyPlansTest, ProvesThePlanOfEveryPair) {
  const auto& [mesh, shape] = GetParam();
  const std::vector<Layout> layouts = LayoutsOf(
      std::string("f32") + shape, mesh, {ReduceOp::kSum, ReduceOp::kAvg});
  Sampler sampler(13);
  for (const Layout& source : layouts) {
    for (const Layout& target : layouts) {
      if (!sampler.Takes()) continue;
      const Plan plan = MakePlan(source, target, Topology::LocalCpu()).value();
      ASSERT_OK(Verify(plan)) << source.meta().ToString() << " " << plan;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, VerifyPlansTest,
    ::testing::Combine(::testing::Values("x=2,y=2", "x=2,y=3", "x=3,y=2",
                                         "x=2,y=1", "x=1,y=3,z=1"),
                       ::testing::Values("[4,6]", "[5,3]", "[1,7]", "[0,4]",
                                         "[12]", "[3,1,2]")));
INSTANTIATE_TEST_SUITE_P(ThreeAxes, VerifyPlansTest,
                         ::testing::Combine(::testing::Values("x=2,y=2,z=2"),
                                            ::testing::Values("[4,6]", "[5,3]",
                                                              "[1,0]")));

// --- Steps ------------------------------------------------------------------

class VerifyStepsTest
    : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {
 protected:
  VerifyStepsTest()
      : layouts_(
            LayoutsOf(std::string("f32") + std::get<1>(GetParam()),
                      std::get<0>(GetParam()),
                      {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kProduct})) {}

  // Those steps between two layouts, of every kind, that are proved.
  std::vector<Plan> ProvedSteps(absl::Span<const MeshCoords> axis_lists) const {
    std::vector<Plan> proved;
    Sampler sampler(5);
    for (const Layout& before : layouts_) {
      for (const Layout& after : layouts_) {
        if (!sampler.Takes()) continue;
        for (StepKind kind : kAllStepKinds) {
          for (const MeshCoords& axes : axis_lists) {
            Plan plan(before, after, {MakeStep(kind, axes, before, after)});
            if (Verify(plan).ok()) proved.push_back(std::move(plan));
          }
        }
      }
    }
    return proved;
  }

  const std::vector<Layout> layouts_;
};

TEST_P(VerifyStepsTest, ProvedStepsAlongOneAxisGiveTheValues) {
  const std::vector<Plan> proved = ProvedSteps({{0}, {1}});
  EXPECT_FALSE(proved.empty());
  for (const Plan& plan : proved) {
    ASSERT_EQ(RunReferenceAndFindFault(plan), "") << plan;
  }
  EXPECT_EQ(RunAndFindFault(layouts_[0].mesh().size(), proved), "");
}

TEST_P(VerifyStepsTest, ProvedStepsAlongBothAxesGiveTheValues) {
  const std::vector<Plan> proved = ProvedSteps({{0, 1}, {1, 0}});
  std::vector<Plan> executable;
  for (const Plan& plan : proved) {
    ASSERT_EQ(RunReferenceAndFindFault(plan), "") << plan;
    const StepKind kind = plan.steps()[0].kind;
    if (Communicates(kind) || kind == StepKind::kRelabel) {
      executable.push_back(plan);
    }
  }
  EXPECT_FALSE(executable.empty());
  EXPECT_EQ(RunAndFindFault(layouts_[0].mesh().size(), executable), "");
}

// The proof is not stricter than the planner.
TEST_P(VerifyStepsTest, ProvesWhatTheRulesOfEdgesAllow) {
  for (const Layout& before : layouts_) {
    for (const Layout& after : layouts_) {
      const std::optional<NamedStep> legal = LegalStep(before, after);
      if (!legal.has_value()) continue;
      const Plan plan(before, after,
                      {MakeStep(legal->kind, legal->axes, before, after)});
      EXPECT_OK(Verify(plan)) << plan;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, VerifyStepsTest,
    ::testing::Combine(::testing::Values("x=2,y=2", "x=2,y=3"),
                       ::testing::Values("[8]", "[4,6]", "[5,3]", "[1,2]")));

// --- Mutants ----------------------------------------------------------------

// Plans that differ from `plan` in one thing. `layouts` are those that may
// stand in for its own.
class Mutants {
 public:
  Mutants(const Plan& plan, absl::Span<const Layout> layouts)
      : plan_(plan), layouts_(layouts) {
    for (size_t i = 0; i < plan.steps().size(); ++i) {
      MutateKind(i);
      MutateAxes(i);
      MutateLayout(i);
      MutateFigures(i);
      MutateSequence(i);
    }
  }

  // With the figures that the changed step should have.
  const std::vector<Plan>& moves() const { return moves_; }
  // With wrong figures.
  const std::vector<Plan>& figures() const { return figures_; }

 private:
  std::vector<Step> Steps() const {
    return {plan_.steps().begin(), plan_.steps().end()};
  }
  void AddMove(const std::vector<Step>& steps, const Layout& target) {
    moves_.emplace_back(plan_.source(), target, steps);
  }
  void Change(size_t i, StepKind kind, absl::Span<const int> axes) {
    std::vector<Step> steps = Steps();
    steps[i] = MakeStep(kind, axes, steps[i].before, steps[i].after);
    AddMove(steps, plan_.target());
  }

  void MutateKind(size_t i) {
    for (StepKind kind : kAllStepKinds) {
      const Step& step = plan_.steps()[i];
      if (kind != step.kind) Change(i, kind, step.axes);
    }
  }

  void MutateAxes(size_t i) {
    const Step& step = plan_.steps()[i];
    for (int axis = 0; axis < plan_.source().mesh().num_axes(); ++axis) {
      if (absl::MakeConstSpan(step.axes) == absl::MakeConstSpan({axis})) {
        continue;
      }
      Change(i, step.kind, {axis});
      Change(i, step.kind, {axis, step.axes[0]});
      Change(i, step.kind, {step.axes[0], axis});
    }
    Change(i, step.kind, {});
  }

  // Placement, order and op: another layout between two steps, or at the end.
  void MutateLayout(size_t i) {
    for (const Layout& layout : layouts_) {
      if (layout == plan_.steps()[i].after) continue;
      std::vector<Step> steps = Steps();
      steps[i] =
          MakeStep(steps[i].kind, steps[i].axes, steps[i].before, layout);
      AddMove(steps, plan_.target());
      if (i + 1 == steps.size()) {
        AddMove(steps, layout);
        continue;
      }
      Step& next = steps[i + 1];
      next = MakeStep(next.kind, next.axes, layout, next.after);
      AddMove(steps, plan_.target());
    }
  }

  // Those of an exchange may be bounds.
  void MutateFigures(size_t i) {
    if (plan_.steps()[i].kind == StepKind::kExchange) return;
    for (int64_t Step::*figure : {&Step::bytes_received, &Step::messages}) {
      for (int64_t difference : {-1, 1}) {
        std::vector<Step> steps = Steps();
        steps[i].*figure += difference;
        figures_.emplace_back(plan_.source(), plan_.target(), steps);
      }
    }
  }

  void MutateSequence(size_t i) {
    std::vector<Step> steps = Steps();
    steps.insert(steps.begin() + i, steps[i]);
    AddMove(steps, plan_.target());
    steps = Steps();
    steps.erase(steps.begin() + i);
    AddMove(steps, plan_.target());
    if (i + 1 == plan_.steps().size()) return;
    // Left out, with the next step beginning where this one did.
    Step& next = steps[i];
    next = MakeStep(next.kind, next.axes, plan_.steps()[i].before, next.after);
    AddMove(steps, plan_.target());
    steps = Steps();
    std::swap(steps[i], steps[i + 1]);
    AddMove(steps, plan_.target());
  }

  const Plan& plan_;
  const absl::Span<const Layout> layouts_;
  std::vector<Plan> moves_;
  std::vector<Plan> figures_;
};

// --gtest_shuffle draws other plans.
TEST(VerifyMutantsTest, ProvesOnlyThoseThatGiveTheValues) {
  constexpr int kPlans = 60;
  const unsigned seed = ::testing::UnitTest::GetInstance()->random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  int rejected = 0;
  for (const char* meta : {"f32[8,4]", "f32[5,3]", "f32[1,7]"}) {
    for (const char* mesh : {"x=2,y=2", "x=2,y=3", "x=2,y=1,z=2"}) {
      const std::vector<Layout> layouts =
          LayoutsOf(meta, mesh, {ReduceOp::kSum, ReduceOp::kAvg});
      std::vector<Plan> proved;
      for (int i = 0; i < kPlans; ++i) {
        const Plan plan =
            MakePlan(layouts[random() % layouts.size()],
                     layouts[random() % layouts.size()], Topology::LocalCpu())
                .value();
        const Mutants mutants(plan, layouts);
        for (const Plan& mutant : mutants.figures()) {
          ASSERT_FALSE(Verify(mutant).ok()) << mutant.ToTable();
        }
        for (const Plan& mutant : mutants.moves()) {
          if (Verify(mutant).ok()) {
            ASSERT_EQ(RunReferenceAndFindFault(mutant), "") << mutant;
            proved.push_back(mutant);
          } else {
            ++rejected;
          }
        }
      }
      EXPECT_FALSE(proved.empty());
      EXPECT_EQ(RunAndFindFault(layouts[0].mesh().size(), proved), "");
    }
  }
  EXPECT_GT(rejected, 0);
}

}  // namespace
}  // namespace tessera

#include "tessera/redistribute/backward.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/redistribute/all_layouts.h"
#include "tests/redistribute/reference.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::AllLayouts;
using ::tessera::testing::GlobalValue;
using ::tessera::testing::HeldElements;
using ::tessera::testing::RanksOf;
using ::tessera::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

using Values = std::vector<double>;

// What all ranks hold, in the order of RanksOf; a vector space.
using World = std::vector<Values>;

// The reference definition of a layout as two linear maps between what ranks
// hold and the tensor, and what it says of replicas.
class Meaning {
 public:
  explicit Meaning(const Layout& layout)
      : layout_(layout), elements_(layout.shape().num_elements()) {
    for (int rank : RanksOf(layout.mesh())) {
      held_.push_back(HeldElements(layout, rank));
      coords_.push_back(layout.mesh().CoordsOf(rank).value());
    }
    for (int axis = 0; axis < layout.mesh().num_axes(); ++axis) {
      const int size = layout.mesh().axis(axis).size;
      const Placement& placement = layout.placement(axis);
      if (placement.is_replicate()) replicas_ *= size;
      if (placement == Placement::Partial(ReduceOp::kAvg)) divisor_ *= size;
    }
  }

  size_t num_ranks() const { return held_.size(); }
  const std::vector<int64_t>& held(size_t r) const { return held_[r]; }
  double replicas() const { return replicas_; }

  World Zeros() const {
    World world;
    for (const auto& held : held_) world.emplace_back(held.size(), 0.0);
    return world;
  }

  // The tensor that ranks hold. Of replicas each counts as much.
  Values TensorOf(const World& world) const {
    Values tensor(elements_, 0.0);
    for (size_t r = 0; r < num_ranks(); ++r) {
      for (size_t i = 0; i < held_[r].size(); ++i) {
        tensor[held_[r][i]] += world[r][i] / (replicas_ * divisor_);
      }
    }
    return tensor;
  }

  // How ranks hold a tensor: of sums the first has it all.
  World Distribute(const Values& tensor) const {
    World world = Zeros();
    for (size_t r = 0; r < num_ranks(); ++r) {
      if (!IsFirstOfSums(r)) continue;
      for (size_t i = 0; i < held_[r].size(); ++i) {
        world[r][i] = tensor[held_[r][i]];
      }
    }
    return world;
  }

  // True if the ranks are replicas of each other.
  bool AreReplicas(size_t a, size_t b) const {
    for (int axis = 0; axis < layout_.mesh().num_axes(); ++axis) {
      if (!layout_.placement(axis).is_replicate() &&
          coords_[a][axis] != coords_[b][axis]) {
        return false;
      }
    }
    return true;
  }

  // Replicas count once.
  double Dot(const World& a, const World& b) const {
    double dot = 0;
    for (size_t r = 0; r < num_ranks(); ++r) {
      for (size_t i = 0; i < held_[r].size(); ++i) dot += a[r][i] * b[r][i];
    }
    return dot / replicas_;
  }

 private:
  bool IsFirstOfSums(size_t r) const {
    for (int axis = 0; axis < layout_.mesh().num_axes(); ++axis) {
      if (layout_.placement(axis) == Placement::Partial(ReduceOp::kSum) &&
          coords_[r][axis] != 0) {
        return false;
      }
    }
    return true;
  }

  const Layout layout_;
  const int64_t elements_;
  std::vector<std::vector<int64_t>> held_;
  std::vector<MeshCoords> coords_;
  double replicas_ = 1;
  double divisor_ = 1;
};

World Redistribute(const Meaning& source, const Meaning& target,
                   const World& world) {
  return target.Distribute(source.TensorOf(world));
}

// A linear function of the tensor.
double Loss(const Values& tensor) {
  double loss = 0;
  for (size_t e = 0; e < tensor.size(); ++e) {
    loss += tensor[e] * (GlobalValue(static_cast<int64_t>(3 * e)) + 0.5);
  }
  return loss;
}

// The derivative of `loss`, a linear function of what ranks hold, by what each
// holds: what it becomes where all but one value are 0. Replicas move together.
template <typename Function>
World Derivative(const Meaning& meaning, Function loss) {
  World gradient = meaning.Zeros();
  for (size_t r = 0; r < meaning.num_ranks(); ++r) {
    for (size_t i = 0; i < meaning.held(r).size(); ++i) {
      World one = meaning.Zeros();
      for (size_t other = 0; other < meaning.num_ranks(); ++other) {
        if (meaning.AreReplicas(r, other)) one[other][i] = 1;
      }
      gradient[r][i] = loss(one);
    }
  }
  return gradient;
}

double Distance(const World& a, const World& b) {
  double distance = 0;
  for (size_t r = 0; r < a.size(); ++r) {
    if (a[r].size() != b[r].size()) return INFINITY;
    for (size_t i = 0; i < a[r].size(); ++i) {
      distance = std::max(distance, std::abs(a[r][i] - b[r][i]));
    }
  }
  return distance;
}

World Scaled(World world, double scale) {
  for (Values& values : world) {
    for (double& value : values) value *= scale;
  }
  return world;
}

// Different on every rank but on replicas.
World SomeValues(const Meaning& meaning) {
  World world = meaning.Zeros();
  for (size_t r = 0; r < meaning.num_ranks(); ++r) {
    size_t first = 0;
    while (!meaning.AreReplicas(first, r)) ++first;
    for (size_t i = 0; i < world[r].size(); ++i) {
      world[r][i] = GlobalValue(static_cast<int64_t>(17 * first + 5 * i + 1));
    }
  }
  return world;
}

constexpr double kTolerance = 1e-9;  // of sums of a few small numbers

void CheckBackward(const Layout& from, const Layout& to) {
  SCOPED_TRACE(from.ToString() + " -> " + to.ToString());
  const GradientLayouts gradient = BackwardLayouts(from, to).value();
  ASSERT_FALSE(gradient.source.HasPartial());
  ASSERT_FALSE(gradient.target.HasPartial());

  const Meaning source(from);
  const Meaning target(to);
  const World by_target = Derivative(
      target, [&](const World& y) { return Loss(target.TensorOf(y)); });
  const World by_source = Derivative(source, [&](const World& x) {
    return Loss(target.TensorOf(Redistribute(source, target, x)));
  });

  // Either derivative is laid out as said: as what holds it distributes it.
  const Meaning gradient_source(gradient.source);
  const Meaning gradient_target(gradient.target);
  EXPECT_LT(Distance(by_target,
                     Redistribute(gradient_source, gradient_source, by_target)),
            kTolerance);
  EXPECT_LT(Distance(by_source,
                     Redistribute(gradient_target, gradient_target, by_source)),
            kTolerance);
  // Moved and scaled, the one is the other.
  const World moved =
      Scaled(Redistribute(gradient_source, gradient_target, by_target),
             gradient.scale);
  EXPECT_LT(Distance(by_source, moved), kTolerance);

  const World x = SomeValues(source);
  const World y = Redistribute(source, target, x);
  EXPECT_NEAR(source.Dot(x, moved), target.Dot(y, by_target), 1e-6);
}

TEST(BackwardLayoutsTest, AreTheAdjointOfAllRedistributions) {
  for (const char* mesh : {"x=2,y=2", "x=2,y=3", "x=1,y=3"}) {
    for (const char* meta : {"f32[5,3]", "f32[1,4]", "f32[0,2]"}) {
      const std::vector<Layout> layouts = AllLayouts(
          TensorMeta::Parse(meta).value(), DeviceMesh::Parse(mesh).value(),
          {ReduceOp::kSum, ReduceOp::kAvg});
      for (const Layout& source : layouts) {
        for (const Layout& target : layouts) {
          ASSERT_NO_FATAL_FAILURE(CheckBackward(source, target));
          ASSERT_FALSE(::testing::Test::HasFailure());
        }
      }
    }
  }
}

TEST(BackwardLayoutsTest, AreTheAdjointBesideRaggedCuts) {
  const DeviceMesh mesh = DeviceMesh::Parse("x=2,y=2,z=3").value();
  std::vector<Layout> layouts;
  for (const char* text :
       {"f32[7] [Ragged(0,3,3,4,7)[1], Ragged(0,3,3,4,7)[0], R]",
        "f32[7] [Ragged(0,3,3,4,7)[1], Ragged(0,3,3,4,7)[0], P(sum)]",
        "f32[7] [Ragged(0,3,3,4,7)[1], Ragged(0,3,3,4,7)[0], P(avg)]"}) {
    layouts.push_back(Layout::Parse(text, mesh).value());
  }
  for (const Layout& source : layouts) {
    for (const Layout& target : layouts) CheckBackward(source, target);
  }
}

GradientLayouts Backward(const std::string& source, const std::string& target) {
  const Layout from =
      Layout::Parse(source, DeviceMesh::Parse("x=2,y=3").value()).value();
  return BackwardLayouts(from, from.With(target).value()).value();
}

TEST(BackwardLayoutsTest, AreThoseOfDTensor) {
  const GradientLayouts sum =
      Backward("f32[8] [P(sum), S(0)]", "[S(0)[1], S(0)[0]]");
  EXPECT_EQ(sum.source.ToString(), "f32[8] [S(0)[1], S(0)[0]]");
  EXPECT_EQ(sum.target.ToString(), "f32[8] [R, S(0)]");
  EXPECT_EQ(sum.scale, 1);

  const GradientLayouts to_partial = Backward("f32[8] [R, R]", "[P, R]");
  EXPECT_EQ(to_partial.source.ToString(), "f32[8] [R, R]");
  EXPECT_EQ(to_partial.target.ToString(), "f32[8] [R, R]");
  EXPECT_EQ(to_partial.scale, 1);
}

TEST(BackwardLayoutsTest, ScaleByTheSizesOfAveragedAxes) {
  EXPECT_EQ(Backward("f32[8] [P(avg), R]", "[R, R]").scale, 1.0 / 2);
  EXPECT_EQ(Backward("f32[8] [P(avg), P(avg)]", "[R, R]").scale, 1.0 / 6);
  EXPECT_EQ(Backward("f32[8] [P(avg), P(sum)]", "[R, R]").scale, 1.0 / 2);
  EXPECT_EQ(Backward("f32[8] [R, R]", "[R, P(avg)]").scale, 3);
  EXPECT_EQ(Backward("f32[8] [P(avg), R]", "[P(avg), R]").scale, 1);
}

TEST(BackwardLayoutsTest, RejectsOpsThatAreNotLinear) {
  const Layout replicated =
      Layout::Parse("f32[8] [R, R]", DeviceMesh::Parse("dp=2,tp=3").value())
          .value();
  for (const char* op : {"min", "max", "product"}) {
    const std::string placement = std::string("P(") + op + ")";
    const Layout partial = replicated.With("[R, " + placement + "]").value();
    const auto is_refused =
        StatusIs(absl::StatusCode::kUnimplemented,
                 AllOf(HasSubstr(placement), HasSubstr("axis 'tp'")));
    EXPECT_THAT(BackwardLayouts(partial, replicated), is_refused);
    EXPECT_THAT(BackwardLayouts(replicated, partial), is_refused);
  }
}

}  // namespace
}  // namespace tessera

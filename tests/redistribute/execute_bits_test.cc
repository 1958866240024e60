// Plans executed on real ranks, on values that round, overflow and cancel, give
// the bits that the reference executor gives.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/run_ranks.h"
#include "tessera/redistribute/execute.h"
#include "tessera/redistribute/planner.h"
#include "tessera/tensor/dtype.h"
#include "tessera/testing/reference_executor.h"
#include "tests/redistribute/all_layouts.h"
#include "tests/redistribute/reference.h"
#include "tests/redistribute/sampling.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::AllLayouts;
using ::tessera::testing::ExecuteReference;
using ::tessera::testing::HeldElements;
using ::tessera::testing::kSampleOnly;
using ::tessera::testing::RanksOf;
using ::tessera::testing::SeededRandom;

using Bytes = std::vector<unsigned char>;

constexpr unsigned char kPoison = 0x7f;

// Some value: any bits but those of a NaN, whose payload is nobody's promise.
template <typename T>
T SomeValue(uint64_t hash) {
  T value;
  std::memcpy(static_cast<void*>(&value), &hash, sizeof(T));
  if constexpr (IsFloating(DTypeOf<T>)) {
    // Mostly of a size that adds up, some of any.
    const auto as_float = static_cast<float>(value);
    const float plain = static_cast<float>(hash % 20011) / 997 - 10;
    if (hash % 8 != 0 || std::isnan(as_float)) value = T(plain);
  }
  return value;
}

// What a rank starts with: a function of the element and of the rank's
// coordinates along the axes that are Partial, so that replicas are equal.
Bytes SourceOf(const Layout& layout, int rank, uint32_t seed) {
  const TensorMeta meta = layout.LocalMeta(rank);
  Bytes bytes(meta.num_bytes());
  if (!layout.mesh().Contains(rank)) return bytes;
  std::vector<int> addend;
  const MeshCoords coords = *layout.mesh().CoordsOf(rank);
  for (int axis = 0; axis < layout.mesh().num_axes(); ++axis) {
    if (layout.placement(axis).is_partial()) addend.push_back(coords[axis]);
  }
  const std::vector<int64_t> elements = HeldElements(layout, rank);
  VisitDType(meta.dtype(), [&]<typename T>() {
    for (size_t i = 0; i < elements.size(); ++i) {
      const uint64_t hash =
          absl::HashOf(elements[i], addend, seed) * 0x9e3779b97f4a7c15u >> 8;
      const T value = SomeValue<T>(hash);
      std::memcpy(&bytes[i * sizeof(T)], &value, sizeof(T));
    }
  });
  return bytes;
}

// By plan, by rank of the mesh.
using Results = std::vector<std::vector<Bytes>>;

Results RunOnRanks(absl::Span<const Plan> plans, uint32_t seed) {
  const int world = plans.front().source().mesh().size();
  Results results(plans.size(), std::vector<Bytes>(world));
  EXPECT_OK(RunLocalRanks(world, [&](LocalRank& self) -> absl::Status {
    for (size_t i = 0; i < plans.size(); ++i) {
      const TensorMeta before = plans[i].source().LocalMeta(self.rank);
      const TensorMeta after = plans[i].target().LocalMeta(self.rank);
      Bytes source = SourceOf(plans[i].source(), self.rank, seed);
      Bytes& target = results[i][self.rank];
      target.assign(after.num_bytes(), kPoison);
      TESSERA_RETURN_IF_ERROR(Execute(plans[i], {source.data(), before},
                                      {target.data(), after}, self.comms,
                                      self.stream));
      TESSERA_RETURN_IF_ERROR(self.stream.Synchronize());
    }
    return absl::OkStatus();
  }));
  return results;
}

std::vector<Bytes> RunReference(const Plan& plan, uint32_t seed) {
  const std::vector<int> ranks = RanksOf(plan.source().mesh());
  std::vector<Bytes> sources;
  std::vector<Bytes> targets;
  std::vector<TensorView> source_views;
  std::vector<TensorView> target_views;
  for (int rank : ranks) {
    sources.push_back(SourceOf(plan.source(), rank, seed));
    source_views.emplace_back(sources.back().data(),
                              plan.source().LocalMeta(rank));
    const TensorMeta after = plan.target().LocalMeta(rank);
    targets.emplace_back(after.num_bytes(), kPoison);
    target_views.emplace_back(targets.back().data(), after);
  }
  EXPECT_OK(ExecuteReference(plan, source_views, target_views));
  return targets;
}

void ExpectTheBitsOfTheReference(absl::Span<const Plan> plans, uint32_t seed) {
  const Results results = RunOnRanks(plans, seed);
  for (size_t i = 0; i < plans.size(); ++i) {
    ASSERT_EQ(results[i], RunReference(plans[i], seed))
        << plans[i].source().meta() << " on mesh '" << plans[i].source().mesh()
        << "': " << plans[i];
  }
}

std::vector<Layout> LayoutsOf(const std::string& meta,
                              const std::string& mesh) {
  std::vector<ReduceOp> ops = {ReduceOp::kSum, ReduceOp::kMax};
  const TensorMeta parsed = TensorMeta::Parse(meta).value();
  if (IsFloating(parsed.dtype())) ops.push_back(ReduceOp::kAvg);
  return AllLayouts(parsed, DeviceMesh::Parse(mesh).value(), ops);
}

Plan PlanOf(const Layout& source, const Layout& target) {
  return MakePlan(source, target, Topology::LocalCpu()).value();
}

// Dtype and mesh.
class ExecuteBitsTest
    : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {
 protected:
  std::string Meta(const std::string& shape) const {
    return std::get<0>(GetParam()) + shape;
  }
  std::string Mesh() const { return std::get<1>(GetParam()); }
};

TEST_P(ExecuteBitsTest, OfASampleOfPairs) {
  constexpr int kPairs = kSampleOnly ? 30 : 600;
  SeededRandom random;
  for (const char* shape : {"[4,6]", "[5,3]", "[7]", "[2,3,2]"}) {
    const std::vector<Layout> layouts = LayoutsOf(Meta(shape), Mesh());
    std::vector<Plan> plans;
    for (int i = 0; i < kPairs; ++i) {
      const Layout& source = layouts[random() % layouts.size()];
      const Layout& target = layouts[random() % layouts.size()];
      plans.push_back(PlanOf(source, target));
    }
    ExpectTheBitsOfTheReference(plans, random());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Worlds, ExecuteBitsTest,
    ::testing::Combine(::testing::Values("f32", "bf16", "i32"),
                       ::testing::Values("x=2,y=2", "x=2,y=3", "x=3,y=2",
                                         "x=2,y=2,z=2", "x=2,y=1,z=3")));

class ExecuteAllBitsTest
    : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(ExecuteAllBitsTest, OfAllPairs) {
  const auto& [dtype, shape] = GetParam();
  SeededRandom random;
  const std::vector<Layout> layouts =
      LayoutsOf(std::string(dtype) + shape, "x=2,y=2");
  std::vector<Plan> plans;
  for (const Layout& source : layouts) {
    for (const Layout& target : layouts) {
      if (!kSampleOnly || random() % 20 == 0) {
        plans.push_back(PlanOf(source, target));
      }
    }
  }
  ExpectTheBitsOfTheReference(plans, random());
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, ExecuteAllBitsTest,
    ::testing::Combine(::testing::Values("f32", "bf16", "i32"),
                       ::testing::Values("[4,6]", "[5,3]")));

}  // namespace
}  // namespace tessera

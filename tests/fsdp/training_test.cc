// Training under Tessera against the oracle, bit for bit, and against one big
// batch, within rounding; different data on every rank.

#include <cctype>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/fsdp/toy_training.h"
#include "tests/sanitized.h"
#include "tests/status_matchers.h"

namespace tessera::testing {
namespace {

struct World {
  std::string strategy;
  std::string mesh;
  std::optional<UnitPlacements> placements = std::nullopt;
};

const World kWorlds[] = {
    {"hsdp", "dp_outer=2,dp_inner=2"},
    {"hsdp", "dp_outer=1,dp_inner=4"},
    {"hsdp", "dp_outer=4,dp_inner=1"},
    {"hsdp", "dp_outer=2,dp_inner=3"},
    {"hsdp", "dp_outer=1,dp_inner=1"},
    {"hsdp", "pods=2,dp_outer=2,dp_inner=2"},
    {"ddp", "dp=4"},
    {"ddp", "dp_outer=2,dp_inner=2"},
    {"ddp", "dp_outer=1,dp_inner=4"},
    {"ddp", "dp_outer=4,dp_inner=1"},
    {"ddp", "dp_outer=2,dp_inner=3"},
    {"ddp", "dp=1"},
    {"fsdp", "dp=4"},
    {"fsdp", "dp_outer=1,dp_inner=4"},
    {"fsdp", "dp_outer=4,dp_inner=1"},
    {"fsdp", "dp_outer=2,dp_inner=3"},
    {"fsdp", "dp=1"},
    {"zero1", "dp=4"},
    {"zero1", "dp_outer=1,dp_inner=4"},
    {"zero1", "dp_outer=4,dp_inner=1"},
    {"zero2", "dp=3"},
    {"zero2", "dp_outer=1,dp_inner=4"},
    {"zero2", "dp_outer=4,dp_inner=1"},
    {"hfsdp", "dp_outer=2,dp_inner=3"},
    {"hfsdp", "dp_outer=1,dp_inner=4"},
    {"hfsdp", "dp_outer=4,dp_inner=1"},
    {"hfsdp", "pods=2,dp_outer=2,dp_inner=2"},
};

// These, and every legal triple whether it has a name or not; under a
// sanitizer, which slows ranks down, every fifth.
std::vector<World> AllWorlds() {
  std::vector<World> worlds(std::begin(kWorlds), std::end(kWorlds));
  int triples = 0;
  for (const char* mesh : {"dp=4", "outer=2,inner=2", "outer=2,inner=3",
                           "pods=2,outer=2,inner=2"}) {
    for (const UnitPlacements& triple :
         LegalTriples(DeviceMesh::Parse(mesh)->num_axes())) {
      if (kSanitized && ++triples % 5 != 0) continue;
      worlds.push_back({"triple", mesh, triple});
    }
  }
  return worlds;
}

// The runs that every world is tried with.
std::vector<ToyRun> RunsOf(const World& world) {
  std::vector<ToyRun> runs;
  for (int microbatches : {1, 2, 5}) {
    for (ZeroGrad zero_grad : {ZeroGrad::kRelease, ZeroGrad::kFill}) {
      ToyRun run;
      run.strategy = world.strategy;
      run.mesh = world.mesh;
      run.placements = world.placements;
      run.microbatches = microbatches;
      run.zero_grad = zero_grad;
      run.units = DefaultToyUnits();
      runs.push_back(run);
    }
  }
  return runs;
}

void ExpectNear(const ToyHistory& a, const ToyHistory& b, double tolerance) {
  for (size_t step = 0; step < b.weights.size(); ++step) {
    for (size_t u = 0; u < b.weights[step].size(); ++u) {
      for (size_t p = 0; p < b.weights[step][u].size(); ++p) {
        for (size_t i = 0; i < b.weights[step][u][p].size(); ++i) {
          ASSERT_NEAR(a.weights[step][u][p][i], b.weights[step][u][p][i],
                      tolerance)
              << "step " << step << " unit " << u << " parameter " << p;
        }
      }
    }
  }
}

class TrainingTest : public ::testing::TestWithParam<World> {};

TEST_P(TrainingTest, EqualsOracleBitwise) {
  for (const ToyRun& run : RunsOf(GetParam())) {
    SCOPED_TRACE(run.ToString());
    EXPECT_OK(TrainAndCompare(run, OracleHistory(run)));
  }
}

TEST_P(TrainingTest, EqualsOracleBitwiseOnWorkerStreams) {
  for (ToyRun run : RunsOf(GetParam())) {
    if (run.microbatches != 2) continue;
    run.streams = CpuStreams::kWorker;
    run.release = run.zero_grad == ZeroGrad::kFill
                      ? ReleaseWeights::kNever
                      : ReleaseWeights::kAfterBackward;
    SCOPED_TRACE(run.ToString());
    EXPECT_OK(TrainAndCompare(run, OracleHistory(run)));
  }
}

// Gradients are zeroed after the second step and after the fourth only, so that
// the backwards of the others add to what was final.
TEST_P(TrainingTest, EqualsOracleBitwiseWhereFinalGradientsAreAddedTo) {
  for (ToyRun run : RunsOf(GetParam())) {
    if (run.microbatches != 2) continue;
    for (GradientReduction reduction :
         {GradientReduction::kMean, GradientReduction::kSum}) {
      run.reduction = reduction;
      run.steps = 4;
      run.steps_per_zeroing = 2;
      SCOPED_TRACE(run.ToString());
      const ToyHistory oracle = OracleHistory(run);
      EXPECT_OK(TrainAndCompare(run, oracle));
      ExpectNear(oracle, BigBatchHistory(run), 1e-5);
    }
  }
}

// The oracle itself against a sum in another order and f64.
TEST_P(TrainingTest, OracleEqualsBigBatchWithinRounding) {
  for (const ToyRun& run : RunsOf(GetParam())) {
    if (run.zero_grad == ZeroGrad::kFill) continue;  // the oracle has but one
    SCOPED_TRACE(run.ToString());
    ExpectNear(OracleHistory(run), BigBatchHistory(run), 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, TrainingTest, ::testing::ValuesIn(AllWorlds()),
                         [](const ::testing::TestParamInfo<World>& test) {
                           std::string name =
                               (test.param.placements.has_value()
                                    ? test.param.placements->ToString()
                                    : test.param.strategy) +
                               "_" + test.param.mesh;
                           for (char& c : name) {
                             if (!std::isalnum(static_cast<unsigned char>(c)))
                               c = '_';
                           }
                           return name;
                         });

// How far communication runs ahead, and on which streams.

TEST(TrainingOverlapTest, NoOverlapChangesABit) {
  for (const char* strategy :
       {"ddp", "zero1", "zero2", "fsdp", "hsdp", "hfsdp"}) {
    ToyRun run;
    run.strategy = strategy;
    run.streams = CpuStreams::kWorker;
    run.units = DeepToyUnits();
    const ToyHistory expected = OracleHistory(run);
    for (const OverlapOptions& overlap : ManyOverlaps()) {
      run.overlap = overlap;
      SCOPED_TRACE(run.ToString());
      EXPECT_OK(TrainAndCompare(run, expected));
    }
  }
}

// Axes of the mesh that are not data-parallel, and units with axes of their
// own.

// A run on a mesh of four axes, of which two are data-parallel, in an order
// that is not the mesh's. Tensor parallelism cuts weights in both dims,
// unevenly, and leaves biases alone.
ToyRun TensorParallelRun() {
  ToyRun run;
  run.mesh = "dp_inner=2,tp=2,dp_outer=2,pp=1";
  run.axes = {"dp_outer", "dp_inner"};
  run.steps = 2;
  run.units = {
      {"root", -1, {{"embedding", {5, 3}, "[R, S(0), R, R]"}, {"norm", {3}}}},
      {"block",
       0,
       {{"up", {7, 11}, "[R, S(0), R, R]"},
        {"down", {9, 13}, "[R, S(1), R, R]"},
        {"bias", {7}}}}};
  return run;
}

TEST(TrainingAxesTest, CallersOwnAxesCombineWithDataParallelOnes) {
  for (const char* strategy :
       {"ddp", "zero1", "zero2", "fsdp", "hsdp", "hfsdp"}) {
    ToyRun run = TensorParallelRun();
    run.strategy = strategy;
    for (bool other_order : {false, true}) {
      run.cut_order.clear();
      // hsdp is Flat along dp_inner only, which must then cut first.
      const absl::string_view name = strategy;
      if (other_order && name != "hsdp" && name != "hfsdp") {
        run.cut_order = {"dp_outer", "dp_inner"};
      }
      SCOPED_TRACE(run.ToString());
      const ToyHistory oracle = OracleHistory(run);
      EXPECT_OK(TrainAndCompare(run, oracle));
      ExpectNear(oracle, BigBatchHistory(run), 1e-5);
    }
  }
}

// Dense layers are data-parallel over both axes; experts are spread over one of
// them, half of them on either coordinate, and data-parallel over the other.
// Their gradients still are a mean over what all ranks have seen. A unit may be
// data-parallel over no axis at all.
TEST(TrainingAxesTest, ExpertsHaveAxesPlacementsAndDivisorsOfTheirOwn) {
  const UnitPlacements fsdp = *PlacementsFor("fsdp", 1);
  const UnitPlacements zero1 = *PlacementsFor("zero1", 1);
  for (const UnitPlacements& placements : {fsdp, zero1}) {
    for (const char* strategy : {"hsdp", "hfsdp", "fsdp"}) {
      ToyRun run;
      run.strategy = strategy;
      run.mesh = "dp=3,ep=2";
      run.steps = 2;
      run.units = {
          {"root", -1, {{"embedding", {5, 3}}, {"norm", {3}}}},
          {"experts",
           0,
           {{"up", {4, 7, 3}, "[R, S(0)]"}, {"down", {4, 3, 7}, "[R, S(0)]"}},
           std::vector<std::string>{"dp"},
           placements,
           2.0},
          {"local",
           0,
           {{"w", {6, 5}, "[S(1), S(0)]"}},
           std::vector<std::string>{},
           UnitPlacements{},
           6.0}};
      SCOPED_TRACE(run.ToString());
      const ToyHistory oracle = OracleHistory(run);
      EXPECT_OK(TrainAndCompare(run, oracle));
      ExpectNear(oracle, BigBatchHistory(run), 1e-5);
    }
  }
}

TEST(TrainingDtypesTest, EqualsOracleBitwiseInEveryPrecision) {
  struct Case {
    DType dtype;
    Precision precision;
  };
  const Case cases[] = {
      {DType::kF64, {}},
      {DType::kBF16, {}},
      {DType::kF16, {}},
      {DType::kBF16, {.wire = DType::kF32}},
      {DType::kF32, {.wire = DType::kBF16}},
      {DType::kBF16, {.accumulation = DType::kF64, .main_weight = DType::kF32}},
  };
  for (const char* strategy : {"hsdp", "ddp", "fsdp", "zero1", "hfsdp"}) {
    for (const Case& c : cases) {
      ToyRun run;
      run.strategy = strategy;
      run.dtype = c.dtype;
      run.precision = c.precision;
      run.units = DefaultToyUnits();
      SCOPED_TRACE(run.ToString());
      EXPECT_OK(TrainAndCompare(run, OracleHistory(run)));
    }
  }
}

}  // namespace
}  // namespace tessera::testing

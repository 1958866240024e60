// Training under Tessera against the oracle, bit for bit, and against one big
// batch, within rounding; different data on every rank.

#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/fsdp/toy_training.h"
#include "tests/status_matchers.h"

namespace tessera::testing {
namespace {

struct World {
  const char* strategy;
  const char* mesh;
};

constexpr World kWorlds[] = {
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
    {"hfsdp", "dp_outer=2,dp_inner=2"},
};

std::vector<ToyRun> AllRuns() {
  std::vector<ToyRun> runs;
  for (const World& world : kWorlds) {
    for (int microbatches : {1, 3}) {
      for (ZeroGrad zero_grad : {ZeroGrad::kRelease, ZeroGrad::kFill}) {
        ToyRun run;
        run.strategy = world.strategy;
        run.mesh = world.mesh;
        run.microbatches = microbatches;
        run.zero_grad = zero_grad;
        run.units = DefaultToyUnits();
        runs.push_back(run);
      }
    }
  }
  return runs;
}

class TrainingTest : public ::testing::TestWithParam<ToyRun> {};

TEST_P(TrainingTest, EqualsOracleBitwise) {
  SCOPED_TRACE(GetParam().ToString());
  EXPECT_OK(TrainAndCompare(GetParam(), OracleHistory(GetParam())));
}

TEST_P(TrainingTest, EqualsOracleBitwiseOnWorkerStreams) {
  ToyRun run = GetParam();
  run.streams = CpuStreams::kWorker;
  run.release = ReleaseWeights::kAfterBackward;
  SCOPED_TRACE(run.ToString());
  EXPECT_OK(TrainAndCompare(run, OracleHistory(run)));
}

// The oracle itself against a sum in another order and f64.
TEST_P(TrainingTest, OracleEqualsBigBatchWithinRounding) {
  SCOPED_TRACE(GetParam().ToString());
  const ToyHistory oracle = OracleHistory(GetParam());
  const ToyHistory big = BigBatchHistory(GetParam());
  for (size_t step = 0; step < big.weights.size(); ++step) {
    for (size_t u = 0; u < big.weights[step].size(); ++u) {
      for (size_t p = 0; p < big.weights[step][u].size(); ++p) {
        for (size_t i = 0; i < big.weights[step][u][p].size(); ++i) {
          ASSERT_NEAR(oracle.weights[step][u][p][i], big.weights[step][u][p][i],
                      1e-5)
              << "step " << step << " unit " << u << " parameter " << p;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, TrainingTest, ::testing::ValuesIn(AllRuns()),
                         [](const ::testing::TestParamInfo<ToyRun>& test) {
                           std::string name =
                               test.param.strategy + "_" + test.param.mesh +
                               "_m" + std::to_string(test.param.microbatches) +
                               (test.param.zero_grad == ZeroGrad::kFill
                                    ? "_fill"
                                    : "_release");
                           for (char& c : name) {
                             if (!std::isalnum(static_cast<unsigned char>(c)))
                               c = '_';
                           }
                           return name;
                         });

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

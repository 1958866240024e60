// The trainer's own program on threads, against the same training in one
// process.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "char_lm/options.h"
#include "char_lm/reference.h"
#include "char_lm/report.h"
#include "char_lm/text.h"
#include "char_lm/trainer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/fsdp/placements.h"
#include "tests/status_matchers.h"

namespace char_lm {
namespace {

using ::tessera::DType;

const Text& SomeText() {
  static const Text text =
      EncodeText("a text of some thirty characters, or more");
  return text;
}

// A tiny model; its root has an odd shape, and no dim of a matrix is a multiple
// of the ranks.
Options TinyRun(const char* mesh, absl::string_view strategy) {
  Options options;
  options.model.context = 8;
  options.model.width = 10;
  options.model.heads = 2;
  options.model.layers = 2;
  options.model.mlp_width = 18;
  options.model.vocab = SomeText().vocab_size();
  options.mesh = *tessera::DeviceMesh::Parse(mesh);
  options.placements = *tessera::PlacementsFor(
      strategy, static_cast<int>(options.DataParallelAxes().size()));
  options.batch = 1;
  options.microbatches = 2;
  options.steps = 4;
  return options;
}

double LargestDifference(const std::vector<double>& a,
                         const std::vector<double>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(a[i] - b[i]) / std::abs(b[i]));
  }
  return largest;
}

class TrainingTest : public ::testing::TestWithParam<Optimizer> {};

INSTANTIATE_TEST_SUITE_P(Optimizers, TrainingTest,
                         ::testing::Values(Optimizer::kSgd, Optimizer::kAdamW,
                                           Optimizer::kMuon),
                         [](const auto& optimizer) {
                           switch (optimizer.param) {
                             case Optimizer::kSgd:
                               return "Sgd";
                             case Optimizer::kAdamW:
                               return "AdamW";
                             case Optimizer::kMuon:
                               return "Muon";
                           }
                           return "";
                         });

TEST_P(TrainingTest, EqualsOneProcessBitwiseUnderEveryStrategy) {
  for (absl::string_view strategy : tessera::StrategyNames()) {
    for (const char* mesh :
         {"dp_outer=2,dp_inner=2", "dp_outer=1,dp_inner=3"}) {
      for (DType dtype : {DType::kF32, DType::kBF16}) {
        for (tessera::CpuStreams streams :
             {tessera::CpuStreams::kInline, tessera::CpuStreams::kWorker}) {
          Options options = TinyRun(mesh, strategy);
          options.optimizer = GetParam();
          options.learning_rate = DefaultLearningRate(options.optimizer);
          options.dtype = dtype;
          options.streams = streams;
          SCOPED_TRACE(absl::StrCat(strategy, " on ", mesh));
          ASSERT_OK_AND_ASSIGN(const TrainResult result,
                               Train(options, SomeText(), Observer()));
          EXPECT_THAT(TrainOracle(options, SomeText()),
                      tessera::testing::IsOkAndHolds(result.losses));
          EXPECT_OK(CheckMemory(result));
          EXPECT_NE(result.losses.front(), result.losses.back());
        }
      }
    }
  }
}

TEST_P(TrainingTest, EqualsOneBigBatchWithinRounding) {
  Options options = TinyRun("dp_outer=2,dp_inner=2", "hfsdp");
  options.optimizer = GetParam();
  options.learning_rate = DefaultLearningRate(options.optimizer);
  ASSERT_OK_AND_ASSIGN(const TrainResult result,
                       Train(options, SomeText(), Observer()));
  ASSERT_OK_AND_ASSIGN(const std::vector<double> big,
                       TrainBigBatch(options, SomeText()));
  EXPECT_LE(LargestDifference(result.losses, big), 1e-5);
}

// The loss falls by less, and the norm that is shown is the one before.
TEST(ClippingTest, ClipsToTheNormAndShowsTheOneBefore) {
  Options options = TinyRun("dp_outer=2,dp_inner=2", "hsdp");
  ASSERT_OK_AND_ASSIGN(const TrainResult plain,
                       Train(options, SomeText(), Observer()));
  options.clip = 1e-3;
  ASSERT_OK_AND_ASSIGN(const TrainResult clipped,
                       Train(options, SomeText(), Observer()));
  EXPECT_EQ(clipped.norms[0], plain.norms[0]);
  EXPECT_GT(clipped.norms[0], 0.1);
  EXPECT_EQ(clipped.losses[0], plain.losses[0]);
  EXPECT_NE(clipped.losses[1], plain.losses[1]);
  ASSERT_OK_AND_ASSIGN(const std::vector<double> oracle,
                       TrainOracle(options, SomeText()));
  EXPECT_LE(LargestDifference(clipped.losses, oracle), 1e-6);
}

// The same data on fewer ranks, or the same ranks with "tp" beside them.

TEST(TensorParallelTest, EightRanksEqualOneProcess) {
  for (Optimizer optimizer :
       {Optimizer::kSgd, Optimizer::kAdamW, Optimizer::kMuon}) {
    for (absl::string_view strategy : {"hsdp", "hfsdp", "fsdp", "zero1"}) {
      for (const char* mesh :
           {"dp_outer=2,dp_inner=2,tp=2", "tp=2,dp_outer=2,dp_inner=2",
            "dp_outer=1,dp_inner=2,tp=3"}) {
        Options options = TinyRun(mesh, strategy);
        options.optimizer = optimizer;
        options.learning_rate = DefaultLearningRate(optimizer);
        options.streams = tessera::CpuStreams::kWorker;
        options.steps = 20;
        SCOPED_TRACE(absl::StrCat(strategy, " on ", mesh));
        ASSERT_OK_AND_ASSIGN(const TrainResult result,
                             Train(options, SomeText(), Observer()));
        ASSERT_OK_AND_ASSIGN(const std::vector<double> oracle,
                             TrainOracle(options, SomeText()));
        EXPECT_LE(LargestDifference(result.losses, oracle), 1e-4);
        ASSERT_OK_AND_ASSIGN(const std::vector<double> big,
                             TrainBigBatch(options, SomeText()));
        EXPECT_LE(LargestDifference(result.losses, big), 1e-4);
        EXPECT_OK(CheckMemory(result));
      }
    }
  }
}

TEST(TensorParallelTest, NoChunkSizeChangesABit) {
  Options options = TinyRun("dp_outer=2,dp_inner=2,tp=2", "hfsdp");
  options.steps = 6;
  ASSERT_OK_AND_ASSIGN(const TrainResult whole,
                       Train(options, SomeText(), Observer()));
  for (int64_t bytes : {1, 48, 1 << 20}) {
    options.chunk_bytes = bytes;
    ASSERT_OK_AND_ASSIGN(const TrainResult chunked,
                         Train(options, SomeText(), Observer()));
    EXPECT_EQ(chunked.losses, whole.losses) << bytes;
    EXPECT_EQ(chunked.norms, whole.norms) << bytes;
  }
}

// Each rank then updates the norms by its own rows' gradients.
TEST(TensorParallelTest, DivergesWithoutTheSumOfNormGradients) {
  Options options = TinyRun("dp_outer=2,dp_inner=2,tp=2", "hsdp");
  options.steps = 20;
  ASSERT_OK_AND_ASSIGN(const std::vector<double> oracle,
                       TrainOracle(options, SomeText()));
  options.sums_norm_gradients = false;
  ASSERT_OK_AND_ASSIGN(const TrainResult result,
                       Train(options, SomeText(), Observer()));
  EXPECT_EQ(result.losses[0], oracle[0]);
  EXPECT_GT(LargestDifference(result.losses, oracle), 1e-3);
}

}  // namespace
}  // namespace char_lm

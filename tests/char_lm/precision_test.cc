// Long runs in two precisions.

#include <cmath>
#include <cstdio>
#include <vector>

#include "char_lm/options.h"
#include "char_lm/text.h"
#include "char_lm/trainer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/fsdp/placements.h"
#include "tests/status_matchers.h"

namespace char_lm {
namespace {

double MeanOfLast(const std::vector<double>& losses, size_t count) {
  double sum = 0;
  for (size_t i = losses.size() - count; i < losses.size(); ++i) {
    sum += losses[i];
  }
  return sum / static_cast<double>(count);
}

// The losses of the last steps, since that of one step is that of its batch.
double FinalLoss(Options options, tessera::DType dtype, const Text& text) {
  options.dtype = dtype;
  const absl::StatusOr<TrainResult> result = Train(options, text, Observer());
  EXPECT_OK(result.status());
  return result.ok() ? MeanOfLast(result->losses, 10) : NAN;
}

TEST(PrecisionTest, Bf16EndsWhereF32DoesAfter500Steps) {
  Options options;
  absl::StatusOr<Text> text = LoadText(kDefaultTextPath, options.model.context);
  ASSERT_OK(text.status());
  options.model.vocab = text->vocab_size();
  options.mesh = *tessera::DeviceMesh::Parse("dp_outer=2,dp_inner=2");
  options.placements = *tessera::PlacementsFor("hsdp", 2);
  options.steps = 500;
  options.batch = 2;
  options.microbatches = 2;
  options.model.context = 32;
  options.model.width = 32;
  options.model.heads = 2;
  options.model.mlp_width = 128;
  for (Optimizer optimizer : {Optimizer::kSgd, Optimizer::kAdamW}) {
    options.optimizer = optimizer;
    options.learning_rate = DefaultLearningRate(optimizer);
    const double f32 = FinalLoss(options, tessera::DType::kF32, *text);
    const double bf16 = FinalLoss(options, tessera::DType::kBF16, *text);
    std::printf("f32 %.6f, bf16 %.6f\n", f32, bf16);
    EXPECT_LT(f32, 3.0);
    EXPECT_LE(std::abs(bf16 - f32) / f32, 0.02);
  }
}

}  // namespace
}  // namespace char_lm

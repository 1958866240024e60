// The trainer's own program of one rank on emulated GPUs, whose memory the host
// cannot touch.

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "char_lm/options.h"
#include "char_lm/report.h"
#include "char_lm/text.h"
#include "char_lm/train_rank.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/run_ranks.h"
#include "tessera/fsdp/placements.h"
#include "tests/emulation/run_emulated_ranks.h"
#include "tests/status_matchers.h"

namespace char_lm {
namespace {

using ::tessera::DType;
using ::tessera::emulation::EmulatedRank;

const Text& SomeText() {
  static const Text text =
      EncodeText("a text of some thirty characters, or more");
  return text;
}

// A tiny model; no dim of a matrix is a multiple of the ranks.
Options TinyRun(absl::string_view strategy, DType dtype, Optimizer optimizer) {
  Options options;
  options.model.context = 8;
  options.model.width = 10;
  options.model.heads = 2;
  options.model.layers = 2;
  options.model.mlp_width = 18;
  options.model.vocab = SomeText().vocab_size();
  options.mesh = *tessera::DeviceMesh::Parse("dp_outer=2,dp_inner=2");
  options.placements = *tessera::PlacementsFor(strategy, 2);
  options.batch = 1;
  options.microbatches = 2;
  options.steps = 3;
  options.optimizer = optimizer;
  options.learning_rate = DefaultLearningRate(optimizer);
  options.dtype = dtype;
  return options;
}

absl::StatusOr<TrainResult> TrainOnThreads(const Options& options) {
  std::vector<RankResult> ranks(options.mesh.size());
  TESSERA_RETURN_IF_ERROR(tessera::RunLocalRanks(
      options.mesh.size(), [&](tessera::LocalRank& rank) -> absl::Status {
        TESSERA_ASSIGN_OR_RETURN(ranks[rank.rank],
                                 TrainRank(options, SomeText(), Observer(),
                                           rank.comms, rank.stream));
        return absl::OkStatus();
      }));
  return Combine(std::move(ranks), /*first=*/0, options);
}

absl::StatusOr<TrainResult> TrainOnGpus(Options options, uint64_t seed) {
  options.backend = Backend::kNccl;
  std::vector<RankResult> ranks(options.mesh.size());
  TESSERA_RETURN_IF_ERROR(tessera::emulation::RunEmulatedRanks(
      options.mesh.size(),
      [&](EmulatedRank& rank) -> absl::Status {
        TESSERA_ASSIGN_OR_RETURN(ranks[rank.rank],
                                 TrainRank(options, SomeText(), Observer(),
                                           rank.comms, rank.stream));
        return absl::OkStatus();
      },
      {.gpus = {.seed = seed}}));
  return Combine(std::move(ranks), /*first=*/0, options);
}

// Emulated NCCL adds up in the order of the ranks, as threads do.
TEST(EmulatedGpusTest, TrainAsThreadsDoBitByBit) {
  uint64_t seed = 0;
  for (absl::string_view strategy : {"hsdp", "hfsdp", "zero1"}) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      for (Optimizer optimizer : {Optimizer::kSgd, Optimizer::kMuon}) {
        SCOPED_TRACE(absl::StrCat(strategy, " ", tessera::DTypeName(dtype), " ",
                                  DefaultLearningRate(optimizer)));
        const Options options = TinyRun(strategy, dtype, optimizer);
        ASSERT_OK_AND_ASSIGN(const TrainResult threads,
                             TrainOnThreads(options));
        ASSERT_OK_AND_ASSIGN(const TrainResult gpus,
                             TrainOnGpus(options, seed++));
        EXPECT_EQ(gpus.losses, threads.losses);
        EXPECT_LT(gpus.losses.back(), gpus.losses.front());
        EXPECT_OK(CheckMemory(gpus));
        EXPECT_EQ(gpus.planned_memory, threads.planned_memory);
      }
    }
  }
}

// The norm adds up in another order on a GPU.
TEST(EmulatedGpusTest, ClipWithinRounding) {
  Options options = TinyRun("hsdp", DType::kF32, Optimizer::kSgd);
  options.clip = 0.1;
  ASSERT_OK_AND_ASSIGN(const TrainResult threads, TrainOnThreads(options));
  ASSERT_OK_AND_ASSIGN(const TrainResult gpus, TrainOnGpus(options, 0));
  for (size_t step = 0; step < threads.losses.size(); ++step) {
    EXPECT_NEAR(gpus.norms[step], threads.norms[step], 1e-5);
    EXPECT_NEAR(gpus.losses[step], threads.losses[step], 1e-5);
  }
}

}  // namespace
}  // namespace char_lm

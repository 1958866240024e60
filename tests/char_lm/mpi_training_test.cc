// The trainer's own program of one rank, four processes running it.

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "char_lm/options.h"
#include "char_lm/text.h"
#include "char_lm/trainer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/comm_set.h"
#include "tessera/comm/mpi/mpi_world.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tessera/fsdp/placements.h"
#include "tests/comm/mpi_tests.h"
#include "tests/status_matchers.h"

namespace char_lm {
namespace {

using ::tessera::testing::MpiTestWorld;

Options OptionsFor(absl::string_view strategy, const char* mesh,
                   const Text& text) {
  Options options;
  options.model.context = 8;
  options.model.width = 12;
  options.model.heads = 2;
  options.model.layers = 3;
  options.model.mlp_width = 20;
  options.model.vocab = text.vocab_size();
  options.mesh = *tessera::DeviceMesh::Parse(mesh);
  options.placements = *tessera::PlacementsFor(
      strategy, static_cast<int>(options.DataParallelAxes().size()));
  options.batch = 1;
  options.microbatches = 2;
  options.steps = 4;
  return options;
}

absl::StatusOr<RankResult> TrainAsProcess(const Options& options,
                                          const Text& text) {
  tessera::CpuDevice device({.streams = options.streams});
  TESSERA_ASSIGN_OR_RETURN(const auto compute, device.NewStream("compute"));
  TESSERA_ASSIGN_OR_RETURN(const auto comm, MpiTestWorld().Join(*compute));
  tessera::CommSet comms(*comm);
  return TrainRank(options, text, Observer(), comms, *compute);
}

TEST(MpiTrainingTest, ProcessesTrainAsThreadsDoBitByBit) {
  const Text text = EncodeText("a text of some thirty characters, or more");
  for (absl::string_view strategy : tessera::StrategyNames()) {
    for (tessera::CpuStreams streams :
         {tessera::CpuStreams::kInline, tessera::CpuStreams::kWorker}) {
      SCOPED_TRACE(strategy);
      Options options = OptionsFor(strategy, "dp_outer=2,dp_inner=2", text);
      options.streams = streams;
      ASSERT_EQ(MpiTestWorld().num_ranks(), options.mesh.size());
      ASSERT_OK_AND_ASSIGN(const TrainResult threads,
                           Train(options, text, Observer()));
      ASSERT_OK_AND_ASSIGN(const RankResult process,
                           TrainAsProcess(options, text));
      EXPECT_EQ(process.losses, threads.losses);
      EXPECT_LT(process.losses.back(), process.losses.front());
      EXPECT_EQ(process.memory.by_tag,
                threads.memory[MpiTestWorld().rank()].by_tag);
    }
  }
}

TEST(MpiTrainingTest, ProcessesTrainWithMuonAndAlongTpAsThreadsDo) {
  const Text text = EncodeText("a text of some thirty characters, or more");
  for (const char* mesh : {"dp=4", "dp=2,tp=2"}) {
    SCOPED_TRACE(mesh);
    Options options = OptionsFor("fsdp", mesh, text);
    options.optimizer = Optimizer::kMuon;
    options.learning_rate = DefaultLearningRate(options.optimizer);
    ASSERT_OK_AND_ASSIGN(const TrainResult threads,
                         Train(options, text, Observer()));
    ASSERT_OK_AND_ASSIGN(const RankResult process,
                         TrainAsProcess(options, text));
    EXPECT_EQ(process.losses, threads.losses);
    EXPECT_EQ(process.norms, threads.norms);
  }
}

}  // namespace
}  // namespace char_lm

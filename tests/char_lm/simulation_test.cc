// The trainer's own program of one rank on a simulated device: what it counts
// there is what every rank counts on threads.

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "char_lm/options.h"
#include "char_lm/text.h"
#include "char_lm/trainer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/run_ranks.h"
#include "tessera/comm/sim/sim_world.h"
#include "tessera/device/sim/sim_device.h"
#include "tessera/fsdp/placements.h"
#include "tests/status_matchers.h"

namespace char_lm {
namespace {

// A tiny model; its root has an odd shape.
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
  options.steps = 3;
  return options;
}

absl::StatusOr<RankResult> Simulate(const Options& options, const Text& text,
                                    int rank) {
  tessera::SimDevice device;
  TESSERA_ASSIGN_OR_RETURN(const auto compute, device.NewStream("compute"));
  TESSERA_ASSIGN_OR_RETURN(
      const tessera::SimWorld world,
      tessera::SimWorld::Create(options.mesh, tessera::Topology::LocalCpu()));
  TESSERA_ASSIGN_OR_RETURN(const auto comm, world.Join(rank, *compute));
  tessera::CommSet comms(*comm);
  return TrainRank(options, text, Observer(), comms, *compute);
}

TEST(SimulationTest, CountsWhatThreadsCount) {
  const Text text = EncodeText("a text of some thirty characters, or more");
  for (absl::string_view strategy : tessera::StrategyNames()) {
    for (const char* mesh :
         {"dp_outer=2,dp_inner=2", "dp_outer=1,dp_inner=3",
          "dp_outer=3,dp_inner=1", "a=2,b=1,c=2", "a=2,b=1,tp=2"}) {
      for (Optimizer optimizer :
           {Optimizer::kSgd, Optimizer::kAdamW, Optimizer::kMuon}) {
        Options options = OptionsFor(strategy, mesh, text);
        options.optimizer = optimizer;
        options.zero_grad = optimizer == Optimizer::kAdamW
                                ? tessera::ZeroGrad::kFill
                                : tessera::ZeroGrad::kRelease;
        SCOPED_TRACE(absl::StrCat(strategy, " on ", mesh));
        EXPECT_OK(tessera::RunLocalRanks(
            options.mesh.size(), [&](tessera::LocalRank& rank) -> absl::Status {
              TESSERA_ASSIGN_OR_RETURN(const RankResult local,
                                       TrainRank(options, text, Observer(),
                                                 rank.comms, rank.stream));
              TESSERA_ASSIGN_OR_RETURN(const RankResult simulated,
                                       Simulate(options, text, rank.rank));
              EXPECT_EQ(simulated.memory.total, local.memory.total);
              EXPECT_EQ(simulated.memory.by_tag, local.memory.by_tag);
              EXPECT_EQ(simulated.communication, local.communication);
              EXPECT_GT(local.memory.total.peak_bytes, 0);
              EXPECT_FALSE(local.communication.empty());
              return absl::OkStatus();
            }));
      }
    }
  }
}

}  // namespace
}  // namespace char_lm

// What overlap hides, on simulated devices: with enough computation all
// communication but a few terms, and without running ahead but a few terms.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/sim/sim_world.h"
#include "tessera/device/sim/sim_device.h"
#include "tessera/fsdp/optimizer.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

constexpr int kBlocks = 6;
constexpr int kMicrobatches = 3;

struct Case {
  const char* strategy;
  OverlapOptions overlap = {};
  // How long each of root's and the blocks' launches computes.
  int64_t compute_ps = 0;
};

// One rank's third step: a root, which keeps its weights until they change,
// around blocks, and two launches in the root's forward and backward.
class Training {
 public:
  static absl::StatusOr<Trace> Step(const Case& c) {
    // A flop is a picosecond; nothing else takes any time on the device.
    SimDevice device({.flops_per_second = 1'000'000'000'000});
    TESSERA_ASSIGN_OR_RETURN(const auto compute, device.NewStream("compute"));
    const DeviceMesh mesh = *DeviceMesh::Parse("dp_outer=4,dp_inner=8");
    TESSERA_ASSIGN_OR_RETURN(
        const SimWorld world,
        SimWorld::Create(mesh, *Topology::Preset("h100-ib")));
    TESSERA_ASSIGN_OR_RETURN(const auto comm, world.Join(5, *compute));
    FsdpOptions options;
    options.mesh = mesh;
    TESSERA_ASSIGN_OR_RETURN(options.placements, PlacementsFor(c.strategy, 2));
    options.overlap = c.overlap;
    TESSERA_ASSIGN_OR_RETURN(
        const auto context,
        Context::Create(std::move(options), *comm, *compute));
    Training training(*context, *compute, c.compute_ps);
    TESSERA_RETURN_IF_ERROR(training.AddUnits());
    for (int step = 0; step < 3; ++step) {
      TESSERA_RETURN_IF_ERROR(context->Synchronize());
      device.ClearTrace();
      TESSERA_RETURN_IF_ERROR(training.RunStep());
    }
    TESSERA_RETURN_IF_ERROR(context->Synchronize());
    return device.trace();
  }

 private:
  Training(Context& context, Stream& compute, int64_t compute_ps)
      : context_(context), compute_(compute), compute_ps_(compute_ps) {}

  absl::Status AddUnits() {
    TESSERA_ASSIGN_OR_RETURN(
        root_, AddUnit("root", {.release = ReleaseWeights::kNever}, 3 << 18));
    for (int b = 0; b < kBlocks; ++b) {
      TESSERA_ASSIGN_OR_RETURN(
          Unit * block,
          AddUnit(absl::StrCat("block", b), {.parent = root_}, 1 << 20));
      blocks_.push_back(block);
    }
    return context_.Prepare();
  }

  absl::StatusOr<Unit*> AddUnit(const std::string& name, UnitOptions options,
                                int64_t elements) {
    UnitBuilder builder = context_.NewUnit(name, std::move(options));
    TESSERA_ASSIGN_OR_RETURN(const TensorMeta meta,
                             TensorMeta::Create(DType::kF32, {elements}));
    builder.Add("w", meta);
    return builder.Build();
  }

  absl::Status Compute(absl::string_view name) {
    return compute_.Launch({.name = name, .flops = compute_ps_}, nullptr);
  }

  absl::Status RunStep() {
    for (int m = 0; m < kMicrobatches; ++m) {
      Microbatch scope =
          context_.OpenMicrobatch({.is_last = m + 1 == kMicrobatches});
      root_->BeforeForward();
      TESSERA_RETURN_IF_ERROR(Compute("embed"));
      for (Unit* block : blocks_) {
        block->BeforeForward();
        TESSERA_RETURN_IF_ERROR(Compute("block"));
        block->AfterForward();
      }
      root_->AfterForward();
      root_->BeforeBackward();
      TESSERA_RETURN_IF_ERROR(Compute("head"));
      for (auto it = blocks_.rbegin(); it != blocks_.rend(); ++it) {
        (*it)->BeforeBackward();
        TESSERA_RETURN_IF_ERROR(Compute("block backward"));
        (*it)->AfterBackward();
      }
      TESSERA_RETURN_IF_ERROR(Compute("embed backward"));
      root_->AfterBackward();
      TESSERA_RETURN_IF_ERROR(scope.Finish());
    }
    TESSERA_RETURN_IF_ERROR(SgdOptimizer(context_, 0.1).Step());
    return context_.ZeroGradients(ZeroGrad::kRelease);
  }

  Context& context_;
  Stream& compute_;
  const int64_t compute_ps_;
  Unit* root_ = nullptr;
  std::vector<Unit*> blocks_;
};

// How long the collectives of every range take together.
std::map<std::string, int64_t> CollectiveTimes(const Trace& trace) {
  std::map<std::string, int64_t> times;
  for (const TracedOperation& operation : trace.operations) {
    if (operation.communicator.empty()) continue;
    EXPECT_GE(operation.range, 0) << operation.name;
    times[trace.ranges[operation.range].name] +=
        operation.end_ps - operation.begin_ps;
  }
  return times;
}

constexpr const char* kStrategies[] = {"ddp",  "zero1", "zero2",
                                       "fsdp", "hsdp",  "hfsdp"};

TEST(SimOverlapTest, EnoughComputationHidesAllButTheClosedForm) {
  for (const char* strategy : kStrategies) {
    for (int prefetch : {1, 2, 3}) {
      SCOPED_TRACE(absl::StrCat(strategy, ", prefetch ", prefetch));
      constexpr int64_t kEnough = 10'000'000'000;
      ASSERT_OK_AND_ASSIGN(
          const Trace trace,
          Training::Step({strategy, {.prefetch = prefetch}, kEnough}));
      const TraceTimes times = TimesOf(trace, "compute");
      std::map<std::string, int64_t> spent = CollectiveTimes(trace);
      int64_t expected = spent["gather root"] + spent["finalize root"] +
                         spent["reduce root"] / kMicrobatches;
      int64_t all = 0;
      for (const auto& [range, time] : spent) {
        if (absl::StartsWith(range, "refresh")) expected += time;
        all += time;
      }
      EXPECT_EQ(times.communication.exposed_ps, expected);
      EXPECT_LT(expected, all);
    }
  }
}

// Blocks hide nothing then. What the root computes before the first block's
// forward and the last one's backward hides their gathers, and what it computes
// afterwards hides what is reduced meanwhile.
TEST(SimOverlapTest, HidesTheLeastWithoutRunningAhead) {
  for (const char* strategy : {"fsdp", "hsdp", "hfsdp"}) {
    SCOPED_TRACE(strategy);
    ASSERT_OK_AND_ASSIGN(
        const Trace trace,
        Training::Step({strategy,
                        {.prefetch = 0,
                         .gradients_in_flight = 1,
                         .streams = CommunicationStreams::kShared},
                        /*compute_ps=*/10'000'000'000}));
    std::map<std::string, int64_t> spent = CollectiveTimes(trace);
    int64_t all = 0;
    for (const auto& [range, time] : spent) all += time;
    const int64_t hidden =
        spent["gather block0"] / 2 + spent["gather block5"] / 2 +
        spent["reduce block0"] + spent["finalize block0"] +
        spent["reduce root"] / kMicrobatches * (kMicrobatches - 1);
    EXPECT_GT(hidden, 0);
    EXPECT_EQ(TimesOf(trace, "compute").communication.exposed_ps, all - hidden);
  }
}

}  // namespace
}  // namespace tessera

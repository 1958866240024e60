// The unchanged runtime on simulated devices: what it counts there is what it
// counts on real ranks.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/checked_math.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/sim/sim_world.h"
#include "tessera/device/sim/sim_device.h"
#include "tessera/fsdp/optimizer.h"
#include "tests/fsdp/toy_training.h"
#include "tests/heap.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::DefaultToyUnits;
using ::tessera::testing::OracleHistory;
using ::tessera::testing::ToyHistory;
using ::tessera::testing::ToyOptimizer;
using ::tessera::testing::ToyRank;
using ::tessera::testing::ToyRun;
using ::testing::SizeIs;

// What a rank counts while it trains.
struct Counts {
  CommLog::Counters collectives;
  MemoryReport memory;
};

absl::StatusOr<Counts> Train(const ToyRun& run, const ToyHistory& expected,
                             CommSet& comms, Stream& stream) {
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<ToyRank> toy,
                           ToyRank::Create(run, comms, stream));
  for (int step = 0; step < run.steps; ++step) {
    TESSERA_RETURN_IF_ERROR(toy->TrainStep(step, expected.weights[step]));
  }
  TESSERA_RETURN_IF_ERROR(toy->context().Synchronize());
  return Counts{comms.log().counters(), stream.device().memory()};
}

// The same on a simulated device.
absl::StatusOr<Counts> Simulate(const ToyRun& run, const ToyHistory& expected,
                                int rank) {
  SimDevice device;
  TESSERA_ASSIGN_OR_RETURN(const auto stream, device.NewStream("compute"));
  TESSERA_ASSIGN_OR_RETURN(
      const SimWorld world,
      SimWorld::Create(*DeviceMesh::Parse(run.mesh), Topology::LocalCpu()));
  TESSERA_ASSIGN_OR_RETURN(const auto comm, world.Join(rank, *stream));
  CommSet comms(*comm);
  return Train(run, expected, comms, *stream);
}

TEST(SimTrainingTest, CountsWhatLocalRanksCount) {
  for (const char* strategy :
       {"ddp", "zero1", "zero2", "fsdp", "hsdp", "hfsdp"}) {
    for (const char* mesh :
         {"dp_outer=2,dp_inner=2", "dp_outer=1,dp_inner=3", "a=2,b=1,c=2"}) {
      for (ZeroGrad zero_grad : {ZeroGrad::kRelease, ZeroGrad::kFill}) {
        ToyRun run;
        run.strategy = strategy;
        run.mesh = mesh;
        run.zero_grad = zero_grad;
        run.optimizer = zero_grad == ZeroGrad::kFill ? ToyOptimizer::kMomentum
                                                     : ToyOptimizer::kAdamW;
        run.dtype = DType::kBF16;
        run.units = DefaultToyUnits();
        SCOPED_TRACE(run.ToString());
        const ToyHistory expected = OracleHistory(run);
        EXPECT_OK(RunLocalRanks(
            DeviceMesh::Parse(mesh)->size(),
            [&](LocalRank& rank) -> absl::Status {
              TESSERA_ASSIGN_OR_RETURN(
                  const Counts local,
                  Train(run, expected, rank.comms, rank.stream));
              TESSERA_ASSIGN_OR_RETURN(const Counts sim,
                                       Simulate(run, expected, rank.rank));
              EXPECT_EQ(sim.collectives, local.collectives);
              EXPECT_EQ(sim.memory.total, local.memory.total);
              EXPECT_EQ(sim.memory.by_tag, local.memory.by_tag);
              EXPECT_FALSE(local.collectives.empty());
              return absl::OkStatus();
            }));
      }
    }
  }
}

// Weights get their first values in any way, though there is no memory.
TEST(SimTrainingTest, InitializesInEveryWay) {
  SimDevice device;
  ASSERT_OK_AND_ASSIGN(const auto stream, device.NewStream("compute"));
  FsdpOptions options;
  options.mesh = *DeviceMesh::Parse("dp_outer=64,dp_inner=8");
  options.placements = *PlacementsFor("hfsdp", 2);
  ASSERT_OK_AND_ASSIGN(const SimWorld world,
                       SimWorld::Create(options.mesh, Topology::LocalCpu()));
  for (int rank : {0, 77}) {
    ASSERT_OK_AND_ASSIGN(const auto comm, world.Join(rank, *stream));
    ASSERT_OK_AND_ASSIGN(const auto context,
                         Context::Create(options, *comm, *stream));
    UnitBuilder builder = context->NewUnit("unit");
    const TensorMeta meta = *TensorMeta::Create(DType::kF32, {1000, 333});
    builder.Add("w", meta);
    ASSERT_OK_AND_ASSIGN(Unit * unit, builder.Build());
    ASSERT_OK(context->Prepare());
    std::vector<float> values(meta.shape().num_elements());
    const TensorView whole(values.data(), meta);
    EXPECT_OK(unit->LoadWeight(0, whole));
    EXPECT_OK(unit->ScatterWeight(0, whole));
    int pieces = 0;
    EXPECT_OK(unit->InitializeWeight(0, [&](const WeightPiece& piece) {
      EXPECT_EQ(piece.values.num_elements(), piece.region.num_elements());
      EXPECT_LT(piece.values.num_elements(), 1000);
      ++pieces;
      return absl::OkStatus();
    }));
    EXPECT_EQ(pieces, 1);
    unit->BeforeForward();
    EXPECT_OK(context->status());
  }
}

// A decoder of 80 layers and 70 billion parameters, as one rank of many trains
// it.
class LargeTraining {
 public:
  static constexpr int kLayers = 80;
  static constexpr int64_t kTokens = 4096;
  static constexpr int64_t kFlopsPerSecond = 400'000'000'000'000;

  LargeTraining(const char* strategy, const DeviceMesh& mesh)
      : device_({.memory_bytes_per_second = 3'350'000'000'000,
                 .flops_per_second = kFlopsPerSecond}),
        stream_(device_.NewStream("compute").value()),
        world_(SimWorld::Create(mesh, *Topology::Preset("h100-ib"))
                   ->Join(/*rank=*/54'321, *stream_)
                   .value()) {
    FsdpOptions options;
    options.mesh = mesh;
    options.placements = *PlacementsFor(strategy, mesh.num_axes());
    context_ = Context::Create(options, *world_, *stream_).value();
    for (int i = 0; i < kLayers; ++i) {
      AddUnit(absl::StrCat("layer", i), {{8192, 8192},
                                         {1024, 8192},
                                         {1024, 8192},
                                         {8192, 8192},
                                         {28'672, 8192},
                                         {28'672, 8192},
                                         {8192, 28'672},
                                         {8192},
                                         {8192}});
    }
    AddUnit("head", {{128'256, 8192}, {8192}});
  }

  absl::Status Step() {
    for (Unit* unit : units_) {
      unit->BeforeForward();
      TESSERA_RETURN_IF_ERROR(Compute("forward", *unit, 2));
      unit->AfterForward();
    }
    for (auto it = units_.rbegin(); it != units_.rend(); ++it) {
      Unit& unit = **it;
      unit.BeforeBackward();
      for (ParameterId p = 0; p < unit.num_parameters(); ++p) {
        TESSERA_RETURN_IF_ERROR(
            unit.grad(p, GradientWrite::kOverwrite).status());
      }
      TESSERA_RETURN_IF_ERROR(Compute("backward", unit, 4));
      unit.AfterBackward();
    }
    TESSERA_RETURN_IF_ERROR(SgdOptimizer(*context_, 0.1).Step());
    TESSERA_RETURN_IF_ERROR(context_->ZeroGradients(ZeroGrad::kRelease));
    return context_->Synchronize();
  }

  SimDevice& device() { return device_; }
  Context& context() { return *context_; }
  CommLog& log() { return *world_->log(); }

  // Elements of the flat layouts of all units.
  int64_t FlatElements() const {
    int64_t elements = 0;
    for (const UnitMemory& unit : context_->unit_memory()) {
      elements += unit.groups.front().elements;
    }
    return elements;
  }

 private:
  void AddUnit(const std::string& name,
               const std::vector<std::vector<int64_t>>& parameters) {
    UnitBuilder builder = context_->NewUnit(name);
    for (size_t p = 0; p < parameters.size(); ++p) {
      builder.Add(absl::StrCat("p", p),
                  TensorMeta::Create(DType::kBF16, parameters[p]).value());
    }
    units_.push_back(builder.Build().value());
  }

  absl::Status Compute(absl::string_view name, const Unit& unit,
                       int64_t flops_per_weight) {
    int64_t weights = 0;
    for (ParameterId p = 0; p < unit.num_parameters(); ++p) {
      TESSERA_ASSIGN_OR_RETURN(const TensorView weight, unit.weight(p));
      weights += weight.num_elements();
    }
    return stream_->Launch(
        {.name = name, .flops = flops_per_weight * weights * kTokens}, nullptr);
  }

  SimDevice device_;
  const std::unique_ptr<Stream> stream_;
  const std::unique_ptr<Communicator> world_;
  std::unique_ptr<Context> context_;
  std::vector<Unit*> units_;
};

constexpr int64_t kUnits = LargeTraining::kLayers + 1;

void ExpectPlannedMemory(LargeTraining& training) {
  const MemoryReport memory = training.device().memory();
  for (const auto& [tag, bytes] :
       PlanMemory(training.context().unit_memory())) {
    EXPECT_EQ(memory.by_tag.at(tag).peak_bytes, bytes) << tag;
  }
}

TEST(SimLargeTrainingTest, CountsAStepOfManyRanks) {
  constexpr int64_t kOuter = 512;
  constexpr int64_t kInner = 256;
  LargeTraining training("hsdp",
                         *DeviceMesh::Parse("dp_outer=512,dp_inner=256"));
  ASSERT_OK(training.context().Prepare());
  training.device().ClearTrace();
  training.log().Clear();
  ASSERT_OK(training.Step());

  const int64_t elements = training.FlatElements();
  EXPECT_GE(elements, 69'000'000'000);
  const int64_t piece = elements / kInner;
  // Along dp_outer, in f32; this rank owns a part of the full size.
  int64_t reduced_bytes = 0;
  for (const UnitMemory& unit : training.context().unit_memory()) {
    const int64_t reduced = unit.groups.front().elements / kInner;
    reduced_bytes += (reduced + (kOuter - 2) * CeilDiv(reduced, kOuter)) * 4;
  }
  const CommLog::Counters counters = training.log().counters();
  // Weights in bf16, for forward and for backward.
  EXPECT_EQ(counters.at({"dp_inner", CollectiveKind::kAllGather}),
            (CommCounter{2 * kUnits, 2 * (elements - piece) * 2}));
  EXPECT_EQ(counters.at({"dp_inner", CollectiveKind::kReduceScatter}),
            (CommCounter{kUnits, (kInner - 1) * piece * 2}));
  EXPECT_EQ(counters.at({"dp_outer", CollectiveKind::kAllReduce}),
            (CommCounter{kUnits, reduced_bytes}));
  EXPECT_THAT(counters, SizeIs(3));
  ExpectPlannedMemory(training);

  const TraceTimes times = TimesOf(training.device().trace(), "compute");
  // Between hosts of the preset: 6.6 us a launch, 2.7 us a hop, 50 GB/s.
  const int64_t reduce_ps =
      kUnits * (6'600'000 + 2 * (kOuter - 1) * 2'700'000) + reduced_bytes * 20;
  EXPECT_EQ(times.communicators.at("dp_outer").busy_ps, reduce_ps);
  const int64_t flops = 6 * 69'000'000'000 * LargeTraining::kTokens;
  EXPECT_GE(times.total_ps,
            flops / (LargeTraining::kFlopsPerSecond / 1'000'000) * 1'000'000);
}

// In one group of 131,072 ranks. The simulation keeps lists of the members, but
// none for each unit.
TEST(SimLargeTrainingTest, KeepsLittleOfManyRanks) {
  constexpr int64_t kRanks = 131'072;
  LargeTraining training("fsdp", *DeviceMesh::Parse("dp=131072"));
  ASSERT_OK(training.context().Prepare());
  training.log().Clear();
  ASSERT_OK(training.Step());
  const int64_t elements = training.FlatElements();
  EXPECT_EQ(training.log().counters().at({"dp", CollectiveKind::kAllGather}),
            (CommCounter{2 * kUnits, 2 * (elements - elements / kRanks) * 2}));
  ExpectPlannedMemory(training);
  EXPECT_LT(testing::HeapBytesInUse(), 32 << 20);
}

}  // namespace
}  // namespace tessera

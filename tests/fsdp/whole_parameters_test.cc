#include "tessera/fsdp/whole_parameters.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/run_ranks.h"
#include "tessera/fsdp/optimizer.h"
#include "tessera/testing/shards.h"
#include "tests/cpu_streams.h"
#include "tests/fsdp/toy_training.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::BothStreams;
using ::tessera::testing::DeepToyUnits;
using ::tessera::testing::DefaultToyUnits;
using ::tessera::testing::Fill;
using ::tessera::testing::LegalTriples;
using ::tessera::testing::OracleHistory;
using ::tessera::testing::StatusIs;
using ::tessera::testing::StreamsName;
using ::tessera::testing::ToyOptimizer;
using ::tessera::testing::ToyRun;
using ::tessera::testing::TrainAndCompare;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Against an oracle that has everything in one place, bit for bit.

TEST(WholeParametersTest, EqualsOracleBitwiseUnderEveryTriple) {
  for (const char* mesh : {"dp=4", "outer=2,inner=3", "outer=3,inner=1",
                           "pods=2,outer=2,inner=2"}) {
    for (const UnitPlacements& triple :
         LegalTriples(DeviceMesh::Parse(mesh)->num_axes())) {
      ToyRun run;
      run.mesh = mesh;
      run.placements = triple;
      run.microbatches = 2;
      run.optimizer = ToyOptimizer::kWhole;
      run.units = DefaultToyUnits();
      SCOPED_TRACE(run.ToString());
      EXPECT_OK(TrainAndCompare(run, OracleHistory(run)));
    }
  }
}

TEST(WholeParametersTest, EqualsOracleBitwiseInEveryPrecision) {
  const Precision precisions[] = {
      {},
      {.accumulation = DType::kF64, .main_weight = DType::kF32},
      {.accumulation = DType::kF32, .main_weight = DType::kF64}};
  for (const char* strategy : {"ddp", "zero1", "fsdp", "hsdp", "hfsdp"}) {
    for (const Precision& precision : precisions) {
      for (DType dtype : {DType::kF32, DType::kBF16}) {
        ToyRun run;
        run.strategy = strategy;
        run.dtype = dtype;
        run.precision = precision;
        run.streams = CpuStreams::kWorker;
        run.optimizer = ToyOptimizer::kWhole;
        run.units = DeepToyUnits();
        SCOPED_TRACE(run.ToString());
        EXPECT_OK(TrainAndCompare(run, OracleHistory(run)));
      }
    }
  }
}

// Units whose axes differ from those of the run.
TEST(WholeParametersTest, UnitsMayHaveAxesOfTheirOwn) {
  ToyRun run;
  run.mesh = "dp=3,ep=2";
  run.strategy = "hfsdp";
  run.optimizer = ToyOptimizer::kWhole;
  run.units = DefaultToyUnits();
  run.units[1].axes = std::vector<std::string>{"ep", "dp"};
  run.units[2].placements = *PlacementsFor("hsdp", 2);
  SCOPED_TRACE(run.ToString());
  EXPECT_OK(TrainAndCompare(run, OracleHistory(run)));
}

// Flat buffers whose cuts lie between parameters: nothing is to be moved, but
// not all ranks have what another one owns.
TEST(WholeParametersTest, PiecesMayBeWholeWhereTheyLie) {
  for (const char* strategy : {"fsdp", "zero1"}) {
    ToyRun run;
    run.mesh = "dp=2";
    run.strategy = strategy;
    run.optimizer = ToyOptimizer::kWhole;
    run.units = {{"even", -1, {{"first", {8, 4}}, {"second", {4, 8}}}},
                 {"mixed", -1, {{"matrix", {8, 4}}, {"bias", {32}}}}};
    SCOPED_TRACE(run.ToString());
    EXPECT_OK(TrainAndCompare(run, OracleHistory(run)));
  }
}

// A context of two units with a matrix, a norm and a frozen matrix each, on a
// mesh with tensor parallelism.
class TwoUnits {
 public:
  static constexpr char kMesh[] = "dp_outer=2,dp_inner=2,tp=2";
  static constexpr int kMatrix = 0;
  static constexpr int kNorm = 1;
  static constexpr int kFrozen = 2;

  TwoUnits(LocalRank& rank, absl::string_view strategy) : rank_(rank) {
    FsdpOptions options;
    options.mesh = *DeviceMesh::Parse(kMesh);
    options.data_parallel_axes = {"dp_outer", "dp_inner"};
    options.placements = *PlacementsFor(strategy, 2);
    options.logger = Logger(nullptr, absl::LogSeverity::kError);
    context_ = *Context::Create(options, rank.comms.world(), rank.stream);
    for (const auto& [name, matrix] :
         {std::pair("a", "f32[6,5] [R, R, S(0)]"),
          std::pair("b", "f32[3,7] [R, R, S(1)]")}) {
      UnitBuilder builder = context_->NewUnit(name);
      builder.Add("matrix", *Layout::Parse(matrix, options.mesh));
      builder.Add("norm", *TensorMeta::Create(DType::kF32, {4}));
      builder.Add("frozen", *TensorMeta::Create(DType::kF32, {9, 9}),
                  {.requires_grad = false});
      units_.push_back(*builder.Build());
    }
  }

  Context& context() { return *context_; }
  Unit& unit(int u) { return *units_[u]; }

  // The gradient of element n of every matrix becomes n.
  absl::Status Differentiate(const std::vector<int>& units) {
    for (int u : units) {
      units_[u]->BeforeForward();
      units_[u]->AfterForward();
      units_[u]->BeforeBackward();
      TESSERA_ASSIGN_OR_RETURN(
          const TensorView gradient,
          units_[u]->grad(kMatrix, GradientWrite::kOverwrite));
      TESSERA_RETURN_IF_ERROR(
          Fill(units_[u]->parameter_layout(kMatrix), rank_.rank, gradient,
               [](int64_t n) { return static_cast<double>(n); }));
      units_[u]->AfterBackward();
    }
    return context_->status();
  }

  // Takes the matrices whole, and would take frozen ones, and leaves the rest.
  absl::StatusOr<WholeParameters> Whole(int64_t state_elements = 0) {
    WholeParameterOptions options;
    options.chooses = [](const Unit&, ParameterId p) { return p != kNorm; };
    if (state_elements > 0) {
      options.state_elements = [state_elements](const Shape&) {
        return state_elements;
      };
    }
    return WholeParameters::Create(*context_, std::move(options));
  }

  absl::Status Step(
      WholeParameters& whole,
      absl::FunctionRef<absl::Status(const WholeParameter&, Stream&)> update) {
    return context_->StepTogether(
        [&](absl::Span<const OptimizerShard> shards, Stream& stream) {
          return whole.Update(shards, stream, update);
        });
  }

 private:
  LocalRank& rank_;
  std::unique_ptr<Context> context_;
  std::vector<Unit*> units_;
};

absl::Status RunEight(const std::function<absl::Status(LocalRank&)>& body) {
  return RunLocalRanks(8, body);
}

// weight = gradient, back to front; inline streams let it happen at once.
absl::Status Reverse(const WholeParameter& one, Stream&) {
  const float* const gradient = one.gradient.as<float>();
  std::reverse_copy(gradient, gradient + one.gradient.num_elements(),
                    one.weight.as<float>());
  return absl::OkStatus();
}

// Matrices that another axis shards are whole over that, too.
TEST(WholeParametersTest, ParametersAreWholeOverAllAxes) {
  for (absl::string_view strategy : StrategyNames()) {
    SCOPED_TRACE(strategy);
    EXPECT_OK(RunEight([&](LocalRank& rank) -> absl::Status {
      TwoUnits two(rank, strategy);
      TESSERA_RETURN_IF_ERROR(two.context().Prepare());
      TESSERA_ASSIGN_OR_RETURN(WholeParameters whole, two.Whole());
      TESSERA_RETURN_IF_ERROR(two.Differentiate({0, 1}));
      int updates = 0;
      TESSERA_RETURN_IF_ERROR(
          two.Step(whole, [&](const WholeParameter& one, Stream& stream) {
            EXPECT_EQ(one.parameter, TwoUnits::kMatrix);
            EXPECT_TRUE(whole.Owns(one.unit, one.parameter));
            EXPECT_EQ(one.weight.shape(),
                      one.unit.parameter_layout(one.parameter).shape());
            EXPECT_EQ(one.gradient.shape(), one.weight.shape());
            for (int64_t n = 0; n < one.gradient.num_elements(); ++n) {
              EXPECT_EQ(one.gradient.as<float>()[n], n);
            }
            ++updates;
            return Reverse(one, stream);
          }));
      EXPECT_EQ(updates, whole.Owns(two.unit(0), TwoUnits::kMatrix) +
                             whole.Owns(two.unit(1), TwoUnits::kMatrix));
      for (int u : {0, 1}) {
        TESSERA_ASSIGN_OR_RETURN(const ShardedTensor weight,
                                 two.unit(u).main_weight(TwoUnits::kMatrix));
        const int64_t last = weight.layout().meta().num_elements() - 1;
        std::vector<float> wanted(weight.local().num_elements());
        TESSERA_RETURN_IF_ERROR(
            Fill(weight.layout(), rank.rank,
                 TensorView(wanted.data(), weight.local().meta()),
                 [last](int64_t n) { return static_cast<double>(last - n); }));
        EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(),
                               weight.local().as<float>()));
      }
      return absl::OkStatus();
    }));
  }
}

int64_t CurrentBytes(const Device& device, const std::string& tag) {
  const MemoryReport report = device.memory();
  const auto found = report.by_tag.find(tag);
  return found == report.by_tag.end() ? 0 : found->second.current_bytes;
}

int64_t PeakBytes(const Device& device, const std::string& tag) {
  const MemoryReport report = device.memory();
  const auto found = report.by_tag.find(tag);
  return found == report.by_tag.end() ? 0 : found->second.peak_bytes;
}

TEST(WholeParametersTest, TakesWhatItSaysAndNoMoreThanAShareAndTheLargest) {
  for (absl::string_view strategy : StrategyNames()) {
    SCOPED_TRACE(strategy);
    EXPECT_OK(RunEight([&](LocalRank& rank) -> absl::Status {
      TwoUnits two(rank, strategy);
      TESSERA_RETURN_IF_ERROR(two.context().Prepare());
      TESSERA_ASSIGN_OR_RETURN(WholeParameters whole, two.Whole());
      TESSERA_RETURN_IF_ERROR(two.Differentiate({0, 1}));
      TESSERA_RETURN_IF_ERROR(two.Step(whole, Reverse));
      EXPECT_EQ(PeakBytes(rank.device, kWholeParametersTag),
                whole.whole_bytes());
      EXPECT_EQ(CurrentBytes(rank.device, kWholeParametersTag), 0);
      EXPECT_EQ(CurrentBytes(rank.device, "workspace"), 0);
      // 30 and 21 elements over at least two owners, twice, and what aligns.
      const int owners = strategy == "hsdp" ? 2 : strategy == "ddp" ? 1 : 4;
      EXPECT_LE(whole.whole_bytes(), 2 * 4 * (51 / owners + 30) + 4 * 128);
      return absl::OkStatus();
    }));
  }
}

TEST(WholeParametersTest, StateIsTheOwnersFromTheFirstUpdateOn) {
  EXPECT_OK(RunEight([&](LocalRank& rank) -> absl::Status {
    TwoUnits two(rank, "fsdp");
    TESSERA_RETURN_IF_ERROR(two.context().Prepare());
    {
      TESSERA_ASSIGN_OR_RETURN(WholeParameters whole, two.Whole(5));
      EXPECT_EQ(CurrentBytes(rank.device, kOptimizerStateTag), 0);
      for (int step = 1; step <= 3; ++step) {
        // The second unit has no gradient before the second step.
        TESSERA_RETURN_IF_ERROR(two.Differentiate(
            step == 1 ? std::vector<int>{0} : std::vector<int>{0, 1}));
        int64_t owned = 0;
        TESSERA_RETURN_IF_ERROR(
            two.Step(whole, [&](const WholeParameter& one, Stream&) {
              ++owned;
              EXPECT_EQ(one.step, &one.unit == &two.unit(0) ? step : step - 1);
              EXPECT_EQ(one.state.num_elements(), 5);
              for (int i = 0; i < 5; ++i) {
                float& value = one.state.as<float>()[i];
                EXPECT_EQ(value, one.step - 1);
                ++value;
              }
              return absl::OkStatus();
            }));
        EXPECT_EQ(CurrentBytes(rank.device, kOptimizerStateTag),
                  owned * 5 * static_cast<int64_t>(sizeof(float)));
        if (step > 1) {
          EXPECT_EQ(CurrentBytes(rank.device, kOptimizerStateTag),
                    whole.state_bytes());
        }
        TESSERA_RETURN_IF_ERROR(
            two.context().ZeroGradients(ZeroGrad::kRelease));
      }
    }
    EXPECT_EQ(CurrentBytes(rank.device, kOptimizerStateTag), 0);
    return absl::OkStatus();
  }));
}

TEST(WholeParametersTest, ChoosesAllUnlessTold) {
  EXPECT_OK(RunEight([](LocalRank& rank) -> absl::Status {
    TwoUnits two(rank, "ddp");
    TESSERA_RETURN_IF_ERROR(two.context().Prepare());
    TESSERA_ASSIGN_OR_RETURN(const WholeParameters whole,
                             WholeParameters::Create(two.context(), {}));
    for (int u : {0, 1}) {
      EXPECT_TRUE(whole.Owns(two.unit(u), TwoUnits::kMatrix));
      EXPECT_TRUE(whole.Owns(two.unit(u), TwoUnits::kNorm));
      EXPECT_FALSE(whole.Owns(two.unit(u), TwoUnits::kFrozen));
    }
    return absl::OkStatus();
  }));
}

TEST(WholeParametersTest, RejectsStateThatCannotBe) {
  for (int64_t elements : {int64_t{-1}, INT64_MAX / 4 + 1}) {
    EXPECT_THAT(RunEight([&](LocalRank& rank) -> absl::Status {
                  TwoUnits two(rank, "fsdp");
                  TESSERA_RETURN_IF_ERROR(two.context().Prepare());
                  const auto state_elements = [&](const Shape&) {
                    return elements;
                  };
                  return WholeParameters::Create(
                             two.context(), {.state_elements = state_elements})
                      .status();
                }),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("unit 'a' parameter 'matrix'"),
                               HasSubstr(absl::StrCat(elements)))));
  }
}

// Launches of rank 0 in a step in which these units have gradients.
int64_t LaunchesOfAStep(const std::vector<int>& units) {
  std::set<std::pair<std::string, int64_t>> launches;
  EXPECT_OK(RunEight([&](LocalRank& rank) -> absl::Status {
    TwoUnits two(rank, "fsdp");
    TESSERA_RETURN_IF_ERROR(two.context().Prepare());
    TESSERA_ASSIGN_OR_RETURN(WholeParameters whole, two.Whole());
    TESSERA_RETURN_IF_ERROR(two.Differentiate(units));
    rank.comms.log().Clear();
    TESSERA_RETURN_IF_ERROR(two.Step(whole, Reverse));
    if (rank.rank != 0) return absl::OkStatus();
    for (const CollectiveRecord& record : rank.comms.log().recent()) {
      launches.emplace(record.communicator, record.sequence);
    }
    return absl::OkStatus();
  }));
  return static_cast<int64_t>(launches.size());
}

TEST(WholeParametersTest, AllUnitsShareTheirLaunches) {
  const int64_t of_one = LaunchesOfAStep({0});
  EXPECT_GE(of_one, 2);  // there and back
  EXPECT_EQ(LaunchesOfAStep({0, 1}), of_one);
}

TEST(WholeParametersTest, ErrorsOfUpdatesNameTheParameterAndStay) {
  EXPECT_OK(RunLocalRanks(8, [](LocalRank& rank) -> absl::Status {
    TwoUnits two(rank, "ddp");
    EXPECT_THAT(two.Whole().status(),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         "fsdp: the context is not prepared"));
    TESSERA_RETURN_IF_ERROR(two.context().Prepare());
    TESSERA_ASSIGN_OR_RETURN(WholeParameters whole, two.Whole());
    EXPECT_THAT(two.Step(whole, Reverse),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("no unit has a gradient")));
    TESSERA_RETURN_IF_ERROR(two.Differentiate({1}));
    const auto failed =
        StatusIs(absl::StatusCode::kInvalidArgument,
                 "fsdp: Step: unit 'b' parameter 'matrix': not that");
    EXPECT_THAT(two.Step(whole,
                         [](const WholeParameter&, Stream&) {
                           return absl::InvalidArgumentError("not that");
                         }),
                failed);
    EXPECT_THAT(two.context().status(), failed);
    return absl::OkStatus();
  }));
}

class FailingUpdate : public ::testing::TestWithParam<CpuStreams> {
 protected:
  // Runs `step` on eight ranks whose gradients are there; `fails` tells it that
  // the update is to fail, on some of them. Nobody leaves before all have
  // ended: the others can only hear of it by an abort.
  using StepOnce =
      absl::FunctionRef<absl::Status(TwoUnits&, WholeParameters&, bool fails)>;
  static void ExpectAllToHaveTheReason(
      absl::FunctionRef<bool(int rank, TwoUnits&, WholeParameters&)> chooses,
      StepOnce step) {
    std::barrier all(8);
    LocalRunOptions options;
    options.device.streams = GetParam();
    options.world.timeout = std::chrono::seconds(100);
    std::atomic<int> ended = 0;
    // The streams that fail are the ranks' own, and so is what this returns.
    (void)RunLocalRanks(
        8,
        [&](LocalRank& rank) -> absl::Status {
          TwoUnits two(rank, "fsdp");
          TESSERA_RETURN_IF_ERROR(two.context().Prepare());
          TESSERA_ASSIGN_OR_RETURN(WholeParameters whole, two.Whole());
          TESSERA_RETURN_IF_ERROR(two.Differentiate({0, 1}));
          TESSERA_RETURN_IF_ERROR(two.context().Synchronize());
          all.arrive_and_wait();
          const bool fails = chooses(rank.rank, two, whole);
          absl::Status status = step(two, whole, fails);
          status.Update(two.context().Synchronize());
          EXPECT_THAT(status, StatusIs(fails ? absl::StatusCode::kDataLoss
                                             : absl::StatusCode::kAborted,
                                       HasSubstr("no such matrix")));
          ++ended;
          all.arrive_and_wait();
          return absl::OkStatus();
        },
        options);
    EXPECT_EQ(ended, 8);
  }
};

INSTANTIATE_TEST_SUITE_P(Streams, FailingUpdate, BothStreams(), StreamsName);

TEST_P(FailingUpdate, OfAnOwnerEndsTheStepOfTheOthers) {
  ExpectAllToHaveTheReason(
      [](int rank, TwoUnits& two, WholeParameters& whole) {
        // One of the replicas along tp.
        return rank % 2 == 0 && whole.Owns(two.unit(0), TwoUnits::kMatrix);
      },
      [](TwoUnits& two, WholeParameters& whole, bool fails) {
        return two.Step(whole, [&](const WholeParameter& one, Stream&) {
          return fails && &one.unit == &two.unit(0)
                     ? absl::DataLossError("no such matrix")
                     : absl::OkStatus();
        });
      });
}

// The others notice where they gather the weights that it does not have: those
// along the data-parallel axes, so one fails for either rank of tp.
TEST_P(FailingUpdate, OfAShardEndsTheNextForwardOfTheOthers) {
  ExpectAllToHaveTheReason(
      [](int rank, TwoUnits&, WholeParameters&) { return rank < 2; },
      [](TwoUnits& two, WholeParameters&, bool fails) {
        absl::Status status =
            two.context().Step([&](const OptimizerShard&, Stream&) {
              return fails ? absl::DataLossError("no such matrix")
                           : absl::OkStatus();
            });
        two.unit(0).BeforeForward();
        return status;
      });
}

}  // namespace
}  // namespace tessera

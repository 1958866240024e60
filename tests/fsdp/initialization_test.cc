// The three ways of giving weights their first values, and when gathered
// weights follow what was loaded.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/comm/local/run_ranks.h"
#include "tessera/fsdp/context.h"
#include "tessera/fsdp/optimizer.h"
#include "tests/fsdp/any_ranks.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::OnAnyRanks;
using ::tessera::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kRows = 7;
constexpr int64_t kColumns = 6;
constexpr char kMesh[] = "outer=2,tp=2,inner=2";

// A context that is data-parallel over outer and inner, with one unit whose
// weight the axis tp cuts by columns.
struct Model {
  std::unique_ptr<Context> context;
  Unit* unit;

  template <typename Rank>
  static absl::StatusOr<Model> Create(Rank& rank, const char* strategy,
                                      UnitOptions unit_options = {}) {
    FsdpOptions options;
    TESSERA_ASSIGN_OR_RETURN(options.mesh, DeviceMesh::Parse(kMesh));
    options.data_parallel_axes = {"outer", "inner"};
    TESSERA_ASSIGN_OR_RETURN(options.placements, PlacementsFor(strategy, 2));
    options.logger = Logger(nullptr, absl::LogSeverity::kInfo);
    Model model;
    TESSERA_ASSIGN_OR_RETURN(
        model.context,
        Context::Create(options, rank.comms.world(), rank.stream));
    UnitBuilder builder = model.context->NewUnit("unit", unit_options);
    TESSERA_ASSIGN_OR_RETURN(
        const TensorMeta meta,
        TensorMeta::Create(DType::kBF16, {kRows, kColumns}));
    TESSERA_ASSIGN_OR_RETURN(
        const Layout layout,
        Layout::Create(meta, options.mesh,
                       {Placement::Replicate(), Placement::Shard(1),
                        Placement::Replicate()}));
    builder.Add("weight", layout);
    TESSERA_ASSIGN_OR_RETURN(model.unit, builder.Build());
    TESSERA_RETURN_IF_ERROR(model.context->Prepare());
    return model;
  }

  // Fails unless a forward sees `value(row, column)` in every element.
  absl::Status ExpectForwardSees(int rank,
                                 absl::FunctionRef<float(int, int)> value) {
    unit->BeforeForward(ForwardKind::kInference);
    TESSERA_ASSIGN_OR_RETURN(const TensorView weight, unit->weight(0));
    TESSERA_RETURN_IF_ERROR(context->Synchronize());
    const Region region = unit->parameter_layout(0).RegionOf(rank);
    int64_t i = 0;
    for (int64_t r = region.box[0].begin; r < region.box[0].end; ++r) {
      for (int64_t c = region.box[1].begin; c < region.box[1].end; ++c) {
        EXPECT_EQ(static_cast<float>(weight.as<BFloat16>()[i++]),
                  value(static_cast<int>(r), static_cast<int>(c)));
      }
    }
    EXPECT_EQ(i, weight.num_elements());
    unit->AfterForward();
    return context->status();
  }
};

float ValueAt(int row, int column) {
  return static_cast<float>(row * 10 + column);
}

float OtherValueAt(int row, int column) { return -ValueAt(row, column); }

// Whole weights in f32, the main weight's dtype.
std::vector<float> WholeWeight(absl::FunctionRef<float(int, int)> value) {
  std::vector<float> whole;
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kColumns; ++c) whole.push_back(value(r, c));
  }
  return whole;
}

absl::Status LoadOnEveryRank(Model& model, int rank,
                             absl::FunctionRef<float(int, int)> value) {
  const Region region = model.unit->parameter_layout(0).RegionOf(rank);
  std::vector<float> local;
  for (int64_t r = region.box[0].begin; r < region.box[0].end; ++r) {
    for (int64_t c = region.box[1].begin; c < region.box[1].end; ++c) {
      local.push_back(value(static_cast<int>(r), static_cast<int>(c)));
    }
  }
  TESSERA_ASSIGN_OR_RETURN(
      const TensorMeta meta,
      TensorMeta::Create(DType::kF32, region.LocalShape()));
  return model.unit->LoadWeight(0, TensorView(local.data(), meta));
}

absl::Status LoadFromFirstRank(Model& model, int rank,
                               absl::FunctionRef<float(int, int)> value) {
  if (rank != 0) return model.unit->ScatterWeight(0, {});
  std::vector<float> whole = WholeWeight(value);
  TESSERA_ASSIGN_OR_RETURN(const TensorMeta meta,
                           TensorMeta::Create(DType::kF32, {kRows, kColumns}));
  return model.unit->ScatterWeight(0, TensorView(whole.data(), meta));
}

absl::Status LoadByPieces(Model& model, int,
                          absl::FunctionRef<float(int, int)> value) {
  return model.unit->InitializeWeight(
      0, [&](const WeightPiece& piece) -> absl::Status {
        const Region& region = piece.region;
        const int64_t columns = region.box[1].size();
        const int64_t begin = region.flat.has_value() ? region.flat->begin : 0;
        for (int64_t i = 0; i < piece.values.num_elements(); ++i) {
          const int64_t row = region.box[0].begin + (begin + i) / columns;
          const int64_t column = region.box[1].begin + (begin + i) % columns;
          piece.values.as<float>()[i] =
              value(static_cast<int>(row), static_cast<int>(column));
        }
        return absl::OkStatus();
      });
}

struct Way {
  const char* name;
  absl::Status (*load)(Model&, int rank, absl::FunctionRef<float(int, int)>);
};

constexpr Way kWays[] = {{"every rank", LoadOnEveryRank},
                         {"first rank", LoadFromFirstRank},
                         {"pieces", LoadByPieces}};

// Also where gathered weights are kept from one forward to the next.
TEST(InitializationTest, TheNextForwardSeesWhatWasLoadedInAnyWay) {
  for (const Way& way : kWays) {
    for (absl::string_view strategy : StrategyNames()) {
      for (ReleaseWeights release :
           {ReleaseWeights::kAfterForward, ReleaseWeights::kNever}) {
        SCOPED_TRACE(absl::StrCat(way.name, ", ", strategy));
        EXPECT_OK(OnAnyRanks(8, [&](auto& rank) -> absl::Status {
          const std::string name(strategy);
          TESSERA_ASSIGN_OR_RETURN(
              Model model,
              Model::Create(rank, name.c_str(), {.release = release}));
          TESSERA_RETURN_IF_ERROR(way.load(model, rank.rank, ValueAt));
          TESSERA_RETURN_IF_ERROR(model.ExpectForwardSees(rank.rank, ValueAt));
          TESSERA_RETURN_IF_ERROR(model.ExpectForwardSees(rank.rank, ValueAt));
          TESSERA_RETURN_IF_ERROR(way.load(model, rank.rank, OtherValueAt));
          return model.ExpectForwardSees(rank.rank, OtherValueAt);
        }));
      }
    }
  }
}

// Weights that are never released are gathered anew after a step.
TEST(InitializationTest, KeptWeightsFollowTheOptimizer) {
  EXPECT_OK(RunLocalRanks(8, [](LocalRank& rank) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(
        Model model,
        Model::Create(rank, "fsdp", {.release = ReleaseWeights::kNever}));
    TESSERA_RETURN_IF_ERROR(LoadByPieces(model, rank.rank, ValueAt));
    for (int step = 1; step <= 3; ++step) {
      model.unit->BeforeForward();
      model.unit->AfterForward();
      model.unit->BeforeBackward();
      TESSERA_ASSIGN_OR_RETURN(const TensorView gradient,
                               model.unit->grad(0, GradientWrite::kOverwrite));
      std::fill_n(gradient.as<BFloat16>(), gradient.num_elements(),
                  BFloat16(1.0f));
      model.unit->AfterBackward();
      TESSERA_RETURN_IF_ERROR(SgdOptimizer(*model.context, 1.0).Step());
      TESSERA_RETURN_IF_ERROR(model.context->ZeroGradients(ZeroGrad::kRelease));
      TESSERA_RETURN_IF_ERROR(
          model.ExpectForwardSees(rank.rank, [step](int row, int column) {
            return ValueAt(row, column) - static_cast<float>(step);
          }));
    }
    return absl::OkStatus();
  }));
}

// A model that does not fit into the memory of one rank, initialized where each
// rank has room for little more than its part.
TEST(InitializationTest, APieceIsAllThatARankEverHas) {
  constexpr int kRanks = 4;
  constexpr int kUnits = 16;
  constexpr int64_t kElements = 4096;
  constexpr int64_t kModelBytes = kUnits * kElements * 4;
  EXPECT_OK(RunLocalRanks(
      kRanks,
      [&](LocalRank& rank) -> absl::Status {
        FsdpOptions options;
        TESSERA_ASSIGN_OR_RETURN(options.mesh, DeviceMesh::Parse("dp=4"));
        TESSERA_ASSIGN_OR_RETURN(options.placements, PlacementsFor("fsdp", 1));
        TESSERA_ASSIGN_OR_RETURN(
            auto context,
            Context::Create(options, rank.comms.world(), rank.stream));
        TESSERA_ASSIGN_OR_RETURN(const TensorMeta meta,
                                 TensorMeta::Create(DType::kF32, {kElements}));
        for (int u = 0; u < kUnits; ++u) {
          UnitBuilder builder = context->NewUnit(absl::StrCat("unit", u));
          builder.Add("w", meta);
          TESSERA_RETURN_IF_ERROR(builder.Build().status());
        }
        TESSERA_RETURN_IF_ERROR(context->Prepare());
        for (const auto& unit : context->units()) {
          TESSERA_RETURN_IF_ERROR(
              unit->InitializeWeight(0, [&](const WeightPiece& piece) {
                EXPECT_EQ(piece.values.num_elements(), kElements / kRanks);
                for (int64_t i = 0; i < piece.values.num_elements(); ++i) {
                  piece.values.as<float>()[i] =
                      static_cast<float>(piece.region.flat->begin + i);
                }
                return absl::OkStatus();
              }));
        }
        for (const auto& unit : context->units()) {
          unit->BeforeForward(ForwardKind::kInference);
          TESSERA_ASSIGN_OR_RETURN(const TensorView weight, unit->weight(0));
          TESSERA_RETURN_IF_ERROR(context->Synchronize());
          for (int64_t i = 0; i < kElements; ++i) {
            EXPECT_EQ(weight.as<float>()[i], static_cast<float>(i));
          }
          unit->AfterForward();
        }
        EXPECT_LT(rank.device.memory().total.peak_bytes, kModelBytes);
        return context->status();
      },
      {.device = {.memory_limit_bytes = kModelBytes / 2}}));
}

TEST(InitializationTest, NamesWhatDoesNotFit) {
  EXPECT_OK(RunLocalRanks(8, [](LocalRank& rank) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(Model model, Model::Create(rank, "ddp"));
    std::vector<float> whole = WholeWeight(ValueAt);
    TESSERA_ASSIGN_OR_RETURN(const TensorMeta flat,
                             TensorMeta::Create(DType::kF32, {42}));
    if (rank.rank == 0) {
      EXPECT_THAT(model.unit->ScatterWeight(0, TensorView(whole.data(), flat)),
                  StatusIs(absl::StatusCode::kInvalidArgument,
                           AllOf(HasSubstr("'unit' parameter 'weight'"),
                                 HasSubstr("f32[42]"), HasSubstr("f32[7,6]"))));
    }
    EXPECT_THAT(
        model.unit->InitializeWeight(0,
                                     [](const WeightPiece&) {
                                       return absl::NotFoundError(
                                           "no such tensor");
                                     }),
        StatusIs(absl::StatusCode::kNotFound, HasSubstr("no such tensor")));
    EXPECT_THAT(model.unit->InitializeWeight(
                    1, [](const WeightPiece&) { return absl::OkStatus(); }),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("no parameter 1")));
    model.unit->BeforeForward();
    for (const absl::Status& status :
         {model.unit->ScatterWeight(0, {}),
          model.unit->InitializeWeight(
              0, [](const WeightPiece&) { return absl::OkStatus(); })}) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                                   HasSubstr("inside a forward")));
    }
    model.unit->AfterForward();
    return absl::OkStatus();
  }));
}

}  // namespace
}  // namespace tessera

// Which collectives run for each group of parameters, along which axis, how
// often in a step: one table for all strategies.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/comm/local/run_ranks.h"
#include "tessera/fsdp/context.h"
#include "tessera/fsdp/optimizer.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

constexpr auto kAllGather = CollectiveKind::kAllGather;
constexpr auto kReduceScatter = CollectiveKind::kReduceScatter;
constexpr auto kAllReduce = CollectiveKind::kAllReduce;

// What a strategy does along one axis.
struct AxisRow {
  const char* axis;
  bool gathers;  // weights, whenever a unit needs them
  bool reduces;  // gradients, in every backward
  std::optional<CollectiveKind> finalizes;  // after the last one
  bool refreshes;                           // weights, after a step
};

struct StrategyRow {
  const char* name;
  const char* mesh;
  const char* placements;
  std::vector<AxisRow> axes;
};

const StrategyRow kTable[] = {
    {"ddp",
     "outer=2,inner=2",
     "param=[R, R] grad=[P, P] optim=[R, R]",
     {{"outer", false, false, kAllReduce, false},
      {"inner", false, false, kAllReduce, false}}},
    {"zero1",
     "outer=2,inner=2",
     "param=[R, R] grad=[P, P] optim=[Flat, Flat]",
     {{"outer", false, false, kReduceScatter, true},
      {"inner", false, false, kReduceScatter, true}}},
    {"zero2",
     "outer=2,inner=2",
     "param=[R, R] grad=[Flat, Flat] optim=[Flat, Flat]",
     {{"outer", false, true, std::nullopt, true},
      {"inner", false, true, std::nullopt, true}}},
    {"zero3",
     "outer=2,inner=2",
     "param=[Flat, Flat] grad=[Flat, Flat] optim=[Flat, Flat]",
     {{"outer", true, true, std::nullopt, false},
      {"inner", true, true, std::nullopt, false}}},
    {"hsdp",
     "outer=2,inner=2",
     "param=[R, Flat] grad=[P, Flat] optim=[R, Flat]",
     {{"outer", false, false, kAllReduce, false},
      {"inner", true, true, std::nullopt, false}}},
    {"hfsdp",
     "outer=2,inner=2",
     "param=[R, Flat] grad=[P, Flat] optim=[Flat, Flat]",
     {{"outer", false, false, kReduceScatter, true},
      {"inner", true, true, std::nullopt, false}}},
    {"zero1 outside, zero2 inside",
     "outer=2,inner=2",
     "param=[R, R] grad=[P, Flat] optim=[Flat, Flat]",
     {{"outer", false, false, kReduceScatter, true},
      {"inner", false, true, std::nullopt, true}}},
    {"three axes, two deferred",
     "pods=2,outer=2,inner=2",
     "param=[R, R, Flat] grad=[P, P, Flat] optim=[R, Flat, Flat]",
     {{"pods", false, false, kAllReduce, false},
      {"outer", false, false, kReduceScatter, true},
      {"inner", true, true, std::nullopt, false}}},
    {"ddp on one axis",
     "outer=1,inner=3",
     "param=[R, R] grad=[P, P] optim=[R, R]",
     {{"inner", false, false, kAllReduce, false}}},
};

constexpr int kTrainedGroups = 2;  // f32 and bf16
constexpr int kGroups = 3;         // and a frozen one

int GathersPerStep(ReleaseWeights release, int microbatches) {
  switch (release) {
    case ReleaseWeights::kAfterForward:
      return 2 * microbatches;
    case ReleaseWeights::kAfterBackward:
      return microbatches;
    case ReleaseWeights::kNever:
      return 1;
  }
  return 0;
}

using Calls = std::map<CommLog::Key, int64_t>;

Calls ExpectedCalls(const StrategyRow& row, ReleaseWeights release,
                    int microbatches) {
  Calls calls;
  for (const AxisRow& axis : row.axes) {
    const auto add = [&](CollectiveKind kind, int64_t count) {
      if (count > 0) calls[{axis.axis, kind}] += count;
    };
    add(kAllGather,
        axis.gathers * GathersPerStep(release, microbatches) * kGroups);
    add(kReduceScatter, axis.reduces * microbatches * kTrainedGroups);
    if (axis.finalizes.has_value()) add(*axis.finalizes, kTrainedGroups);
    add(kAllGather, axis.refreshes * kTrainedGroups);
  }
  return calls;
}

Calls TakeCalls(CommLog& log) {
  Calls calls;
  for (const auto& [key, counter] : log.counters()) calls[key] = counter.calls;
  log.Clear();
  return calls;
}

// A unit with three groups.
absl::StatusOr<Unit*> AddUnit(Context& context, ReleaseWeights release) {
  UnitBuilder builder = context.NewUnit("block", {.release = release});
  TESSERA_ASSIGN_OR_RETURN(const TensorMeta f32,
                           TensorMeta::Create(DType::kF32, {5, 3}));
  TESSERA_ASSIGN_OR_RETURN(const TensorMeta bf16,
                           TensorMeta::Create(DType::kBF16, {7}));
  builder.Add("weight", f32);
  builder.Add("half", bf16);
  builder.Add("frozen", f32, {.requires_grad = false});
  builder.Add("bias", f32);
  return builder.Build();
}

void ExpectCallsOfTable(const StrategyRow& row, ReleaseWeights release,
                        int microbatches) {
  SCOPED_TRACE(absl::StrCat(row.name, ", ", microbatches, " microbatches"));
  FsdpOptions options;
  options.mesh = *DeviceMesh::Parse(row.mesh);
  options.placements = *ParseUnitPlacements(row.placements);
  EXPECT_OK(
      RunLocalRanks(options.mesh.size(), [&](LocalRank& rank) -> absl::Status {
        TESSERA_ASSIGN_OR_RETURN(
            auto context,
            Context::Create(options, rank.comms.world(), rank.stream));
        TESSERA_ASSIGN_OR_RETURN(Unit * unit, AddUnit(*context, release));
        TESSERA_RETURN_IF_ERROR(context->Prepare());
        rank.comms.log().Clear();
        for (int step = 0; step < 3; ++step) {
          for (int m = 0; m < microbatches; ++m) {
            unit->BeforeForward();
            unit->AfterForward();
            unit->BeforeBackward();
            unit->AfterBackward(m + 1 == microbatches);
          }
          TESSERA_RETURN_IF_ERROR(SgdOptimizer(*context, 1.0).Step());
          TESSERA_RETURN_IF_ERROR(context->ZeroGradients(ZeroGrad::kFill));
          EXPECT_EQ(TakeCalls(rank.comms.log()),
                    ExpectedCalls(row, release, microbatches))
              << "step " << step;
        }
        return absl::OkStatus();
      }));
}

TEST(CollectivesTest, AreThoseOfTheTable) {
  for (const StrategyRow& row : kTable) {
    for (int microbatches : {1, 2, 5}) {
      for (ReleaseWeights release :
           {ReleaseWeights::kAfterForward, ReleaseWeights::kAfterBackward,
            ReleaseWeights::kNever}) {
        ExpectCallsOfTable(row, release, microbatches);
      }
    }
  }
}

// The named rows are what the names stand for.
TEST(CollectivesTest, TableHasEveryStrategy) {
  for (absl::string_view name : StrategyNames()) {
    const UnitPlacements placements = *PlacementsFor(name, 2);
    EXPECT_THAT(kTable, ::testing::Contains(::testing::ResultOf(
                            [](const StrategyRow& row) {
                              return *ParseUnitPlacements(row.placements);
                            },
                            placements)))
        << name;
  }
}

}  // namespace
}  // namespace tessera

// Weights of the next unit are gathered while one computes, and what is
// gathered in vain does no harm.

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
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

using ::tessera::testing::StatusIs;
using ::testing::HasSubstr;

constexpr int kUnits = 5;

// Five units of one weight each, without a root, on two ranks.
struct Model {
  std::unique_ptr<Context> context;
  std::vector<Unit*> units;

  // `configure` sees the units before they are prepared.
  static absl::StatusOr<Model> Create(
      LocalRank& rank, const OverlapOptions& overlap = {},
      absl::FunctionRef<absl::Status(Model&)> configure = [](Model&) {
        return absl::OkStatus();
      }) {
    FsdpOptions options;
    options.overlap = overlap;
    TESSERA_ASSIGN_OR_RETURN(options.mesh, DeviceMesh::Parse("dp=2"));
    TESSERA_ASSIGN_OR_RETURN(options.placements, PlacementsFor("fsdp", 1));
    Model model;
    TESSERA_ASSIGN_OR_RETURN(
        model.context,
        Context::Create(options, rank.comms.world(), rank.stream));
    TESSERA_ASSIGN_OR_RETURN(const TensorMeta meta,
                             TensorMeta::Create(DType::kF32, {100}));
    for (int u = 0; u < kUnits; ++u) {
      UnitBuilder builder = model.context->NewUnit(absl::StrCat("unit", u));
      builder.Add("w", meta);
      TESSERA_ASSIGN_OR_RETURN(Unit * unit, builder.Build());
      model.units.push_back(unit);
    }
    TESSERA_RETURN_IF_ERROR(configure(model));
    TESSERA_RETURN_IF_ERROR(model.context->Prepare());
    TESSERA_RETURN_IF_ERROR(model.Load(0));
    model.compute_ = &rank.stream;
    return model;
  }

  // Gives all of unit u's weights the value `base` + u.
  absl::Status Load(int base) {
    for (int u = 0; u < kUnits; ++u) {
      TESSERA_RETURN_IF_ERROR(
          units[u]->InitializeWeight(0, [&](const WeightPiece& piece) {
            std::fill_n(piece.values.as<float>(), piece.values.num_elements(),
                        static_cast<float>(base + u));
            return absl::OkStatus();
          }));
    }
    return absl::OkStatus();
  }

  // A forward of unit u, whose weights must have the value `want`.
  absl::Status Forward(int u, float want,
                       ForwardKind kind = ForwardKind::kInference) {
    units[u]->BeforeForward(kind);
    TESSERA_ASSIGN_OR_RETURN(const TensorView weight, units[u]->weight(0));
    Stream& compute = *compute_;
    TESSERA_RETURN_IF_ERROR(
        compute.Launch({.name = "check"}, [weight, want]() -> absl::Status {
          for (int64_t i = 0; i < weight.num_elements(); ++i) {
            if (weight.as<float>()[i] == want) continue;
            return absl::InternalError(absl::StrCat(
                "weight is ", weight.as<float>()[i], ", want ", want));
          }
          return absl::OkStatus();
        }));
    units[u]->AfterForward();
    return context->status();
  }

  Stream* compute_ = nullptr;
};

// A program on two ranks with inline streams, then with workers.
absl::Status OnTwoRanks(
    absl::FunctionRef<absl::Status(LocalRank&, Model&)> program) {
  absl::Status status;
  for (CpuStreams streams : {CpuStreams::kInline, CpuStreams::kWorker}) {
    status.Update(RunLocalRanks(2,
                                [&](LocalRank& rank) -> absl::Status {
                                  TESSERA_ASSIGN_OR_RETURN(Model model,
                                                           Model::Create(rank));
                                  TESSERA_RETURN_IF_ERROR(program(rank, model));
                                  return model.context->Synchronize();
                                },
                                {.device = {.streams = streams}}));
  }
  return status;
}

int64_t TakeGathers(LocalRank& rank) {
  int64_t calls = 0;
  for (const auto& [key, counter] : rank.comms.log().counters()) {
    if (key.second == CollectiveKind::kAllGather) calls += counter.calls;
  }
  rank.comms.log().Clear();
  return calls;
}

// The other rank is ahead, and waits for what this one has.
void BeLate(const LocalRank& rank) {
  if (rank.rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST(PrefetchTest, AUnitGathersTheOneThatFollowedItInTheLastPass) {
  EXPECT_OK(OnTwoRanks([](LocalRank& rank, Model& model) -> absl::Status {
    TakeGathers(rank);
    for (int pass = 0; pass < 3; ++pass) {
      for (int u = 0; u < kUnits; ++u) {
        BeLate(rank);
        TESSERA_RETURN_IF_ERROR(model.Forward(u, static_cast<float>(u)));
        const int wanted = pass == 0 ? 1 : u == 0 ? 2 : u + 1 == kUnits ? 0 : 1;
        EXPECT_EQ(TakeGathers(rank), wanted)
            << "pass " << pass << " unit " << u;
      }
    }
    return absl::OkStatus();
  }));
}

// One more per unit at work, once the first has gathered so many.
TEST(PrefetchTest, GathersAsFarAheadAsIsAskedFor) {
  for (int prefetch : {0, 1, 2, 3, 10}) {
    EXPECT_OK(RunLocalRanks(2, [&](LocalRank& rank) -> absl::Status {
      TESSERA_ASSIGN_OR_RETURN(Model model,
                               Model::Create(rank, {.prefetch = prefetch}));
      TakeGathers(rank);
      int gathered = 0;
      for (int pass = 0; pass < 3; ++pass) {
        gathered = 0;
        for (int u = 0; u < kUnits; ++u) {
          BeLate(rank);
          TESSERA_RETURN_IF_ERROR(model.Forward(u, static_cast<float>(u)));
          gathered += static_cast<int>(TakeGathers(rank));
          EXPECT_EQ(gathered,
                    pass == 0 ? u + 1 : std::min(kUnits, u + 1 + prefetch));
        }
      }
      return model.context->Synchronize();
    }));
  }
}

// In the given order, from the first pass on; others follow the last pass.
TEST(PrefetchTest, GathersTheUnitsThatAreGiven) {
  EXPECT_OK(RunLocalRanks(2, [](LocalRank& rank) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(
        Model model, Model::Create(rank, {.prefetch = 2}, [](Model& model) {
          absl::Status status = model.units[0]->SetForwardPrefetch(
              {model.units[3], model.units[1], model.units[2]});
          status.Update(model.units[3]->SetForwardPrefetch({}));
          return status;
        }));
    TakeGathers(rank);
    TESSERA_RETURN_IF_ERROR(model.Forward(0, 0));
    EXPECT_EQ(TakeGathers(rank), 3);  // for two more there is room
    TESSERA_RETURN_IF_ERROR(model.Forward(3, 3));
    TESSERA_RETURN_IF_ERROR(model.Forward(1, 1));
    EXPECT_EQ(TakeGathers(rank), 0);
    TESSERA_RETURN_IF_ERROR(model.Forward(2, 2));
    EXPECT_EQ(TakeGathers(rank), 1);
    TESSERA_RETURN_IF_ERROR(model.Forward(4, 4));
    TESSERA_RETURN_IF_ERROR(model.Forward(3, 3));
    TakeGathers(rank);
    TESSERA_RETURN_IF_ERROR(model.Forward(1, 1));  // gathers 2 and 4, as before
    EXPECT_EQ(TakeGathers(rank), 3);
    return model.context->Synchronize();
  }));
}

// Backwards have an order of their own.
TEST(PrefetchTest, GathersForBackwardWhatIsGiven) {
  EXPECT_OK(RunLocalRanks(2, [](LocalRank& rank) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(
        Model model, Model::Create(rank, {.prefetch = 1}, [](Model& model) {
          return model.units[1]->SetBackwardPrefetch({model.units[0]});
        }));
    for (int u : {0, 1}) {
      TESSERA_RETURN_IF_ERROR(
          model.Forward(u, static_cast<float>(u), ForwardKind::kTraining));
    }
    TakeGathers(rank);
    model.units[1]->BeforeBackward();
    EXPECT_EQ(TakeGathers(rank), 2);
    model.units[1]->AfterBackward();
    model.units[0]->BeforeBackward();
    model.units[0]->AfterBackward();
    EXPECT_EQ(TakeGathers(rank), 0);
    return model.context->Synchronize();
  }));
}

TEST(PrefetchTest, ListsNameWhatIsWrongWithThem) {
  EXPECT_OK(RunLocalRanks(2, [](LocalRank& rank) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(Model other, Model::Create(rank));
    TESSERA_ASSIGN_OR_RETURN(
        Model model, Model::Create(rank, {}, [&](Model& model) {
          Unit& unit = *model.units[0];
          const auto is = [](absl::string_view words) {
            return StatusIs(absl::StatusCode::kInvalidArgument,
                            HasSubstr(std::string(words)));
          };
          EXPECT_THAT(unit.SetForwardPrefetch({nullptr}),
                      is("unit 'unit0' prefetch list: found a unit that is "
                         "null or of another context"));
          EXPECT_THAT(unit.SetForwardPrefetch({other.units[1]}),
                      is("of another context"));
          EXPECT_THAT(unit.SetBackwardPrefetch({model.units[1], &unit}),
                      is("the unit itself"));
          return absl::OkStatus();
        }));
    EXPECT_THAT(model.units[0]->SetForwardPrefetch({model.units[1]}),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("after Context::Prepare")));
    return absl::OkStatus();
  }));
}

// What was gathered for a unit that does not come makes room: for what is
// gathered ahead next, and for two units that are open at once.
TEST(PrefetchTest, WhatWasGatheredInVainMakesRoom) {
  EXPECT_OK(OnTwoRanks([](LocalRank& rank, Model& model) -> absl::Status {
    for (int u = 0; u < kUnits; ++u) {
      TESSERA_RETURN_IF_ERROR(model.Forward(u, static_cast<float>(u)));
    }
    TESSERA_RETURN_IF_ERROR(model.Forward(0, 0));  // gathers unit 1
    TakeGathers(rank);
    TESSERA_RETURN_IF_ERROR(model.Forward(2, 2));  // and 3 in its place
    EXPECT_EQ(TakeGathers(rank), 2);
    TESSERA_RETURN_IF_ERROR(model.Forward(3, 3));
    EXPECT_EQ(TakeGathers(rank), 1);

    TESSERA_RETURN_IF_ERROR(model.Forward(0, 0));  // gathers unit 2
    model.units[4]->BeforeForward(ForwardKind::kInference);
    model.units[1]->BeforeForward(ForwardKind::kInference);
    TESSERA_RETURN_IF_ERROR(model.context->status());
    model.units[1]->AfterForward();
    model.units[4]->AfterForward();
    return absl::OkStatus();
  }));
}

// Every pass in another order: slots go to those that come, and each sees its
// own weights.
TEST(PrefetchTest, EveryUnitSeesItsOwnWeightsInAnyOrder) {
  EXPECT_OK(OnTwoRanks([](LocalRank&, Model& model) -> absl::Status {
    std::vector<int> order = {0, 1, 2, 3, 4};
    do {
      // All of them, then some.
      for (int u : order) {
        TESSERA_RETURN_IF_ERROR(model.Forward(u, static_cast<float>(u)));
      }
      for (int u : {order[3], order[1]}) {
        TESSERA_RETURN_IF_ERROR(model.Forward(u, static_cast<float>(u)));
      }
    } while (std::next_permutation(order.begin(), order.end()));
    return absl::OkStatus();
  }));
}

// Unit 1 is gathered because unit 0 begins, then weights change.
TEST(PrefetchTest, WhatWasGatheredAheadIsNotUsedAfterAChange) {
  EXPECT_OK(OnTwoRanks([](LocalRank& rank, Model& model) -> absl::Status {
    for (int u : {0, 1}) {
      TESSERA_RETURN_IF_ERROR(model.Forward(u, static_cast<float>(u)));
    }
    BeLate(rank);
    TESSERA_RETURN_IF_ERROR(model.Forward(0, 0));
    TESSERA_RETURN_IF_ERROR(model.Load(10));
    TESSERA_RETURN_IF_ERROR(model.Forward(1, 11));

    // By a step, too: unit 1 trains, then unit 0 begins before it.
    TESSERA_RETURN_IF_ERROR(model.Forward(1, 11, ForwardKind::kTraining));
    model.units[1]->BeforeBackward();
    TESSERA_ASSIGN_OR_RETURN(
        const TensorView gradient,
        model.units[1]->grad(0, GradientWrite::kOverwrite));
    TESSERA_RETURN_IF_ERROR(
        rank.device.kernels().Fill(rank.stream, gradient, 1.0));
    model.units[1]->AfterBackward();
    TESSERA_RETURN_IF_ERROR(model.Forward(0, 10));
    TESSERA_RETURN_IF_ERROR(SgdOptimizer(*model.context, 1.0).Step());
    return model.Forward(1, 10);
  }));
}

}  // namespace
}  // namespace tessera

#include "tessera/fsdp/context.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/comm/local/run_ranks.h"
#include "tests/fsdp/any_ranks.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::OnAnyRanks;
using ::tessera::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

FsdpOptions OptionsFor(const char* mesh, const char* strategy) {
  FsdpOptions options;
  options.mesh = *DeviceMesh::Parse(mesh);
  options.placements = *PlacementsFor(strategy, options.mesh.num_axes());
  options.logger = Logger(nullptr, absl::LogSeverity::kInfo);
  return options;
}

// Runs `program` on one rank and returns what it returns.
absl::Status OnOneRank(absl::FunctionRef<absl::Status(LocalRank&)> program) {
  return RunLocalRanks(1, program);
}

absl::Status CreateStatus(const FsdpOptions& options) {
  return OnOneRank([&](LocalRank& rank) {
    return Context::Create(options, rank.comms.world(), rank.stream).status();
  });
}

absl::Status BuildStatus(const FsdpOptions& options,
                         absl::FunctionRef<absl::Status(Context&)> build) {
  return OnOneRank([&](LocalRank& rank) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(
        auto context,
        Context::Create(options, rank.comms.world(), rank.stream));
    return build(*context);
  });
}

TEST(ContextTest, RejectsAxesThatDoNotFit) {
  FsdpOptions options = OptionsFor("dp=1,tp=1", "fsdp");
  options.data_parallel_axes = {"dp", "pp"};
  EXPECT_THAT(CreateStatus(options), StatusIs(kInvalid, HasSubstr("pp")));
  options.data_parallel_axes = {"dp", "dp"};
  EXPECT_THAT(CreateStatus(options), StatusIs(kInvalid, HasSubstr("dp")));
  options.data_parallel_axes = {"dp", "tp"};
  options.cut_order = {"dp"};
  EXPECT_THAT(CreateStatus(options),
              StatusIs(kInvalid, HasSubstr("permutation")));
}

TEST(ContextTest, RejectsOverlapsThatCannotBe) {
  FsdpOptions options = OptionsFor("dp=1", "fsdp");
  options.overlap.prefetch = -1;
  EXPECT_THAT(CreateStatus(options),
              StatusIs(kInvalid, HasSubstr("overlap.prefetch is -1")));
  options.overlap = {.gradients_in_flight = 0};
  EXPECT_THAT(
      CreateStatus(options),
      StatusIs(kInvalid, HasSubstr("overlap.gradients_in_flight is 0")));
}

TEST(ContextTest, RejectsRanksOutsideTheMesh) {
  FsdpOptions options = OptionsFor("dp=2@4", "fsdp");
  EXPECT_THAT(
      CreateStatus(options),
      StatusIs(kInvalid, AllOf(HasSubstr("rank 0"), HasSubstr("dp=2"))));
}

TEST(ContextTest, UnitsNameWhatIsWrongWithThem) {
  const TensorMeta meta = *TensorMeta::Create(DType::kF32, {4});
  const FsdpOptions options = OptionsFor("outer=1,inner=1", "fsdp");

  // Flat on the outer axis alone: the inner one cuts first.
  EXPECT_THAT(
      BuildStatus(options,
                  [&](Context& context) {
                    UnitPlacements placements = *PlacementsFor("ddp", 2);
                    placements.parameter[0] = BufferPlacement::Flat();
                    UnitBuilder builder =
                        context.NewUnit("block", {.placements = placements});
                    builder.Add("w", meta);
                    return builder.Build().status();
                  }),
      StatusIs(kInvalid, AllOf(HasSubstr("'block'"), HasSubstr("inner"))));
  EXPECT_THAT(
      BuildStatus(options,
                  [&](Context& context) {
                    UnitPlacements placements = *PlacementsFor("fsdp", 2);
                    placements.gradient[1] = BufferPlacement::Replicate();
                    UnitBuilder builder =
                        context.NewUnit("block", {.placements = placements});
                    builder.Add("w", meta);
                    return builder.Build().status();
                  }),
      StatusIs(kInvalid, AllOf(HasSubstr("'block'"), HasSubstr("gradient"),
                               HasSubstr("axis 'inner'"))));
  EXPECT_THAT(
      BuildStatus(options,
                  [&](Context& context) {
                    UnitBuilder builder = context.NewUnit("block");
                    builder.Add("w", meta);
                    builder.Add("w", meta);
                    return builder.Build().status();
                  }),
      StatusIs(kInvalid, AllOf(HasSubstr("'block'"), HasSubstr("'w'"))));
  EXPECT_THAT(
      BuildStatus(
          options,
          [&](Context& context) {
            UnitBuilder builder = context.NewUnit("block");
            builder.Add("w", meta);
            builder.Add("none", *TensorMeta::Create(DType::kF32, {0, 4}));
            return builder.Build().status();
          }),
      StatusIs(kInvalid,
               AllOf(HasSubstr("'block'"), HasSubstr("'none' [0,4]"))));
  EXPECT_THAT(BuildStatus(options,
                          [&](Context& context) {
                            EXPECT_OK(context.NewUnit("block").Build());
                            return context.NewUnit("block").Build().status();
                          }),
              StatusIs(kInvalid, HasSubstr("'block'")));
  EXPECT_THAT(BuildStatus(options,
                          [&](Context& context) {
                            UnitBuilder builder = context.NewUnit("block");
                            builder.Add("ids",
                                        *TensorMeta::Create(DType::kI32, {4}));
                            return builder.Build().status();
                          }),
              StatusIs(kInvalid, AllOf(HasSubstr("'ids'"), HasSubstr("i32"))));
  EXPECT_THAT(
      BuildStatus(options,
                  [&](Context& context) {
                    UnitBuilder builder = context.NewUnit(
                        "block",
                        {.precision = Precision{.accumulation = DType::kBF16}});
                    builder.Add("w", meta);
                    return builder.Build().status();
                  }),
      StatusIs(kInvalid, AllOf(HasSubstr("'block'"), HasSubstr("bf16"))));
  EXPECT_THAT(BuildStatus(options,
                          [&](Context& context) {
                            UnitBuilder builder =
                                context.NewUnit("block", {.grad_divisor = 0.0});
                            builder.Add("w", meta);
                            return builder.Build().status();
                          }),
              StatusIs(kInvalid, HasSubstr("grad_divisor is 0")));
  // What gradients are scaled by is an f32.
  for (double divisor : {1e-40, 1e46, 1.7e308}) {
    EXPECT_THAT(BuildStatus(options,
                            [&](Context& context) {
                              UnitBuilder builder = context.NewUnit(
                                  "block", {.grad_divisor = divisor});
                              builder.Add("w", meta);
                              return builder.Build().status();
                            }),
                StatusIs(kInvalid,
                         HasSubstr(absl::StrCat("grad_divisor is ", divisor))));
  }
}

TEST(ContextTest, UnitsNameAxesThatDoNotFit) {
  const struct {
    void (*change)(UnitOptions&);
    const char* message;
  } cases[] = {
      {[](UnitOptions& unit) { unit.data_parallel_axes = {"tp"}; }, "tp"},
      {[](UnitOptions& unit) {
         unit.data_parallel_axes = {"inner", "inner"};
       },
       "inner"},
      // The context's placements are for two axes.
      {[](UnitOptions& unit) { unit.data_parallel_axes = {"inner"}; },
       "have 2 entries, want one for each of 1 data-parallel axes [inner]"},
      {[](UnitOptions& unit) { unit.cut_order = {"inner"}; },
       "cut order inner is not a permutation"},
      {[](UnitOptions& unit) {
         unit.placements = PlacementsFor("hsdp", 2).value();
         unit.cut_order = {"outer", "inner"};
       },
       "parameter placements [R, Flat] have Flat on axis 'inner', want Flat "
       "only where 'outer' is"},
      // The default cut order goes with the axes.
      {[](UnitOptions& unit) {
         unit.placements = PlacementsFor("hsdp", 2).value();
         unit.placements->gradient = {BufferPlacement::Flat(),
                                      BufferPlacement::Partial()};
         unit.data_parallel_axes = {"inner", "outer"};
       },
       "gradient placements [Flat, P(sum)] have Flat on axis 'inner'"},
  };
  for (const auto& c : cases) {
    UnitOptions unit;
    c.change(unit);
    EXPECT_THAT(
        BuildStatus(OptionsFor("outer=1,inner=1", "fsdp"),
                    [&](Context& context) {
                      return context.NewUnit("block", unit).Build().status();
                    }),
        StatusIs(kInvalid, AllOf(HasSubstr("'block'"), HasSubstr(c.message))));
  }
}

TEST(ContextTest, RegistrationEndsWithPrepare) {
  EXPECT_THAT(
      BuildStatus(OptionsFor("dp=1", "fsdp"),
                  [](Context& context) -> absl::Status {
                    TESSERA_RETURN_IF_ERROR(context.Prepare());
                    return context.NewUnit("late").Build().status();
                  }),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("'late'")));
  EXPECT_THAT(BuildStatus(OptionsFor("dp=1", "fsdp"),
                          [](Context& context) -> absl::Status {
                            TESSERA_RETURN_IF_ERROR(context.Prepare());
                            return context.Prepare();
                          }),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

// Ranks that register parameters in another order all get an error that names
// the first difference.
TEST(ContextTest, RanksThatRegisterDifferentlyAllFail) {
  std::vector<absl::Status> statuses(4);
  EXPECT_OK(OnAnyRanks(4, [&](auto& rank) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(
        auto context,
        Context::Create(OptionsFor("dp_outer=2,dp_inner=2", "hsdp"),
                        rank.comms.world(), rank.stream));
    UnitBuilder builder = context->NewUnit("block");
    builder.Add("first", *TensorMeta::Create(DType::kF32, {8}));
    const bool swapped = rank.rank == 2;
    builder.Add(swapped ? "c" : "b", *TensorMeta::Create(DType::kF32, {8}));
    builder.Add(swapped ? "b" : "c", *TensorMeta::Create(DType::kF32, {8}));
    TESSERA_RETURN_IF_ERROR(builder.Build().status());
    statuses[rank.rank] = context->Prepare();
    return absl::OkStatus();
  }));
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(status,
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr("entry 3"), HasSubstr("'block.b'"),
                               HasSubstr("on rank 0"), HasSubstr("'block.c'"),
                               HasSubstr("on rank 2"))));
  }
}

TEST(ContextTest, RanksThatRegisterFewerUnitsAllFail) {
  std::vector<absl::Status> statuses(2);
  EXPECT_OK(OnAnyRanks(2, [&](auto& rank) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(auto context,
                             Context::Create(OptionsFor("dp=2", "fsdp"),
                                             rank.comms.world(), rank.stream));
    TESSERA_RETURN_IF_ERROR(context->NewUnit("one").Build().status());
    if (rank.rank == 0) {
      TESSERA_RETURN_IF_ERROR(context->NewUnit("two").Build().status());
    }
    statuses[rank.rank] = context->Prepare();
    return absl::OkStatus();
  }));
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                                 AllOf(HasSubstr("'two'"),
                                       HasSubstr("nothing on rank 1"))));
  }
}

// Options that would train differently are compared too, not only parameters.
TEST(ContextTest, RanksWithOtherOptionsAllFail) {
  const struct {
    const char* difference;
    void (*change)(FsdpOptions&, UnitOptions&);
  } cases[] = {
      {"reduction sum",
       [](FsdpOptions& options, UnitOptions&) {
         options.reduction = GradientReduction::kSum;
       }},
      {"missing gradients error",
       [](FsdpOptions& options, UnitOptions&) {
         options.missing_gradients = MissingGradients::kError;
       }},
      {"prefetch 2", [](FsdpOptions& options,
                        UnitOptions&) { options.overlap.prefetch = 2; }},
      {"gradients in flight 3",
       [](FsdpOptions& options, UnitOptions&) {
         options.overlap.gradients_in_flight = 3;
       }},
      {"streams shared",
       [](FsdpOptions& options, UnitOptions&) {
         options.overlap.streams = CommunicationStreams::kShared;
       }},
      {"axes inner,outer",
       [](FsdpOptions&, UnitOptions& unit) {
         unit.data_parallel_axes = {"inner", "outer"};
       }},
      {"cut outer,inner",
       [](FsdpOptions& options, UnitOptions&) {
         options.cut_order = {"outer", "inner"};
       }},
      {"divisor 3",
       [](FsdpOptions&, UnitOptions& unit) { unit.grad_divisor = 3.0; }},
      {"divisor 1048577",
       [](FsdpOptions&, UnitOptions& unit) { unit.grad_divisor = 1048577; }},
      {"release after backward",
       [](FsdpOptions&, UnitOptions& unit) {
         unit.release = ReleaseWeights::kAfterBackward;
       }},
      {"wire=bf16",
       [](FsdpOptions& options, UnitOptions&) {
         options.precision.wire = DType::kBF16;
       }},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.difference);
    std::vector<absl::Status> statuses(2);
    EXPECT_OK(RunLocalRanks(2, [&](LocalRank& rank) -> absl::Status {
      FsdpOptions options = OptionsFor("outer=2,inner=1", "ddp");
      UnitOptions unit_options;
      if (rank.rank == 1) c.change(options, unit_options);
      TESSERA_ASSIGN_OR_RETURN(
          auto context,
          Context::Create(options, rank.comms.world(), rank.stream));
      UnitBuilder builder = context->NewUnit("block", unit_options);
      builder.Add("w", *TensorMeta::Create(DType::kF32, {4}));
      TESSERA_RETURN_IF_ERROR(builder.Build().status());
      statuses[rank.rank] = context->Prepare();
      // It is remembered.
      EXPECT_EQ(context->status(), statuses[rank.rank]);
      return absl::OkStatus();
    }));
    for (const absl::Status& status : statuses) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                                   AllOf(HasSubstr(c.difference),
                                         HasSubstr("on rank 1"))));
    }
  }
}

TEST(ContextTest, AFailedPrepareIsStickyAndNotTriedAgain) {
  EXPECT_OK(RunLocalRanks(
      1,
      [](LocalRank& rank) -> absl::Status {
        TESSERA_ASSIGN_OR_RETURN(
            auto context, Context::Create(OptionsFor("dp=1", "fsdp"),
                                          rank.comms.world(), rank.stream));
        UnitBuilder builder = context->NewUnit("block");
        builder.Add("w", *TensorMeta::Create(DType::kF32, {1024}));
        TESSERA_ASSIGN_OR_RETURN(Unit * unit, builder.Build());
        const absl::Status first = context->Prepare();
        EXPECT_THAT(first, StatusIs(absl::StatusCode::kResourceExhausted));
        EXPECT_EQ(context->status(), first);
        EXPECT_EQ(context->Prepare(), first);
        unit->BeforeForward();
        EXPECT_EQ(unit->weight(0).status(), first);
        return absl::OkStatus();
      },
      {.device = {.streams = CpuStreams::kWorker,
                  .memory_limit_bytes = 6000}}));
}

TEST(ContextTest, AFailedBuildIsNotTriedAgain) {
  EXPECT_OK(BuildStatus(
      OptionsFor("dp=1", "fsdp"), [](Context& context) -> absl::Status {
        UnitBuilder builder = context.NewUnit("block");
        builder.Add("ids", *TensorMeta::Create(DType::kI32, {4}));
        const absl::Status first = builder.Build().status();
        EXPECT_THAT(first, StatusIs(kInvalid));
        EXPECT_EQ(builder.Build().status(), first);
        EXPECT_TRUE(context.units().empty());
        return absl::OkStatus();
      }));
}

TEST(ContextTest, RejectsParentsOfAnotherContext) {
  EXPECT_OK(OnOneRank([](LocalRank& rank) -> absl::Status {
    const FsdpOptions options = OptionsFor("dp=1", "fsdp");
    TESSERA_ASSIGN_OR_RETURN(
        auto one, Context::Create(options, rank.comms.world(), rank.stream));
    TESSERA_ASSIGN_OR_RETURN(
        auto other, Context::Create(options, rank.comms.world(), rank.stream));
    TESSERA_ASSIGN_OR_RETURN(Unit * parent, one->NewUnit("root").Build());
    UnitOptions child;
    child.parent = parent;
    EXPECT_THAT(other->NewUnit("block", child).Build(),
                StatusIs(kInvalid, HasSubstr("'root' is of another context")));
    return absl::OkStatus();
  }));
}

// Communicators of the caller's serve the context.
TEST(ContextTest, UsesLentCommunicators) {
  EXPECT_OK(RunLocalRanks(4, [](LocalRank& rank) -> absl::Status {
    FsdpOptions options = OptionsFor("dp_outer=2,dp_inner=2", "hsdp");
    const std::vector<int> members = {rank.rank / 2 * 2, rank.rank / 2 * 2 + 1};
    TESSERA_ASSIGN_OR_RETURN(
        auto inner, rank.comms.world().Subgroup(members, "mine", rank.stream));
    options.communicators = {{"dp_inner", inner.get()}};
    {
      TESSERA_ASSIGN_OR_RETURN(
          auto context,
          Context::Create(options, rank.comms.world(), rank.stream));
      UnitBuilder builder = context->NewUnit("block");
      builder.Add("w", *TensorMeta::Create(DType::kF32, {100}));
      TESSERA_ASSIGN_OR_RETURN(Unit * unit, builder.Build());
      TESSERA_RETURN_IF_ERROR(context->Prepare());
      unit->BeforeForward();
      unit->AfterForward();
      TESSERA_RETURN_IF_ERROR(context->Synchronize());
    }
    // One for another axis, or for none, is refused.
    options.communicators = {{"dp_outer", inner.get()}};
    EXPECT_THAT(
        Context::Create(options, rank.comms.world(), rank.stream).status(),
        StatusIs(kInvalid, HasSubstr("dp_outer")));
    options.communicators = {{"tp", inner.get()}};
    EXPECT_THAT(
        Context::Create(options, rank.comms.world(), rank.stream).status(),
        StatusIs(kInvalid, HasSubstr("tp")));
    options.communicators = {{"dp_inner", nullptr}};
    EXPECT_THAT(
        Context::Create(options, rank.comms.world(), rank.stream).status(),
        StatusIs(kInvalid, HasSubstr("for axis 'dp_inner' is null")));
    return absl::OkStatus();
  }));
}

TEST(ContextTest, TableShowsPlacementsLayoutAndPadding) {
  std::string table;
  EXPECT_OK(BuildStatus(
      OptionsFor("dp_outer=1,dp_inner=1", "hsdp"), [&](Context& context) {
        UnitBuilder builder = context.NewUnit("block0");
        builder.Add("weight", *TensorMeta::Create(DType::kF32, {5, 3}));
        EXPECT_OK(builder.Build());
        table = context.ToTable();
        return absl::OkStatus();
      }));
  EXPECT_THAT(table,
              AllOf(HasSubstr("block0"), HasSubstr("[R, Flat]"),
                    HasSubstr("along dp_outer,dp_inner"), HasSubstr("weight"),
                    HasSubstr("[5,3]"), HasSubstr("padding")));
}

}  // namespace
}  // namespace tessera

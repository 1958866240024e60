// The order of hooks, what each counts and gathers, and the errors of wrong
// use.

#include "tessera/fsdp/unit.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/comm/local/run_ranks.h"
#include "tessera/fsdp/context.h"
#include "tessera/fsdp/optimizer.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::IsOk;
using ::tessera::testing::StatusIs;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr auto kOutOfOrder = absl::StatusCode::kFailedPrecondition;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// One rank with a root around a block, each with one weight of 6 elements; the
// block has a frozen parameter too.
class UnitTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Make("dp=1", "fsdp", {});
    root_ = *AddUnit("root", {.release = ReleaseWeights::kAfterBackward});
    block_ = *AddUnit("block", {.parent = root_}, /*frozen=*/true);
    ASSERT_OK(context_->Prepare());
  }

  // A context without units.
  void Make(const char* mesh, const char* strategy,
            const std::function<void(FsdpOptions&)>& change) {
    block_ = root_ = nullptr;
    context_.reset();
    comms_.reset();
    world_ = std::make_unique<LocalWorld>(1);
    stream_ = *device_.NewStream("compute");
    communicator_ = *world_->Join(0, *stream_);
    comms_ = std::make_unique<CommSet>(*communicator_);
    FsdpOptions options;
    options.mesh = *DeviceMesh::Parse(mesh);
    options.placements = *PlacementsFor(strategy, options.mesh.num_axes());
    options.logger = Logger(
        [this](absl::LogSeverity, absl::string_view line) {
          log_ += std::string(line) + "\n";
        },
        absl::LogSeverity::kInfo);
    if (change) change(options);
    context_ = *Context::Create(options, *communicator_, *stream_);
  }

  absl::StatusOr<Unit*> AddUnit(const char* name, UnitOptions options,
                                bool frozen = false) {
    UnitBuilder builder = context_->NewUnit(name, std::move(options));
    builder.Add("weight", Meta());
    if (frozen) builder.Add("frozen", Meta(), {.requires_grad = false});
    return builder.Build();
  }

  static TensorMeta Meta() { return *TensorMeta::Create(DType::kF32, {2, 3}); }

  void Forward() {
    root_->BeforeForward();
    block_->BeforeForward();
    block_->AfterForward();
    root_->AfterForward();
  }

  // Adds `value` to every gradient.
  void Backward(float value, std::optional<bool> is_last = std::nullopt) {
    root_->BeforeBackward();
    block_->BeforeBackward();
    Add(*block_, value);
    block_->AfterBackward(is_last);
    Add(*root_, value);
    root_->AfterBackward(is_last);
  }

  static void Add(Unit& unit, float value) {
    absl::StatusOr<TensorView> gradient =
        unit.grad(0, GradientWrite::kAccumulate);
    ASSERT_OK(gradient);
    for (int i = 0; i < 6; ++i) gradient->as<float>()[i] += value;
  }

  std::vector<float> MainGradient(Unit& unit) {
    absl::StatusOr<ShardedTensor> gradient = unit.main_grad(0);
    EXPECT_OK(gradient);
    const float* data = gradient->local().as<float>();
    return {data, data + gradient->local().num_elements()};
  }

  CpuDevice device_;
  std::string log_;
  std::unique_ptr<LocalWorld> world_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<CommSet> comms_;
  std::unique_ptr<Context> context_;
  Unit* root_ = nullptr;
  Unit* block_ = nullptr;
};

TEST_F(UnitTest, RunsForwardAndBackward) {
  Forward();
  Backward(2.0f);
  ASSERT_OK(context_->status());
  EXPECT_THAT(MainGradient(*block_), Each(2.0f));
  EXPECT_EQ(root_->depth(), 1);
  EXPECT_EQ(block_->depth(), 2);
}

TEST_F(UnitTest, BackwardsFinalizeOnlyOnceNoForwardIsOutstanding) {
  Forward();
  Forward();
  Backward(1.0f, /*is_last=*/true);
  EXPECT_THAT(SgdOptimizer(*context_, 1.0).Step(),
              StatusIs(kOutOfOrder, HasSubstr("1 forwards")));
  Backward(1.0f, /*is_last=*/false);  // and now it is final
  EXPECT_OK(SgdOptimizer(*context_, 1.0).Step());
  EXPECT_THAT(MainGradient(*block_), Each(2.0f));
}

TEST_F(UnitTest, RecomputationIsNotCountedAndGathersNothing) {
  Forward();
  root_->BeforeBackward();
  block_->BeforeBackward();
  absl::StatusOr<TensorView> before = block_->weight(0);
  ASSERT_OK(before);
  block_->BeforeForward();
  absl::StatusOr<TensorView> inside = block_->weight(0);
  ASSERT_OK(inside);
  EXPECT_EQ(before->data(), inside->data());
  block_->AfterForward();
  block_->AfterBackward();
  root_->AfterBackward();
  EXPECT_OK(context_->status());
  EXPECT_OK(SgdOptimizer(*context_, 1.0).Step());
}

// Forwards for inference have no backward, hold up no step and may come between
// a forward and its backward.
TEST_F(UnitTest, InferenceForwardsAreNotCounted) {
  const auto infer = [this] {
    root_->BeforeForward(ForwardKind::kInference);
    block_->BeforeForward(ForwardKind::kInference);
    EXPECT_OK(block_->weight(0));
    block_->AfterForward();
    root_->AfterForward();
  };
  infer();
  Forward();
  infer();
  Backward(1.0f);
  infer();
  EXPECT_OK(SgdOptimizer(*context_, 1.0).Step());
  EXPECT_THAT(MainGradient(*block_), Each(1.0f));
  infer();
  root_->BeforeBackward();
  EXPECT_THAT(context_->status(),
              StatusIs(kOutOfOrder, HasSubstr("no forward is outstanding")));
}

// A tied weight is a parameter of the unit that encloses all its uses, here two
// units with parameters of their own. Between the microbatches the loop may
// run forwards ahead of backwards.
TEST_F(UnitTest, TiedWeightsLiveInTheUnitAroundTheirUses) {
  Make("dp=1", "fsdp", {});
  ASSERT_OK_AND_ASSIGN(Unit * both, AddUnit("both", {}));
  ASSERT_OK_AND_ASSIGN(Unit * encoder, AddUnit("encoder", {.parent = both}));
  ASSERT_OK_AND_ASSIGN(Unit * decoder, AddUnit("decoder", {.parent = both}));
  ASSERT_OK(context_->Prepare());
  for (int m = 0; m < 2; ++m) {
    both->BeforeForward();
    for (Unit* user : {encoder, decoder}) {
      user->BeforeForward();
      EXPECT_OK(both->weight(0));
      user->AfterForward();
    }
    both->AfterForward();
  }
  for (int m = 0; m < 2; ++m) {
    both->BeforeBackward();
    for (Unit* user : {decoder, encoder}) {
      user->BeforeBackward();
      Add(*both, 1.0f);
      Add(*user, 10.0f);
      user->AfterBackward(m == 1);
    }
    both->AfterBackward(m == 1);
  }
  ASSERT_OK(context_->status());
  EXPECT_THAT(MainGradient(*both), Each(4.0f));
  EXPECT_THAT(MainGradient(*encoder), Each(20.0f));
}

// Several roots, one inside the other's time.
TEST_F(UnitTest, SeveralRootsShareAContext) {
  Make("dp=1", "fsdp", {});
  ASSERT_OK_AND_ASSIGN(Unit * first, AddUnit("first", {}));
  ASSERT_OK_AND_ASSIGN(Unit * second, AddUnit("second", {}));
  ASSERT_OK(context_->Prepare());
  const auto forward = [](Unit* unit) {
    unit->BeforeForward();
    unit->AfterForward();
  };
  const auto backward = [](Unit* unit, float value, bool is_last) {
    unit->BeforeBackward();
    Add(*unit, value);
    unit->AfterBackward(is_last);
  };
  // As two chunks of a pipeline stage would, out of step.
  forward(first);
  forward(second);
  forward(first);
  backward(second, 1.0f, false);
  forward(second);
  backward(first, 1.0f, false);
  backward(second, 2.0f, true);
  backward(first, 3.0f, true);
  ASSERT_OK(SgdOptimizer(*context_, 1.0).Step());
  EXPECT_THAT(MainGradient(*first), Each(4.0f));
  EXPECT_THAT(MainGradient(*second), Each(3.0f));
}

TEST_F(UnitTest, MissingGradientsAreErrorsWhereThatIsAskedFor) {
  Make("dp=1", "fsdp", [](FsdpOptions& options) {
    options.missing_gradients = MissingGradients::kError;
  });
  ASSERT_OK_AND_ASSIGN(Unit * unit, AddUnit("unit", {}, /*frozen=*/true));
  ASSERT_OK(context_->Prepare());
  for (bool asked : {true, false}) {
    unit->BeforeForward();
    unit->AfterForward();
    unit->BeforeBackward();
    if (asked) Add(*unit, 1.0f);
    unit->AfterBackward();
    // The frozen one has none to ask for.
    EXPECT_EQ(context_->status().ok(), asked);
  }
  EXPECT_THAT(
      context_->status(),
      StatusIs(kOutOfOrder, AllOf(HasSubstr("'unit' AfterBackward"),
                                  HasSubstr("'weight' has no gradient"))));
}

TEST_F(UnitTest, LoadedWeightsAreSeenByTheNextForward) {
  std::vector<float> values = {1, 2, 3, 4, 5, 6};
  for (int round = 0; round < 2; ++round) {
    ASSERT_OK(block_->LoadWeight(0, TensorView(values.data(), Meta())));
    root_->BeforeForward();
    block_->BeforeForward();
    ASSERT_OK_AND_ASSIGN(TensorView weight, block_->weight(0));
    EXPECT_EQ(weight.shape(), Meta().shape());
    EXPECT_EQ(std::vector<float>(weight.as<float>(), weight.as<float>() + 6),
              values);
    block_->AfterForward();
    root_->AfterForward();
    Backward(0.0f);
    for (float& value : values) value *= -2;
  }
}

TEST_F(UnitTest, GradientsThatNobodyAskedForAreZero) {
  Forward();
  Backward(7.0f);
  ASSERT_OK(context_->ZeroGradients(ZeroGrad::kFill));
  Forward();
  root_->BeforeBackward();
  block_->BeforeBackward();
  block_->AfterBackward();
  root_->AfterBackward();
  ASSERT_OK(context_->status());
  EXPECT_THAT(MainGradient(*block_), Each(0.0f));
}

TEST_F(UnitTest, ZeroingByReleaseGivesTheBytesBackAtOnce) {
  Forward();
  Backward(1.0f);
  EXPECT_GT(device_.memory().by_tag.at(kMainGradTag).current_bytes, 0);
  ASSERT_OK(context_->ZeroGradients(ZeroGrad::kRelease));
  EXPECT_EQ(device_.memory().by_tag.at(kMainGradTag).current_bytes, 0);
  EXPECT_THAT(
      block_->main_grad(0),
      StatusIs(kOutOfOrder, AllOf(HasSubstr("'block'"), HasSubstr("'weight'"),
                                  HasSubstr("released"))));
  Forward();
  Backward(3.0f);
  EXPECT_THAT(MainGradient(*block_), Each(3.0f));
}

TEST_F(UnitTest, FrozenParametersHaveWeightsButNoGradients) {
  Forward();
  root_->BeforeBackward();
  block_->BeforeBackward();
  EXPECT_OK(block_->weight(1));
  EXPECT_THAT(block_->grad(1, GradientWrite::kOverwrite),
              StatusIs(kOutOfOrder, HasSubstr("'frozen' is frozen")));
  EXPECT_THAT(block_->main_grad(1), StatusIs(kOutOfOrder));
  EXPECT_OK(block_->main_weight(1));
}

TEST_F(UnitTest, UnitsMayOwnNoParameters) {
  Make("dp=1", "fsdp", {});
  ASSERT_OK_AND_ASSIGN(Unit * empty, context_->NewUnit("empty").Build());
  ASSERT_OK_AND_ASSIGN(Unit * child, AddUnit("child", {.parent = empty}));
  ASSERT_OK(context_->Prepare());
  root_ = empty;
  empty->BeforeForward();
  child->BeforeForward();
  child->AfterForward();
  empty->AfterForward();
  empty->BeforeBackward();
  child->BeforeBackward();
  Add(*child, 1.0f);
  child->AfterBackward();
  empty->AfterBackward();
  EXPECT_OK(SgdOptimizer(*context_, 1.0).Step());
}

TEST_F(UnitTest, RejectsAParameterWithoutElements) {
  context_.reset();
  FsdpOptions options;
  options.mesh = *DeviceMesh::Parse("dp=1");
  options.placements = *PlacementsFor("fsdp", 1);
  context_ = *Context::Create(options, *communicator_, *stream_);
  UnitBuilder builder = context_->NewUnit("empty");
  builder.Add("w", Meta());
  builder.Add("none", *TensorMeta::Create(DType::kF32, {0, 4}));
  EXPECT_THAT(builder.Build(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("'empty'"), HasSubstr("'none' [0,4]"))));
}

// Wrong order of hooks: what is done, and what the sticky error says.

struct WrongOrder {
  const char* name;
  void (*act)(Unit& root, Unit& block);
  const char* unit;
  const char* message;
};

class WrongOrderTest : public UnitTest,
                       public ::testing::WithParamInterface<WrongOrder> {};

TEST_P(WrongOrderTest, IsAStickyErrorThatNamesUnitAndPhase) {
  GetParam().act(*root_, *block_);
  const absl::Status error = context_->status();
  EXPECT_THAT(error,
              StatusIs(kOutOfOrder, AllOf(HasSubstr(GetParam().unit),
                                          HasSubstr(GetParam().message))));
  EXPECT_THAT(log_, HasSubstr(GetParam().message));
  // Everything after it is a no-op and gives the same error.
  root_->BeforeForward();
  Microbatch microbatch = context_->OpenMicrobatch();
  EXPECT_EQ(microbatch.Finish(), error);
  EXPECT_EQ(root_->weight(0).status(), error);
  EXPECT_EQ(root_->grad(0, GradientWrite::kOverwrite).status(), error);
  EXPECT_EQ(SgdOptimizer(*context_, 1.0).Step(), error);
  EXPECT_EQ(context_->ZeroGradients(ZeroGrad::kFill), error);
  EXPECT_EQ(context_->Synchronize(), error);
}

INSTANTIATE_TEST_SUITE_P(
    Hooks, WrongOrderTest,
    ::testing::Values(
        WrongOrder{"BackwardBeforeForward",
                   [](Unit& root, Unit&) { root.BeforeBackward(); },
                   "'root' BeforeBackward", "no forward is outstanding"},
        WrongOrder{"AfterForwardAlone",
                   [](Unit& root, Unit&) { root.AfterForward(); },
                   "'root' AfterForward", "no forward is open"},
        WrongOrder{"AfterBackwardAlone",
                   [](Unit& root, Unit&) { root.AfterBackward(); },
                   "'root' AfterBackward", "no backward is open"},
        WrongOrder{"ForwardTwice",
                   [](Unit& root, Unit&) {
                     root.BeforeForward();
                     root.BeforeForward();
                   },
                   "'root' BeforeForward", "open already"},
        WrongOrder{"BackwardTwice",
                   [](Unit& root, Unit&) {
                     root.BeforeForward();
                     root.AfterForward();
                     root.BeforeBackward();
                     root.BeforeBackward();
                   },
                   "'root' BeforeBackward", "open already"},
        WrongOrder{"BackwardInsideForward",
                   [](Unit& root, Unit&) {
                     root.BeforeForward();
                     root.BeforeBackward();
                   },
                   "'root' BeforeBackward", "a forward is open"},
        WrongOrder{"ChildOutsideParent",
                   [](Unit&, Unit& block) { block.BeforeForward(); },
                   "'block' BeforeForward", "'root'"},
        WrongOrder{"ChildBackwardOutsideParentsBackward",
                   [](Unit& root, Unit& block) {
                     root.BeforeForward();
                     block.BeforeForward();
                     block.AfterForward();
                     block.BeforeBackward();
                   },
                   "'block' BeforeBackward", "'root'"},
        WrongOrder{"ParentClosedBeforeChild",
                   [](Unit& root, Unit& block) {
                     root.BeforeForward();
                     block.BeforeForward();
                     root.AfterForward();
                   },
                   "'root' AfterForward", "'block'"},
        WrongOrder{"TrainingInsideInference",
                   [](Unit& root, Unit& block) {
                     root.BeforeForward(ForwardKind::kInference);
                     block.BeforeForward();
                   },
                   "'block' BeforeForward", "'root' is in a forward for inf"},
        WrongOrder{"BackwardAfterInference",
                   [](Unit& root, Unit&) {
                     root.BeforeForward(ForwardKind::kInference);
                     root.AfterForward();
                     root.BeforeBackward();
                   },
                   "'root' BeforeBackward", "no forward is outstanding"},
        WrongOrder{"BackwardOfParentEndsBeforeThatOfChild",
                   [](Unit& root, Unit& block) {
                     root.BeforeForward();
                     block.BeforeForward();
                     block.AfterForward();
                     root.AfterForward();
                     root.BeforeBackward();
                     block.BeforeBackward();
                     root.AfterBackward();
                   },
                   "'root' AfterBackward", "'block' inside it is still open"},
        WrongOrder{"BackwardEndsInsideRecomputation",
                   [](Unit& root, Unit&) {
                     root.BeforeForward();
                     root.AfterForward();
                     root.BeforeBackward();
                     root.BeforeForward();
                     root.AfterBackward();
                   },
                   "'root' AfterBackward", "recomputation"}),
    [](const ::testing::TestParamInfo<WrongOrder>& test) {
      return test.param.name;
    });

TEST_F(UnitTest, ViewsAreErrorsOutsideTheirPhase) {
  EXPECT_THAT(block_->weight(0),
              StatusIs(kOutOfOrder, HasSubstr("not inside a forward")));
  Forward();
  EXPECT_THAT(block_->weight(0), StatusIs(kOutOfOrder));
  EXPECT_THAT(block_->grad(0, GradientWrite::kOverwrite),
              StatusIs(kOutOfOrder, HasSubstr("not inside a backward")));
  EXPECT_THAT(block_->weight(2), StatusIs(kInvalid, HasSubstr("0..1")));
  EXPECT_THAT(block_->main_weight(-1), StatusIs(kInvalid));
  // None of these is sticky.
  EXPECT_OK(context_->status());
}

TEST_F(UnitTest, StepsAreRejectedWithoutFinalGradients) {
  SgdOptimizer optimizer(*context_, 1.0);
  EXPECT_THAT(optimizer.Step(),
              StatusIs(kOutOfOrder, HasSubstr("no unit has a gradient")));
  root_->BeforeForward();
  EXPECT_THAT(optimizer.Step(),
              StatusIs(kOutOfOrder, AllOf(HasSubstr("'root'"),
                                          HasSubstr("inside a forward"))));
  block_->BeforeForward();
  block_->AfterForward();
  root_->AfterForward();
  EXPECT_THAT(optimizer.Step(),
              StatusIs(kOutOfOrder, HasSubstr("without a backward")));
  Backward(1.0f, /*is_last=*/false);
  EXPECT_THAT(optimizer.Step(),
              StatusIs(kOutOfOrder, AllOf(HasSubstr("'root'"),
                                          HasSubstr("partial gradient"))));
  Forward();
  Backward(1.0f, /*is_last=*/true);
  EXPECT_OK(optimizer.Step());
}

TEST_F(UnitTest, ZeroingIsRejectedInsideABackward) {
  Forward();
  root_->BeforeBackward();
  EXPECT_THAT(context_->ZeroGradients(ZeroGrad::kRelease),
              StatusIs(kOutOfOrder, HasSubstr("'root'")));
}

TEST_F(UnitTest, MicrobatchesSayWhichBackwardIsTheLast) {
  {
    Microbatch microbatch = context_->OpenMicrobatch({.is_last = false});
    Forward();
    Backward(1.0f);
    ASSERT_OK(microbatch.Finish());
    EXPECT_THAT(microbatch.Finish(), StatusIs(kOutOfOrder));
  }
  EXPECT_THAT(SgdOptimizer(*context_, 1.0).Step(),
              StatusIs(kOutOfOrder, HasSubstr("partial")));
  Forward();
  Backward(1.0f);  // outside of a microbatch: the last
  EXPECT_OK(SgdOptimizer(*context_, 1.0).Step());
}

TEST_F(UnitTest, OnlyOneMicrobatchMayBeOpen) {
  Microbatch first = context_->OpenMicrobatch();
  Microbatch second = context_->OpenMicrobatch();
  EXPECT_THAT(context_->status(),
              StatusIs(kOutOfOrder, HasSubstr("microbatch is open")));
}

TEST_F(UnitTest, LoadedWeightsMustFit) {
  std::vector<double> values(6);
  EXPECT_THAT(
      block_->LoadWeight(
          0,
          TensorView(values.data(), *TensorMeta::Create(DType::kF64, {2, 3}))),
      StatusIs(kInvalid, AllOf(HasSubstr("f64[2,3]"), HasSubstr("f32[2,3]"))));
  EXPECT_THAT(block_->LoadWeight(
                  0, TensorView(values.data(),
                                *TensorMeta::Create(DType::kF32, {3, 2}))),
              StatusIs(kInvalid, HasSubstr("'weight'")));
  Forward();
  EXPECT_THAT(block_->LoadWeight(0, TensorView(values.data(), Meta())),
              StatusIs(kOutOfOrder));
}

TEST_F(UnitTest, ErrorsOfStreamsStayInTheContext) {
  Forward();
  stream_
      ->Launch({.name = "fails"},
               [] { return absl::DataLossError("bad sector"); })
      .IgnoreError();
  root_->BeforeBackward();
  EXPECT_THAT(
      SgdOptimizer(*context_, 1.0).Step(),
      StatusIs(absl::StatusCode::kDataLoss,
               AllOf(HasSubstr("stream 'compute'"), HasSubstr("bad sector"))));
}

TEST_F(UnitTest, OutOfMemoryIsAStickyErrorOfTheHook) {
  // Room for everything but main gradients.
  CpuDevice device({.memory_limit_bytes = device_.memory().total.peak_bytes});
  std::unique_ptr<Stream> stream = *device.NewStream("compute");
  std::unique_ptr<Communicator> world = *world_->Join(0, *stream);
  FsdpOptions options;
  options.mesh = *DeviceMesh::Parse("dp=1");
  options.placements = *PlacementsFor("fsdp", 1);
  options.logger = Logger(nullptr, absl::LogSeverity::kInfo);
  context_ = *Context::Create(options, *world, *stream);
  root_ = *AddUnit("root", {.release = ReleaseWeights::kAfterBackward});
  block_ = *AddUnit("block", {.parent = root_}, /*frozen=*/true);
  ASSERT_OK(context_->Prepare());
  Forward();
  root_->BeforeBackward();
  block_->BeforeBackward();
  block_->AfterBackward();
  root_->AfterBackward();
  EXPECT_THAT(context_->status(),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("'block' AfterBackward"),
                             HasSubstr("main_grad"))));
  context_.reset();
}

}  // namespace
}  // namespace tessera

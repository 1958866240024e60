// Hooks in any order: a small model of what is legal says, of random sequences,
// where the first error is; the context must say the same, and name the unit.

#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/comm/local/local_world.h"
#include "tessera/comm/local/run_ranks.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tessera/fsdp/context.h"
#include "tessera/fsdp/optimizer.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

enum Action { kTrain, kInfer, kAfterForward, kBeforeBackward, kAfterBackward };
constexpr const char* kNames[] = {"BeforeForward", "BeforeForward",
                                  "AfterForward", "BeforeBackward",
                                  "AfterBackward"};

struct Move {
  int unit = 0;
  Action action = kTrain;
};

// A root, a block inside it and another one.
constexpr int kUnits = 3;
constexpr int kParents[] = {-1, 0, 0};
constexpr const char* kUnitNames[] = {"root", "a", "b"};

// What the units go through, written down without regard to how they do it.
class PhaseModel {
 public:
  // Whether the move is legal; if so it is made.
  bool Make(const Move& move) {
    const bool legal = IsLegal(move);
    if (legal) Apply(move);
    return legal;
  }

  // Nothing is open or outstanding, and some backward has ended.
  bool may_step() const {
    for (const State& unit : units_) {
      if (unit.backward || !unit.forwards.empty() || unit.outstanding > 0) {
        return false;
      }
    }
    return any_backward_;
  }

 private:
  struct State {
    std::vector<Action> forwards;  // that are open: at most one
    bool backward = false;
    int outstanding = 0;
  };

  bool IsLegal(const Move& move) const {
    const State& unit = units_[move.unit];
    const int parent = kParents[move.unit];
    switch (move.action) {
      case kTrain:
      case kInfer:
        if (!unit.forwards.empty()) return false;
        if (parent >= 0 && !IsOpen(parent)) return false;
        return unit.backward ||  // recomputation
               move.action == kInfer || parent < 0 || !Infers(parent);
      case kAfterForward:
        return !unit.forwards.empty() &&
               (unit.backward || !HasOpenChild(move.unit));
      case kBeforeBackward:
        return unit.forwards.empty() && !unit.backward &&
               unit.outstanding > 0 && (parent < 0 || units_[parent].backward);
      case kAfterBackward:
        return unit.backward && unit.forwards.empty() &&
               !HasOpenChild(move.unit);
    }
    return false;
  }

  void Apply(const Move& move) {
    State& unit = units_[move.unit];
    switch (move.action) {
      case kTrain:
      case kInfer:
        unit.forwards.push_back(move.action);
        break;
      case kAfterForward:
        if (!unit.backward && unit.forwards.back() == kTrain) {
          ++unit.outstanding;
        }
        unit.forwards.pop_back();
        break;
      case kBeforeBackward:
        unit.backward = true;
        break;
      case kAfterBackward:
        unit.backward = false;
        --unit.outstanding;
        any_backward_ = true;
        break;
    }
  }

  bool IsOpen(int unit) const {
    return units_[unit].backward || !units_[unit].forwards.empty();
  }
  bool Infers(int unit) const {
    return !units_[unit].backward && !units_[unit].forwards.empty() &&
           units_[unit].forwards.back() == kInfer;
  }
  bool HasOpenChild(int unit) const {
    return unit == 0 && (IsOpen(1) || IsOpen(2));
  }

  std::array<State, kUnits> units_;
  bool any_backward_ = false;
};

// The context of one rank, whose units have one weight each and gather none, so
// that slots do not matter.
class OneRank {
 public:
  OneRank()
      : stream_(*device_.NewStream("compute")),
        communicator_(*world_.Join(0, *stream_)) {
    FsdpOptions options;
    options.mesh = *DeviceMesh::Parse("dp=1");
    options.placements = *PlacementsFor("fsdp", 1);
    options.logger = Logger(nullptr, absl::LogSeverity::kInfo);
    context_ = *Context::Create(options, *communicator_, *stream_);
    for (int u = 0; u < kUnits; ++u) {
      UnitOptions unit_options;
      if (kParents[u] >= 0) unit_options.parent = units_[kParents[u]];
      UnitBuilder builder = context_->NewUnit(kUnitNames[u], unit_options);
      builder.Add("w", *TensorMeta::Create(DType::kF32, {3}));
      units_.push_back(*builder.Build());
    }
    EXPECT_OK(context_->Prepare());
  }

  void Make(const Move& move) {
    Unit& unit = *units_[move.unit];
    switch (move.action) {
      case kTrain:
        return unit.BeforeForward();
      case kInfer:
        return unit.BeforeForward(ForwardKind::kInference);
      case kAfterForward:
        return unit.AfterForward();
      case kBeforeBackward:
        return unit.BeforeBackward();
      case kAfterBackward:
        return unit.AfterBackward(true);
    }
  }

  Context& context() { return *context_; }

 private:
  CpuDevice device_;
  LocalWorld world_{1};
  const std::unique_ptr<Stream> stream_;
  const std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<Context> context_;
  std::vector<Unit*> units_;
};

std::string ToString(const std::vector<Move>& moves) {
  std::string text;
  for (const Move& move : moves) {
    absl::StrAppend(&text, kUnitNames[move.unit], ".", kNames[move.action],
                    move.action == kInfer ? "(inference) " : " ");
  }
  return text;
}

TEST(PhasesTest, TheFirstIllegalHookIsTheErrorAndNamesUnitAndHook) {
  constexpr int kSeed = 20240607;
  std::mt19937 random(kSeed);
  int longest = 0;
  int steps = 0;
  for (int walk = 0; walk < 10'000; ++walk) {
    OneRank rank;
    PhaseModel model;
    std::vector<Move> moves;
    bool legal = true;
    while (legal && moves.size() < 40) {
      // Few walks would get far if each move were drawn once.
      Move move;
      legal = false;
      for (int draw = 0; draw < 8 && !legal; ++draw) {
        move = {static_cast<int>(random() % kUnits),
                static_cast<Action>(random() % 5)};
        legal = model.Make(move);
      }
      moves.push_back(move);
      rank.Make(move);
      const absl::Status status = rank.context().status();
      ASSERT_EQ(status.ok(), legal)
          << ToString(moves) << status << ", seed " << kSeed;
      if (!legal) {
        EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
        EXPECT_THAT(std::string(status.message()),
                    HasSubstr(absl::StrCat("unit '", kUnitNames[move.unit],
                                           "' ", kNames[move.action])));
        break;
      }
      const bool stepped = SgdOptimizer(rank.context(), 1.0).Step().ok();
      EXPECT_EQ(stepped, model.may_step()) << ToString(moves);
      steps += stepped;
    }
    longest = std::max(longest, static_cast<int>(moves.size()));
  }
  EXPECT_EQ(longest, 40);
  EXPECT_GT(steps, 20);
}

// Slots are for one unit at each depth, at the greatest for two.
TEST(PhasesTest, AUnitWithoutASlotIsAnError) {
  EXPECT_OK(RunLocalRanks(2, [](LocalRank& rank) -> absl::Status {
    FsdpOptions options;
    options.mesh = *DeviceMesh::Parse("dp=2");
    options.placements = *PlacementsFor("fsdp", 1);
    options.logger = Logger(nullptr, absl::LogSeverity::kInfo);
    TESSERA_ASSIGN_OR_RETURN(
        auto context,
        Context::Create(options, rank.comms.world(), rank.stream));
    std::vector<Unit*> units;
    for (const char* name : {"first", "second", "third"}) {
      UnitBuilder builder = context->NewUnit(name);
      builder.Add("w", *TensorMeta::Create(DType::kF32, {3}));
      TESSERA_ASSIGN_OR_RETURN(Unit * unit, builder.Build());
      units.push_back(unit);
    }
    TESSERA_RETURN_IF_ERROR(context->Prepare());
    units[0]->BeforeForward();
    units[1]->BeforeForward();
    TESSERA_RETURN_IF_ERROR(context->status());
    units[2]->BeforeForward();
    EXPECT_THAT(context->status(),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr("'third' BeforeForward"),
                               HasSubstr("all 2 slots"))));
    return absl::OkStatus();
  }));
}

}  // namespace
}  // namespace tessera

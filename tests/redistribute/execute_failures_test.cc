// What is left of a redistribution that does not come to its end: a target
// that is right, or a stream that says that it is not; and peers that know.

#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/run_ranks.h"
#include "tessera/redistribute/execute.h"
#include "tessera/redistribute/execute_many.h"
#include "tessera/redistribute/planner.h"
#include "tests/cpu_streams.h"
#include "tests/redistribute/all_layouts.h"
#include "tests/redistribute/reference.h"
#include "tests/redistribute/sampling.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::AllLayouts;
using ::tessera::testing::GlobalValue;
using ::tessera::testing::HeldElements;
using ::tessera::testing::IsOk;
using ::tessera::testing::kSampleOnly;
using ::tessera::testing::LocalValues;
using ::tessera::testing::SeededRandom;
using ::tessera::testing::StatusIs;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

using std::chrono::milliseconds;

// How long tests wait for what must not take a timeout to happen.
constexpr milliseconds kLong = std::chrono::seconds(20);

constexpr float kPoison = -77;

Redistribution Between(const std::string& mesh, const std::string& source,
                       const std::string& target) {
  const Layout from =
      Layout::Parse(source, DeviceMesh::Parse(mesh).value()).value();
  return {from, from.With(target).value()};
}

std::shared_ptr<const Plan> PlanOf(const Redistribution& ends) {
  return std::make_shared<const Plan>(
      MakePlan(ends.source, ends.target, Topology::LocalCpu()).value());
}

// One redistribution of f32 on one rank, to a target without Partial.
class Attempt {
 public:
  Attempt(std::shared_ptr<const Plan> plan, int rank)
      : plan_(std::move(plan)), rank_(rank) {
    for (double value : LocalValues(plan_->source(), rank)) {
      source_.push_back(static_cast<float>(value));
    }
    target_.assign(plan_->target().LocalMeta(rank).num_elements(), kPoison);
  }

  TensorView source() {
    return {source_.data(), plan_->source().LocalMeta(rank_)};
  }
  TensorView target() {
    return {target_.data(), plan_->target().LocalMeta(rank_)};
  }

  absl::Status Run(PreparedPlan& prepared) {
    workspace_.resize(prepared.workspace_bytes());
    const absl::Status status = prepared.Execute(
        source(), target(), {workspace_.data(), prepared.workspace_bytes()});
    end_ = prepared.stream().Record();
    return status;
  }

  // Waits. What the stream says of it.
  absl::Status Outcome() const { return end_.Synchronize(); }
  bool IsRight() const {
    const std::vector<int64_t> held = HeldElements(plan_->target(), rank_);
    for (size_t i = 0; i < held.size(); ++i) {
      if (target_[i] != static_cast<float>(GlobalValue(held[i]))) return false;
    }
    return true;
  }

 private:
  std::shared_ptr<const Plan> plan_;
  int rank_;
  std::vector<float> source_;
  std::vector<float> target_;
  std::vector<std::byte> workspace_;
  Event end_;
};

class ExecuteFailures : public ::testing::TestWithParam<CpuStreams> {
 protected:
  LocalRunOptions options(milliseconds timeout = kLong) const {
    LocalRunOptions options;
    options.device.streams = GetParam();
    options.world.timeout = timeout;
    return options;
  }

  // What each rank says once its stream has come past `program`. No rank leaves
  // before all have ended.
  std::vector<absl::Status> Results(
      int ranks, const std::function<absl::Status(LocalRank&)>& program,
      milliseconds timeout = kLong) const {
    std::vector<absl::Status> results(ranks);
    std::barrier end(ranks);
    EXPECT_OK(RunLocalRanks(
        ranks,
        [&](LocalRank& self) {
          const std::unique_ptr<Stream> stream =
              self.device.NewStream("tested").value();
          LocalRank tested = {self.rank, ranks, self.device, *stream,
                              self.comms};
          results[self.rank] = program(tested);
          results[self.rank].Update(stream->Synchronize());
          end.arrive_and_wait();
          return absl::OkStatus();
        },
        options(timeout)));
    return results;
  }
};

INSTANTIATE_TEST_SUITE_P(Streams, ExecuteFailures, testing::BothStreams(),
                         testing::StreamsName);

absl::Status FailStream(Stream& stream) {
  return stream.Launch({.name = "fail"},
                       [] { return absl::DataLossError("the disk is full"); });
}

// The group of the second step is aborted before anybody comes to it.
TEST_P(ExecuteFailures, AnErrorHalfwayStaysInTheStream) {
  const auto plan =
      PlanOf(Between("x=2,y=2", "f32[4,6] [S(0), S(1)]", "[R, R]"));
  ASSERT_EQ(plan->steps().size(), 2u);
  std::barrier all(4);
  const std::vector<absl::Status> results = Results(4, [&](LocalRank& self) {
    PreparedPlan prepared = Prepare(plan, self.comms, self.stream).value();
    if (self.rank == 0) {
      const Step& second = plan->steps().back();
      self.comms.Get(second.before.mesh(), second.axes, self.stream)
          .value()
          ->Abort(absl::CancelledError("enough"));
    }
    all.arrive_and_wait();
    Attempt attempt(plan, self.rank);
    attempt.Run(prepared).IgnoreError();
    const absl::Status outcome = attempt.Outcome();
    EXPECT_TRUE(!outcome.ok() || attempt.IsRight()) << self.rank;
    return outcome;
  });
  EXPECT_THAT(results[0],
              StatusIs(absl::StatusCode::kAborted, HasSubstr("enough")));
}

TEST_P(ExecuteFailures, AnErrorHalfwayThroughAListStaysInTheStream) {
  const auto many = std::make_shared<const ManyPlan>(
      PlanMany({Between("x=2", "f32[3] [S(0)]", "[R]"),
                Between("x=2", "f32[3] [P(sum)]", "[R]")},
               Topology::LocalCpu())
          .value());
  ASSERT_EQ(many->stages().size(), 2u);
  std::barrier all(2);
  const std::vector<absl::Status> results = Results(2, [&](LocalRank& self) {
    PreparedManyPlan prepared = Prepare(many, self.comms, self.stream).value();
    if (self.rank == 0) {
      self.comms.Get(many->plans()[0].source().mesh(), {0}, self.stream)
          .value()
          ->Abort(absl::CancelledError("enough"));
    }
    all.arrive_and_wait();
    std::vector<Attempt> attempts;
    std::vector<TensorView> sources;
    std::vector<TensorView> targets;
    for (const Plan& one : many->plans()) {
      attempts.emplace_back(std::make_shared<const Plan>(one), self.rank);
      sources.push_back(attempts.back().source());
      targets.push_back(attempts.back().target());
    }
    std::vector<std::byte> workspace(prepared.workspace_bytes());
    prepared
        .Execute(sources, targets,
                 {workspace.data(), prepared.workspace_bytes()})
        .IgnoreError();
    return self.stream.Synchronize();
  });
  EXPECT_THAT(results,
              Each(StatusIs(absl::StatusCode::kAborted, HasSubstr("enough"))));
}

// Some of them meet the rank that gives up in a later step alone.
TEST_P(ExecuteFailures, PeersDoNotWaitForARankThatGivesUp) {
  const auto plan =
      PlanOf(Between("x=2,y=2", "f32[4,6] [S(0), S(1)]", "[R, R]"));
  const std::vector<absl::Status> results = Results(4, [&](LocalRank& self) {
    PreparedPlan prepared = Prepare(plan, self.comms, self.stream).value();
    if (self.rank == 0) {
      FailStream(self.stream).IgnoreError();
      // Known before anything is issued.
      self.stream.Synchronize().IgnoreError();
    }
    Attempt attempt(plan, self.rank);
    attempt.Run(prepared).IgnoreError();
    const absl::Status outcome = attempt.Outcome();
    EXPECT_TRUE(!outcome.ok() || attempt.IsRight()) << self.rank;
    return outcome;
  });
  EXPECT_THAT(results[0], StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(results, Each(AnyOf(IsOk(), StatusIs(absl::StatusCode::kDataLoss),
                                  StatusIs(absl::StatusCode::kAborted))));
}

// A row of redistributions; one rank fails at some point, or aborts a group.
TEST_P(ExecuteFailures, ATargetIsRightOrTheStreamSaysThatItIsNot) {
  constexpr int kTrials = kSampleOnly ? 20 : 100;
  constexpr int kRow = 6;
  constexpr int kRanks = 4;
  const DeviceMesh mesh = DeviceMesh::Parse("x=2,y=2").value();
  const std::vector<Layout> sources =
      AllLayouts(TensorMeta::Parse("f32[5,6]").value(), mesh,
                 {ReduceOp::kSum, ReduceOp::kMax});
  SeededRandom random;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<std::shared_ptr<const Plan>> plans;
    while (plans.size() < kRow) {
      const Layout& source = sources[random() % sources.size()];
      const Layout& target = sources[random() % sources.size()];
      if (!target.HasPartial()) plans.push_back(PlanOf({source, target}));
    }
    const int culprit = static_cast<int>(random() % kRanks);
    const size_t when = random() % kRow;
    const bool aborts = random() % 2 == 0;
    const int axis = static_cast<int>(random() % 2);
    const std::vector<absl::Status> results =
        Results(kRanks, [&](LocalRank& self) -> absl::Status {
          std::vector<PreparedPlan> prepared;
          std::vector<Attempt> attempts;
          for (const auto& plan : plans) {
            TESSERA_ASSIGN_OR_RETURN(PreparedPlan one,
                                     Prepare(plan, self.comms, self.stream));
            prepared.push_back(std::move(one));
            attempts.emplace_back(plan, self.rank);
          }
          TESSERA_ASSIGN_OR_RETURN(Communicator * group,
                                   self.comms.Get(mesh, {axis}, self.stream));
          for (size_t i = 0; i < plans.size(); ++i) {
            if (self.rank == culprit && i == when) {
              if (aborts) {
                group->Abort(absl::CancelledError("enough"));
              } else {
                FailStream(self.stream).IgnoreError();
              }
            }
            attempts[i].Run(prepared[i]).IgnoreError();
          }
          for (size_t i = 0; i < plans.size(); ++i) {
            const absl::Status outcome = attempts[i].Outcome();
            EXPECT_TRUE(!outcome.ok() || attempts[i].IsRight())
                << "rank " << self.rank << ": " << *plans[i];
            if (self.rank == culprit && i >= when && !aborts) {
              EXPECT_THAT(outcome, Not(IsOk()));
            }
          }
          return absl::OkStatus();
        });
    // The stream's error is what Synchronize gives; none is a timeout.
    EXPECT_THAT(results,
                Each(AnyOf(IsOk(), StatusIs(absl::StatusCode::kDataLoss),
                           StatusIs(absl::StatusCode::kAborted))));
    if (HasFailure()) break;
  }
}

TEST_P(ExecuteFailures, RanksThatDisagreedMayAgreeNext) {
  const auto gather = PlanOf(Between("x=2", "f32[4,2] [S(0)]", "[R]"));
  const auto turn = PlanOf(Between("x=2", "f32[4,2] [S(0)]", "[S(1)]"));
  const std::vector<absl::Status> results = Results(2, [&](LocalRank& self) {
    for (int i = 0; i < 2; ++i) {
      EXPECT_THAT(
          Prepare(self.rank == i ? gather : turn, self.comms, self.stream)
              .status(),
          StatusIs(absl::StatusCode::kFailedPrecondition));
    }
    for (const auto& plan : {gather, turn}) {
      PreparedPlan prepared = Prepare(plan, self.comms, self.stream).value();
      Attempt attempt(plan, self.rank);
      EXPECT_OK(attempt.Run(prepared));
      EXPECT_OK(attempt.Outcome());
      EXPECT_TRUE(attempt.IsRight());
    }
    return absl::OkStatus();
  });
  EXPECT_THAT(results, Each(IsOk()));
}

// They look for each other in different groups: where two do, in a circle.
TEST_P(ExecuteFailures, PlansOverDifferentMeshesFailAndDoNotHang) {
  const auto wide = PlanOf(Between("x=4", "f32[4] [S(0)]", "[R]"));
  const auto narrow = PlanOf(Between("x=2", "f32[4] [S(0)]", "[R]"));
  const std::vector<absl::Status> results = Results(
      4,
      [&](LocalRank& self) {
        return Prepare(self.rank == 1 ? narrow : wide, self.comms, self.stream)
            .status();
      },
      std::chrono::seconds(20));
  EXPECT_THAT(results, Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                                     HasSubstr("ranks wait for each other"))));
}

}  // namespace
}  // namespace tessera

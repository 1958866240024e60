// Thousands of mixed collectives over random groups, with faults and without.
// LOCAL_SOAK_SCALE multiplies how long it takes.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/run_ranks.h"
#include "tests/comm/collective_cases.h"
#include "tests/status_matchers.h"

namespace tessera::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::AnyOf;

constexpr int kRanks = 5;

// What all ranks do: groups, and collectives of them one after the other.
class Script {
 public:
  Script(int num_groups, int num_collectives, uint64_t seed) : random_(seed) {
    for (int g = 0; g < num_groups; ++g) groups_.push_back(RandomGroup());
    for (int i = 0; i < num_collectives; ++i) {
      const size_t group = random_() % groups_.size();
      const auto size = static_cast<int>(groups_[group].size());
      const std::vector<CollectiveCase>& cases = CasesOf(size);
      group_of_.push_back(group);
      runs_.emplace_back(cases[random_() % cases.size()], random_());
    }
  }

  int num_collectives() const { return static_cast<int>(runs_.size()); }
  const std::vector<std::vector<int>>& groups() const { return groups_; }
  size_t group_of(int i) const { return group_of_[i]; }
  const CollectiveRun& run(int i) const { return runs_[i]; }

 private:
  // Two ranks at least, in any order.
  std::vector<int> RandomGroup() {
    std::vector<int> ranks(kRanks);
    std::iota(ranks.begin(), ranks.end(), 0);
    std::shuffle(ranks.begin(), ranks.end(), random_);
    ranks.resize(2 + random_() % (kRanks - 1));
    return ranks;
  }
  // Making them takes longer than running some.
  static const std::vector<CollectiveCase>& CasesOf(int ranks) {
    static const auto* const cases = [] {
      auto* const all = new std::vector<std::vector<CollectiveCase>>;
      for (int n = 0; n <= kRanks; ++n) {
        all->push_back(n < 2 ? std::vector<CollectiveCase>()
                             : AllCollectiveCases(n));
      }
      return all;
    }();
    return (*cases)[ranks];
  }

  std::mt19937_64 random_;
  std::vector<std::vector<int>> groups_;
  std::vector<size_t> group_of_;
  std::vector<CollectiveRun> runs_;
};

// What one rank does wrong in the place of a collective of the script.
enum class Fault {
  kReturns,    // its program returns an error
  kThrows,     // its program throws
  kDisagrees,  // it asks for something else
  kAborts,
  kStaysAway,  // past the timeout
  kStreamFails,
  kForgets,  // it destroys its communicator
};
constexpr int kNumFaults = 7;
constexpr milliseconds kAway{150};

struct Mishap {
  int at = -1;  // a collective; none
  int rank = 0;
  Fault fault = Fault::kReturns;
};

// One rank that follows a script. Each group has a stream of its own.
class Follower {
 public:
  Follower(const Script& script, LocalRank& rank)
      : script_(script), rank_(rank) {}

  absl::Status Follow(const Mishap& mishap) {
    TESSERA_RETURN_IF_ERROR(Join());
    absl::Status status;
    for (int i = 0; i < script_.num_collectives(); ++i) {
      Lane& lane = lanes_[script_.group_of(i)];
      if (i == mishap.at && rank_.rank == mishap.rank) {
        status.Update(Err(mishap.fault, lane));
        if (mishap.fault == Fault::kReturns) return status;
      }
      if (lane.comm == nullptr) continue;
      status.Update(lane.comm->Issue(script_.run(i).Call(lane.comm->rank())));
    }
    for (Lane& lane : lanes_) {
      if (lane.stream != nullptr) status.Update(lane.stream->Synchronize());
    }
    return status;
  }

  // What is wrong with this rank's memory, or "".
  std::string Check() const {
    for (int i = 0; i < script_.num_collectives(); ++i) {
      const std::vector<int>& members = script_.groups()[script_.group_of(i)];
      const auto member = std::find(members.begin(), members.end(), rank_.rank);
      if (member == members.end()) continue;
      const std::string problem =
          script_.run(i).Check(static_cast<int>(member - members.begin()));
      if (!problem.empty())
        return absl::StrCat("collective ", i, ": ", problem);
    }
    return "";
  }

 private:
  struct Lane {
    std::unique_ptr<Stream> stream;
    std::unique_ptr<Communicator> comm;  // null where this rank is no member
  };

  absl::Status Join() {
    for (const std::vector<int>& members : script_.groups()) {
      Lane& lane = lanes_.emplace_back();
      if (std::find(members.begin(), members.end(), rank_.rank) ==
          members.end()) {
        continue;
      }
      TESSERA_ASSIGN_OR_RETURN(lane.stream, rank_.device.NewStream("lane"));
      TESSERA_ASSIGN_OR_RETURN(
          lane.comm, rank_.comms.world().Subgroup(members, "g", *lane.stream));
    }
    return absl::OkStatus();
  }

  absl::Status Err(Fault fault, Lane& lane) {
    switch (fault) {
      case Fault::kReturns:
        return absl::DataLossError("a fault");
      case Fault::kThrows:
        throw std::runtime_error("a fault");
      case Fault::kDisagrees:
        return lane.comm->Broadcast(TensorView(nullptr, kNothing), 0);
      case Fault::kAborts:
        lane.comm->Abort(absl::DataLossError("a fault"));
        return absl::OkStatus();
      case Fault::kStaysAway:
        (void)lane.stream->Launch({.name = "sleep"}, [] {
          std::this_thread::sleep_for(3 * kAway);
          return absl::OkStatus();
        });
        return absl::OkStatus();
      case Fault::kStreamFails:
        (void)lane.stream->Launch(
            {.name = "fails"}, [] { return absl::DataLossError("a fault"); });
        return absl::OkStatus();
      case Fault::kForgets:
        lane.comm.reset();
        return absl::OkStatus();
    }
    return absl::OkStatus();
  }

  static inline const TensorMeta kNothing =
      TensorMeta::Create(DType::kF64, {0, 3, 1}).value();

  const Script& script_;
  LocalRank& rank_;
  std::vector<Lane> lanes_;
};

LocalRunOptions Options(CpuStreams streams, milliseconds timeout) {
  LocalRunOptions options;
  options.device.streams = streams;
  options.world.timeout = timeout;
  return options;
}

// On worker streams the groups' collectives run side by side.
TEST(LocalSoak, MixedCollectivesOverRandomGroupsGiveTheReferenceResult) {
  for (int round = 0; round < 80 * LOCAL_SOAK_SCALE; ++round) {
    SCOPED_TRACE(absl::StrCat("seed ", round));
    const Script script(/*num_groups=*/6, /*num_collectives=*/100, round);
    const CpuStreams streams =
        round % 4 == 0 ? CpuStreams::kInline : CpuStreams::kWorker;
    ASSERT_OK(RunLocalRanks(
        kRanks,
        [&](LocalRank& rank) {
          Follower follower(script, rank);
          const absl::Status status = follower.Follow(Mishap());
          EXPECT_EQ(follower.Check(), "");
          return status;
        },
        Options(streams, std::chrono::seconds(100))));
    ASSERT_FALSE(HasFailure());
  }
}

// Somewhere in the middle one rank goes wrong. All ranks come to an end long
// before their patience does, and some of them with an error.
TEST(LocalSoak, AnyFaultEndsAllRanksInTime) {
  for (int round = 0; round < 70 * LOCAL_SOAK_SCALE; ++round) {
    SCOPED_TRACE(absl::StrCat("seed ", round));
    std::mt19937_64 random(round);
    const Script script(/*num_groups=*/4, /*num_collectives=*/30, random());
    Mishap mishap;
    mishap.at = static_cast<int>(random() % script.num_collectives());
    const std::vector<int>& members =
        script.groups()[script.group_of(mishap.at)];
    mishap.rank = members[random() % members.size()];
    mishap.fault = static_cast<Fault>(round % kNumFaults);
    const milliseconds timeout = mishap.fault == Fault::kStaysAway
                                     ? kAway
                                     : milliseconds(std::chrono::seconds(100));
    const auto begin = std::chrono::steady_clock::now();
    const absl::Status status = RunLocalRanks(
        kRanks,
        [&](LocalRank& rank) { return Follower(script, rank).Follow(mishap); },
        Options(CpuStreams::kWorker, timeout));
    EXPECT_LT(std::chrono::steady_clock::now() - begin,
              std::chrono::seconds(20));
    EXPECT_THAT(
        status.code(),
        AnyOf(absl::StatusCode::kDataLoss, absl::StatusCode::kInternal,
              absl::StatusCode::kFailedPrecondition,
              absl::StatusCode::kDeadlineExceeded, absl::StatusCode::kAborted))
        << status;
    ASSERT_FALSE(HasFailure());
  }
}

}  // namespace
}  // namespace tessera::testing

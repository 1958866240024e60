#include "tessera/sweep/turns.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "tessera/base/status_macros.h"
#include "tessera/comm/local/call_program.h"

namespace tessera::internal {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// What the ranks share. Rank 0 writes between barriers what all of them read;
// of the rest ranks write different elements.
class Race {
 public:
  Race(int num_ranks, const Turns& turns)
      : turns_(turns),
        barrier_(num_ranks),
        begins_(num_ranks),
        ends_(num_ranks) {}

  // The part of one rank. Nothing is thrown past a barrier, where the others
  // would wait.
  absl::Status Run(
      int rank,
      absl::FunctionRef<absl::StatusOr<std::vector<Work>>()> prepare) {
    std::vector<Work> works;
    absl::Status status = CallProgram([&]() -> absl::Status {
      TESSERA_ASSIGN_OR_RETURN(works, prepare());
      return absl::OkStatus();
    });
    if (!status.ok()) somebody_failed_ = true;
    if (rank == 0) WarmUpAs(works.size());
    barrier_.arrive_and_wait();
    if (somebody_failed_) return status;
    for (int turn = -1; turn < turns_.count; ++turn) {
      for (size_t w = 0; w < works.size(); ++w) {
        barrier_.arrive_and_wait();
        status.Update(RunOnce(rank, works[w], calls_[w]));
        barrier_.arrive_and_wait();
        if (rank == 0) Note(turn, w);
      }
    }
    return status;
  }

  std::vector<double> Medians() const {
    std::vector<double> medians;
    for (size_t w = 0; w < seconds_.size(); ++w) {
      medians.push_back(Median(seconds_[w]) / calls_[w]);
    }
    return medians;
  }

 private:
  void WarmUpAs(size_t num_works) {
    calls_.assign(num_works, 1);
    seconds_.resize(num_works);
  }

  absl::Status RunOnce(int rank, const Work& work, int calls) {
    absl::Status status;
    begins_[rank] = Clock::now();
    for (int i = 0; i < calls && status.ok(); ++i) status = CallProgram(work);
    ends_[rank] = Clock::now();
    return status;
  }

  void Note(int turn, size_t work) {
    if (turn < 0) {
      calls_[work] = CallsPerTurn(turns_, Seconds(ends_[0] - begins_[0]));
      return;
    }
    seconds_[work].push_back(
        Seconds(*std::max_element(ends_.begin(), ends_.end()) -
                *std::min_element(begins_.begin(), begins_.end())));
  }

  const Turns turns_;
  std::barrier<> barrier_;
  std::atomic<bool> somebody_failed_ = false;  // to prepare
  std::vector<Clock::time_point> begins_;      // by rank
  std::vector<Clock::time_point> ends_;        // by rank
  std::vector<int> calls_;                     // by work
  std::vector<std::vector<double>> seconds_;   // by work, by turn
};

}  // namespace

int CallsPerTurn(const Turns& turns, double seconds_once) {
  constexpr double kMost = 10'000;
  if (turns.seconds >= kMost * seconds_once) {
    return turns.seconds > 0 ? static_cast<int>(kMost) : 1;
  }
  return std::max(1, static_cast<int>(turns.seconds / seconds_once));
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size()) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

absl::StatusOr<std::vector<double>> MedianSeconds(
    int num_ranks, const Turns& turns,
    absl::FunctionRef<absl::StatusOr<std::vector<Work>>(LocalRank&)> prepare) {
  Race race(num_ranks, turns);
  const auto run = [&](LocalRank& rank) {
    return race.Run(rank.rank, [&] { return prepare(rank); });
  };
  TESSERA_RETURN_IF_ERROR(
      RunLocalRanks(num_ranks, run, {.bind_to_processors = true}));
  return race.Medians();
}

}  // namespace tessera::internal

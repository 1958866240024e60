#include "bench/turns.h"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "tessera/base/status_macros.h"

namespace tessera::bench {
namespace {

using Clock = std::chrono::steady_clock;

// When each rank began and ended. Ranks write different elements.
class Turn {
 public:
  explicit Turn(int num_ranks) : begins_(num_ranks), ends_(num_ranks) {}

  // Runs `work` on this rank, once all ranks have come.
  absl::Status Run(std::barrier<>& start, int rank, const Work& work) {
    start.arrive_and_wait();
    begins_[rank] = Clock::now();
    absl::Status status = work();
    ends_[rank] = Clock::now();
    return status;
  }

  double Seconds() const {
    return std::chrono::duration<double>(
               *std::max_element(ends_.begin(), ends_.end()) -
               *std::min_element(begins_.begin(), begins_.end()))
        .count();
  }

 private:
  std::vector<Clock::time_point> begins_;
  std::vector<Clock::time_point> ends_;
};

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size()) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

absl::StatusOr<std::vector<double>> MedianSeconds(
    int num_ranks, int turns,
    absl::FunctionRef<absl::StatusOr<std::vector<Work>>(LocalRank&)> prepare) {
  std::barrier<> start(num_ranks);
  Turn turn(num_ranks);
  std::vector<std::vector<double>> seconds;  // by work, by turn
  TESSERA_RETURN_IF_ERROR(RunLocalRanks(num_ranks, [&](LocalRank& rank) {
    absl::StatusOr<std::vector<Work>> works = prepare(rank);
    absl::Status status = works.status();
    // The other ranks would wait.
    if (!status.ok()) start.arrive_and_drop();
    if (!status.ok()) return status;
    if (rank.rank == 0) seconds.resize(works->size());
    for (int i = -1; i < turns; ++i) {
      for (size_t w = 0; w < works->size(); ++w) {
        status.Update(turn.Run(start, rank.rank, (*works)[w]));
        start.arrive_and_wait();
        if (i >= 0 && rank.rank == 0) seconds[w].push_back(turn.Seconds());
      }
    }
    return status;
  }));
  std::vector<double> medians;
  for (std::vector<double>& of_work : seconds) {
    medians.push_back(Median(std::move(of_work)));
  }
  return medians;
}

}  // namespace tessera::bench

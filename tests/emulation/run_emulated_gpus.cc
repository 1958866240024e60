#include "tests/emulation/run_emulated_gpus.h"

#include <deque>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/call_program.h"
#include "tessera/testing/race_detector.h"
#include "tessera/testing/rank_errors.h"
#include "tessera/testing/scheduler.h"

namespace tessera::emulation {
namespace {

using testing::RaceDetector;

std::string RankName(int rank) { return absl::StrCat("rank ", rank); }

std::deque<RaceDetector> Detectors(int num_ranks,
                                   const GpuRunOptions& options) {
  std::deque<RaceDetector> detectors;
  for (int rank = 0; rank < num_ranks; ++rank) {
    RaceDetector::Options detector = {.device = RankName(rank)};
    if (options.drop_wait.has_value() && options.drop_wait->rank == rank) {
      detector.drop_wait = options.drop_wait->call;
    }
    detectors.emplace_back(detector);
  }
  return detectors;
}

absl::Status WithProblems(const std::vector<std::string>& problems,
                          uint64_t seed, const absl::Status& errors) {
  if (problems.empty()) return errors;
  return absl::FailedPreconditionError(
      absl::StrCat("emulation: problems in the run of seed ", seed, ":\n  ",
                   absl::StrJoin(problems, "\n  "),
                   errors.ok() ? "" : absl::StrCat("\n", errors.ToString())));
}

}  // namespace

absl::Status RunEmulatedGpus(int num_ranks,
                             absl::FunctionRef<absl::Status(GpuRank&)> program,
                             const GpuRunOptions& options, GpuReport* report) {
  testing::Scheduler scheduler(options.seed);
  std::deque<RaceDetector> detectors = Detectors(num_ranks, options);
  Machine machine(scheduler, detectors, options.machine);
  std::vector<absl::Status> ends(num_ranks);
  absl::Status first_error;
  const auto run = [&](int rank) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(const auto device,
                             CudaDevice::Create(rank, options.device));
    GpuRank self = {rank, num_ranks, *device};
    return tessera::internal::CallProgram([&] { return program(self); });
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < num_ranks; ++rank) {
    scheduler.AddHost(RankName(rank));
    threads.emplace_back([&, rank] {
      machine.Enter(rank);
      ends[rank] = run(rank);
      if (!ends[rank].ok() && first_error.ok()) {
        first_error = absl::Status(
            ends[rank].code(),
            absl::StrCat(RankName(rank), ": ", ends[rank].message()));
      }
      scheduler.Leave();
    });
  }
  scheduler.Start();
  for (std::thread& thread : threads) thread.join();
  machine.CheckMemory();

  GpuReport told;
  told.steps = scheduler.steps();
  for (int rank = 0; rank < num_ranks; ++rank) {
    const std::vector<std::string>& found = detectors[rank].problems();
    told.problems.insert(told.problems.end(), found.begin(), found.end());
    told.waits.push_back(detectors[rank].Waits());
    told.calls.push_back(machine.calls(rank));
  }
  if (!scheduler.failure().ok()) {
    told.problems.emplace_back(scheduler.failure().message());
  }
  const absl::Status result =
      WithProblems(told.problems, options.seed,
                   testing::internal::WithEveryRank(first_error, ends));
  if (report != nullptr) *report = std::move(told);
  return result;
}

}  // namespace tessera::emulation

#include "tessera/testing/run_scheduled_ranks.h"

#include <deque>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/call_program.h"
#include "tessera/testing/rank_errors.h"
#include "tessera/testing/scheduled_device.h"
#include "tessera/testing/scheduled_world.h"
#include "tessera/testing/scheduler.h"

namespace tessera::testing {
namespace {

using Program = absl::FunctionRef<absl::Status(ScheduledRank&)>;

std::string RankName(int rank) { return absl::StrCat("rank ", rank); }

// The state of one call.
class Run {
 public:
  Run(int num_ranks, Program program, const ScheduledRunOptions& options);

  // Called once.
  void RunRanks();
  ScheduledReport Report() const;
  // What went wrong: problems, then the ranks' errors.
  absl::Status Result() const;

 private:
  // What the thread of a rank, which is this host, does.
  void RunRank(int host, int rank);
  void End(int rank, const absl::Status& status);
  std::vector<std::string> Problems() const;

  const int num_ranks_;
  const Program program_;
  const ScheduledRunOptions& options_;
  Scheduler scheduler_;
  std::deque<RaceDetector> detectors_;  // by rank
  ScheduledWorld world_;
  std::vector<absl::Status> ends_;  // by rank
  absl::Status first_error_;
};

Run::Run(int num_ranks, Program program, const ScheduledRunOptions& options)
    : num_ranks_(num_ranks),
      program_(program),
      options_(options),
      scheduler_(options.seed),
      world_(num_ranks, scheduler_),
      ends_(num_ranks) {
  for (int rank = 0; rank < num_ranks; ++rank) {
    RaceDetector::Options detector = {.device = RankName(rank),
                                      .drop_wait = std::nullopt,
                                      .max_problems = options.max_problems};
    const std::optional<DroppedWait>& dropped = options.drop_wait;
    if (dropped.has_value() && dropped->rank == rank) {
      detector.drop_wait = dropped->call;
    }
    detectors_.emplace_back(detector);
  }
}

void Run::RunRanks() {
  std::vector<std::thread> threads;
  threads.reserve(num_ranks_);
  for (int rank = 0; rank < num_ranks_; ++rank) {
    const auto host = static_cast<int>(threads.size());
    try {
      threads.emplace_back([this, host, rank] { RunRank(host, rank); });
    } catch (const std::system_error& e) {
      End(rank, absl::ResourceExhaustedError(
                    absl::StrCat("testing: want a thread, found ", e.what())));
      continue;
    }
    scheduler_.AddHost(RankName(rank));
  }
  if (!threads.empty()) scheduler_.Start();
  for (std::thread& thread : threads) thread.join();
}

void Run::RunRank(int host, int rank) {
  scheduler_.Enter(host);
  {
    ScheduledDevice device(RankName(rank), scheduler_, detectors_[rank],
                           options_.memory_limit_bytes);
    std::unique_ptr<Stream> stream;
    std::unique_ptr<Communicator> communicator;
    std::optional<CommSet> comms;
    const auto run = [&]() -> absl::Status {
      TESSERA_ASSIGN_OR_RETURN(stream, device.NewStream("compute"));
      TESSERA_ASSIGN_OR_RETURN(communicator, world_.Join(rank, *stream));
      comms.emplace(*communicator);
      ScheduledRank self = {rank, num_ranks_, device, *stream, *comms};
      TESSERA_RETURN_IF_ERROR(
          tessera::internal::CallProgram([&] { return program_(self); }));
      return stream->Synchronize();
    };
    // Before the stream is destroyed, which waits for what it still holds.
    End(rank, run());
  }
  scheduler_.Leave();
}

void Run::End(int rank, const absl::Status& status) {
  ends_[rank] = status;
  if (!status.ok() && first_error_.ok()) {
    first_error_ = absl::Status(
        status.code(), absl::StrCat(RankName(rank), ": ", status.message()));
  }
  world_.Leave(rank, status);
}

std::vector<std::string> Run::Problems() const {
  std::vector<std::string> problems = world_.OrderDifferences();
  for (const RaceDetector& detector : detectors_) {
    problems.insert(problems.end(), detector.problems().begin(),
                    detector.problems().end());
  }
  return problems;
}

ScheduledReport Run::Report() const {
  ScheduledReport report = {
      .problems = Problems(), .waits = {}, .steps = scheduler_.steps()};
  for (const RaceDetector& detector : detectors_) {
    report.waits.push_back(detector.Waits());
  }
  return report;
}

absl::Status Run::Result() const {
  const absl::Status errors = internal::WithEveryRank(first_error_, ends_);
  const std::vector<std::string> problems = Problems();
  if (problems.empty()) return errors;
  int64_t not_listed = 0;
  for (const RaceDetector& detector : detectors_) {
    not_listed += detector.num_problems() -
                  static_cast<int64_t>(detector.problems().size());
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "testing: problems in the run of seed ", options_.seed, ":\n  ",
      absl::StrJoin(problems, "\n  "),
      not_listed == 0 ? "" : absl::StrCat("\n  and ", not_listed, " more"),
      errors.ok() ? "" : absl::StrCat("\n", errors.ToString())));
}

}  // namespace

absl::Status RunScheduledRanks(int num_ranks, Program program,
                               const ScheduledRunOptions& options,
                               ScheduledReport* report) {
  if (num_ranks < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("testing: want at least 1 rank, found ", num_ranks));
  }
  Run run(num_ranks, program, options);
  run.RunRanks();
  if (report != nullptr) *report = run.Report();
  return run.Result();
}

}  // namespace tessera::testing

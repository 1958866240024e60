// Trains a character-level transformer under Tessera and checks the run: see
// options.cc for the command line, trainer.cc for how a model uses Tessera.
//
// Exit status: 0 if all checks passed, 1 if one failed, the run did or its
// output could not be written, 2 for a command line or text that cannot be
// used.

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "char_lm/options.h"
#include "char_lm/process.h"
#include "char_lm/reference.h"
#include "char_lm/report.h"
#include "char_lm/text.h"
#include "char_lm/trainer.h"

namespace char_lm {
namespace {

constexpr int kFailed = 1;
constexpr int kUnusable = 2;

int Complain(const absl::Status& status, int exit_status) {
  absl::FPrintF(stderr, "char_lm: %s\n", status.message());
  return exit_status;
}

void Print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

// Prints the units, then one line that is written over on a terminal, a line
// per step elsewhere.
Observer ShowProgress(int steps) {
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  return {.prepared =
              [](const std::string& units) {
                Print("\n== units ==\n" + units + "\n== training ==\n");
              },
          .stepped =
              [=](const StepReport& report) {
                absl::PrintF(
                    "%sstep %4d  loss %.4f  norm %.4f  %8.0f tokens/s%s",
                    terminal ? "\r" : "", report.step, report.loss, report.norm,
                    report.tokens_per_second,
                    terminal && report.step + 1 < steps ? "" : "\n");
                std::fflush(stdout);
              }};
}

// Trains for two steps under the strategy that the run is held against. Memory
// and traffic are then those of any longer run.
absl::Status CompareStrategies(const Options& options, const Text& text,
                               const TrainResult& result) {
  if (options.against.empty()) return absl::OkStatus();
  Options other = options;
  other.steps = 2;
  other.trace_path.clear();
  absl::StatusOr<tessera::UnitPlacements> placements = tessera::PlacementsFor(
      options.against, static_cast<int>(options.DataParallelAxes().size()));
  if (!placements.ok()) return placements.status();
  other.placements = *std::move(placements);
  if (other.placements == options.placements) return absl::OkStatus();
  absl::StatusOr<TrainResult> other_result = Train(other, text, Observer());
  if (!other_result.ok()) return other_result.status();
  Print(DescribeSideBySide({options.placements_name, result},
                           {options.against, *other_result}));
  return CheckMemory(*other_result);
}

// Of all ranks; a process that is one of several knows of itself alone.
absl::Status WriteTrace(const Options& options, const TrainResult& result) {
  std::string path = options.trace_path;
  if (options.process != nullptr) {
    absl::StrAppend(&path, ".rank", options.process->rank());
  }
  std::ofstream file(path);
  file << tessera::ToChromeTrace(result.traces);
  file.close();
  if (file) return absl::OkStatus();
  return absl::UnavailableError("cannot write to " + path);
}

absl::Status TrainAndCheck(const Options& options, const Text& text) {
  absl::StatusOr<TrainResult> result =
      Train(options, text, ShowProgress(options.steps));
  if (!result.ok()) return result.status();
  if (!options.trace_path.empty()) {
    const absl::Status written = WriteTrace(options, *result);
    if (!written.ok()) return written;
  }

  absl::Status losses;
  if (options.compare) {
    auto oracle = std::async(std::launch::async, TrainOracle,
                             std::cref(options), std::cref(text));
    const absl::StatusOr<std::vector<double>> big_batch =
        TrainBigBatch(options, text);
    const absl::StatusOr<std::vector<double>> expected = oracle.get();
    for (const absl::Status& trained :
         {big_batch.status(), expected.status()}) {
      if (!trained.ok()) return trained;
    }
    const Tolerances tolerances = TolerancesOf(options);
    Print(DescribeLosses(*result, *expected, *big_batch, tolerances));
    losses = CheckLosses(*result, *expected, *big_batch, tolerances);
  }
  Print(DescribeCommunication(*result));
  Print(DescribeMemory(*result));
  losses.Update(CheckMemory(*result));
  losses.Update(CompareStrategies(options, text, *result));
  if (losses.ok()) Print("\nall checks passed\n");
  return losses;
}

// Finds out whether this process is one rank of several. Only rank 0 speaks.
absl::Status JoinProcesses(Options& options) {
  absl::StatusOr<std::shared_ptr<Process>> process = Process::Join(options);
  if (!process.ok()) return process.status();
  options.process = *std::move(process);
  if (options.process == nullptr || options.process->rank() == 0) {
    return absl::OkStatus();
  }
  if (std::freopen("/dev/null", "w", stdout) != nullptr) {
    return absl::OkStatus();
  }
  return absl::UnavailableError("cannot open /dev/null");
}

int Run(int argc, char** argv) {
  absl::StatusOr<Request> request = ParseCommandLine(argc, argv);
  if (!request.ok()) return Complain(request.status(), kUnusable);
  if (const auto* words = std::get_if<std::string>(&*request)) {
    Print(*words);
    return 0;
  }
  Options options = std::get<Options>(*std::move(request));
  const absl::Status joined = JoinProcesses(options);
  if (!joined.ok()) return Complain(joined, kFailed);
  absl::StatusOr<Text> text =
      LoadText(options.text_path, options.model.context);
  if (!text.ok()) return Complain(text.status(), kUnusable);
  options.model.vocab = text->vocab_size();

  absl::StatusOr<std::string> description = DescribeRun(options, *text);
  if (!description.ok()) return Complain(description.status(), kFailed);
  Print(*description);
  absl::Status status = TrainAndCheck(options, *text);
  if (status.ok() && options.process != nullptr) {
    status = options.process->Finish();
  }
  return status.ok() ? 0 : Complain(status, kFailed);
}

int Main(int argc, char** argv) {
  const int exit_status = Run(argc, argv);
  if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return exit_status;
  return Complain(absl::DataLossError("cannot write to stdout"), kFailed);
}

}  // namespace
}  // namespace char_lm

int main(int argc, char** argv) { return char_lm::Main(argc, argv); }

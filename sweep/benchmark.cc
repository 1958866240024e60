#include "tessera/sweep/benchmark.h"

#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "tessera/base/status_macros.h"
#include "tessera/sweep/cases.h"
#include "tessera/sweep/measure.h"

namespace tessera {
namespace {

std::string NameOf(const SweepRow& row) {
  std::string name = absl::StrCat("sweep/", row.tensor, "/", row.mesh);
  if (!row.from.empty()) absl::StrAppend(&name, "/", row.from, "->", row.to);
  return name;
}

void Report(const SweepRow& row, benchmark::State& state) {
  for (auto _ : state) state.SetIterationTime(row.seconds);
  state.SetLabel(row.plan);
  state.counters["bytes"] = static_cast<double>(row.bytes);
  state.counters["planning_s"] = row.planning_seconds;
  state.counters["predicted_s"] = row.predicted_seconds;
  state.counters["ratio_memcpy"] = row.MemcpyRatio();
  if (const auto ratio = row.BareRatio()) state.counters["ratio_bare"] = *ratio;
  state.counters["algbw"] = row.AlgBandwidth();
  state.counters["busbw"] = row.BusBandwidth();
}

void Run(benchmark::State& state, const internal::SweepCase& sweep_case,
         const SweepSpec& spec) {
  const absl::StatusOr<SweepRow> row = internal::Measure(sweep_case, spec);
  if (!row.ok()) {
    state.SkipWithError(row.status().ToString().c_str());
  } else if (!row->skipped.empty()) {
    state.SkipWithError(absl::StrCat("skipped: ", row->skipped).c_str());
  } else {
    Report(*row, state);
  }
}

}  // namespace

absl::Status RegisterSweep(const SweepSpec& spec) {
  TESSERA_ASSIGN_OR_RETURN(std::vector<internal::SweepCase> cases,
                           internal::SweepCases(spec));
  const auto shared = std::make_shared<const SweepSpec>(spec);
  for (internal::SweepCase& sweep_case : cases) {
    const std::string name = NameOf(sweep_case.row);
    benchmark::RegisterBenchmark(
        name.c_str(),
        [shared, sweep_case = std::move(sweep_case)](benchmark::State& state) {
          Run(state, sweep_case, *shared);
        })
        ->UseManualTime()
        ->Iterations(1)
        ->Unit(benchmark::kMicrosecond);
  }
  return absl::OkStatus();
}

}  // namespace tessera

// What a redistribution of several steps costs beside its collectives, called
// one by one, each on what the one before it wrote.
//
// Four ranks do both by turns; `ratio` is the median of the redistribution's
// turns over the sum of the collectives' medians.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/smoke.h"
#include "tessera/base/status_macros.h"
#include "tessera/mesh/topology.h"
#include "tessera/redistribute/planner.h"
#include "tessera/sweep/turns.h"
#include "tessera/sweep/works.h"

namespace tessera {
namespace {

constexpr int kRanks = 4;

struct Case {
  const char* tensor;
  const char* source;
  const char* target;
};

// Links of two speeds, so that plans have several steps.
Plan PlanOf(const Case& c) {
  const Topology topology =
      Topology::LocalCpu().WithLink("x", {5'000'000, 1'000'000'000}).value();
  const Layout source = Layout::Parse(std::string(c.tensor) + " " + c.source,
                                      DeviceMesh::Parse("x=2,y=2").value())
                            .value();
  return MakePlan(source, source.With(c.target).value(), topology).value();
}

// The redistribution, then its collectives one by one.
absl::StatusOr<std::vector<internal::Work>> WorksOf(
    const std::shared_ptr<const Plan>& plan, LocalRank& rank) {
  TESSERA_ASSIGN_OR_RETURN(internal::Work redistribution,
                           internal::RedistributionWork(plan, rank));
  TESSERA_ASSIGN_OR_RETURN(std::vector<internal::Work> works,
                           internal::BareCollectives(*plan, rank));
  works.insert(works.begin(), std::move(redistribution));
  return works;
}

void Execute(benchmark::State& state, const Case& c) {
  const auto plan = std::make_shared<const Plan>(PlanOf(c));
  const int64_t bytes = plan->source().meta().num_bytes();
  const int turns = static_cast<int>(std::max<int64_t>(21, (1 << 30) / bytes));
  const auto medians = internal::MedianSeconds(
      kRanks, {.count = TurnsOr(std::min(turns, 201))},
      [&](LocalRank& rank) { return WorksOf(plan, rank); });
  if (!medians.ok()) {
    state.SkipWithError(medians.status().ToString().c_str());
    return;
  }
  for (auto _ : state) state.SetIterationTime(medians->front());
  state.SetLabel(plan->ToString());
  state.counters["ratio"] =
      medians->front() /
      std::accumulate(medians->begin() + 1, medians->end(), 0.0);
}

#define TESSERA_BENCH_EXECUTE(name, ...)              \
  BENCHMARK_CAPTURE(Execute, name, Case{__VA_ARGS__}) \
      ->UseManualTime()                               \
      ->Iterations(1)                                 \
      ->Unit(benchmark::kMicrosecond)

TESSERA_BENCH_EXECUTE(all_reduce_64MiB, "f32[4096,4096]", "[P, P]", "[R, R]");
TESSERA_BENCH_EXECUTE(all_reduce_1MiB, "f32[512,512]", "[P, P]", "[R, R]");
TESSERA_BENCH_EXECUTE(all_reduce_64KiB, "f32[128,128]", "[P, P]", "[R, R]");
TESSERA_BENCH_EXECUTE(gather_64MiB, "f32[4096,4096]", "[S(0), S(1)]", "[R, R]");
TESSERA_BENCH_EXECUTE(gather_1MiB, "f32[512,512]", "[S(0), S(1)]", "[R, R]");
TESSERA_BENCH_EXECUTE(reduce_and_gather_64MiB, "f32[4096,4096]", "[P, S(0)]",
                      "[S(1), R]");
TESSERA_BENCH_EXECUTE(reduce_and_gather_1MiB, "f32[512,512]", "[P, S(0)]",
                      "[S(1), R]");
TESSERA_BENCH_EXECUTE(scatter_64MiB, "f32[4096,4096]", "[P, R]",
                      "[S(0), S(1)]");
TESSERA_BENCH_EXECUTE(scatter_1MiB, "f32[512,512]", "[P, R]", "[S(0), S(1)]");

}  // namespace
}  // namespace tessera

#ifndef TESSERA_SWEEP_BENCHMARK_H_
#define TESSERA_SWEEP_BENCHMARK_H_

#include "absl/status/status.h"
#include "tessera/sweep/sweep.h"

namespace tessera {

// Registers a Google Benchmark for each combination, "sweep/f32[64,64]/a=2,b=4/
// [P(sum), R]->[R, R]", that is run once, reports the median time of `spec`'s
// turns, the figures of SweepRow as counters (bandwidths in bytes per second),
// and the plan as its label. One that is skipped ends in an error that says
// why. Call it between benchmark::Initialize and RunSpecifiedBenchmarks.
//
//   benchmark::Initialize(&argc, argv);
//   if (absl::Status s = tessera::RegisterSweep(spec); !s.ok()) ...
//   benchmark::RunSpecifiedBenchmarks();
//
// Ranks are threads that the benchmark starts, not those of Google Benchmark,
// which would choose how often to repeat what on each by itself.
// ERRORS: InvalidArgument as for RunSweep.
absl::Status RegisterSweep(const SweepSpec& spec);

}  // namespace tessera

#endif  // TESSERA_SWEEP_BENCHMARK_H_

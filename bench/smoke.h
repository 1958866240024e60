#ifndef TESSERA_BENCH_SMOKE_H_
#define TESSERA_BENCH_SMOKE_H_

#include <cstdlib>

namespace tessera {

// True where the benchmarks are run only to see that they run: the environment
// variable TESSERA_BENCH_SMOKE is set.
inline bool IsSmoke() { return std::getenv("TESSERA_BENCH_SMOKE") != nullptr; }

// How many turns to measure.
inline int TurnsOr(int turns) { return IsSmoke() ? 1 : turns; }

}  // namespace tessera

#endif  // TESSERA_BENCH_SMOKE_H_

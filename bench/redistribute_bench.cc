// What redistributions cost on every mesh of eight ranks: `ratio_memcpy` beside
// a memcpy of the bytes that must move, `ratio_bare` beside their collectives
// called one by one.

#include <benchmark/benchmark.h>

#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "bench/smoke.h"
#include "tessera/base/status_macros.h"
#include "tessera/sweep/benchmark.h"

namespace tessera {
namespace {

absl::Status Register() {
  SweepSpec spec;
  TESSERA_ASSIGN_OR_RETURN(spec.meshes, Factorizations(8));
  for (const int64_t extent : {1024, 1001}) {  // even cuts and uneven ones
    TESSERA_ASSIGN_OR_RETURN(Shape shape, Shape::Create({extent, extent}));
    spec.shapes.push_back(shape);
  }
  spec.from = {"P", "S(0)"};
  spec.to = {"R", "S(1)"};
  spec.turns = TurnsOr(21);
  return RegisterSweep(spec);
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  if (const absl::Status status = tessera::Register(); !status.ok()) {
    std::fprintf(stderr, "redistribute_bench: %s\n",
                 std::string(status.message()).c_str());
    return 2;
  }
  benchmark::RunSpecifiedBenchmarks();
}

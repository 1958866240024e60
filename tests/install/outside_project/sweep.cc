// Registers and runs a sweep with the installed library.

#include <benchmark/benchmark.h>

#include <iostream>

#include "tessera/base/status_macros.h"
#include "tessera/sweep/benchmark.h"

namespace {

absl::Status Register() {
  tessera::SweepSpec spec;
  TESSERA_ASSIGN_OR_RETURN(spec.meshes, tessera::Factorizations(2));
  TESSERA_ASSIGN_OR_RETURN(const auto shape, tessera::Shape::Create({4, 4}));
  spec.shapes = {shape};
  spec.from = {"S(0)"};
  spec.to = {"R"};
  return tessera::RegisterSweep(spec);
}

}  // namespace

int main() {
  if (const absl::Status status = Register(); !status.ok()) {
    std::cerr << status << "\n";
    return 1;
  }
  return benchmark::RunSpecifiedBenchmarks() == 1 ? 0 : 1;
}

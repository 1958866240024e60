// What it costs to make a plan, and to find one in a cache.

#include <benchmark/benchmark.h>

#include <cstdint>

#include "tessera/mesh/topology.h"
#include "tessera/placement/layout.h"
#include "tessera/redistribute/plan_cache.h"
#include "tessera/redistribute/planner.h"

namespace tessera {
namespace {

struct Case {
  const char* mesh;
  const char* source;
  const char* target;
};

Layout SourceOf(const Case& c) {
  return Layout::Parse(c.source, DeviceMesh::Parse(c.mesh).value()).value();
}

Layout TargetOf(const Case& c) { return SourceOf(c).With(c.target).value(); }

// Pairs for which most layouts are searched: the slowest of a random sample.
void MakeColdPlan(benchmark::State& state, const Case& c) {
  const Layout source = SourceOf(c);
  const Layout target = TargetOf(c);
  const Topology topology = Topology::LocalCpu();
  for (auto _ : state) {
    benchmark::DoNotOptimize(MakePlan(source, target, topology));
  }
}

// From shards to shards.
BENCHMARK_CAPTURE(MakeColdPlan, mesh2_tensor2_shards,
                  Case{"a=2,b=4", "bf16[4096,4096] [S(0)[1], S(0)[0]]",
                       "[S(1), R]"});
BENCHMARK_CAPTURE(MakeColdPlan, mesh3_tensor3_shards,
                  Case{"a=2,b=4,c=8", "bf16[4096,4096,64] [S(0), R, R]",
                       "[R, S(0), R]"});
BENCHMARK_CAPTURE(MakeColdPlan, mesh4_tensor4_shards,
                  Case{"a=2,b=4,c=8,d=2",
                       "bf16[4096,512,64,64] [S(3), S(3), R, S(0)]",
                       "[S(1), R, R, R]"})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(
    MakeColdPlan, mesh5_tensor4_shards,
    Case{"a=2,b=4,c=8,d=2,e=4",
         "bf16[4096,512,64,64] [S(2)[2], S(2)[0], S(2)[1], S(0), S(0)]",
         "[R, S(1), R, S(2), R]"})
    ->Unit(benchmark::kMicrosecond);

// With sums, of which there are more layouts.
BENCHMARK_CAPTURE(MakeColdPlan, mesh2_tensor2_sums,
                  Case{"a=2,b=4", "bf16[4096,4096] [P(sum), R]",
                       "[R, P(sum)]"});
BENCHMARK_CAPTURE(MakeColdPlan, mesh3_tensor3_sums,
                  Case{"a=2,b=4,c=8", "bf16[4096,4096,64] [S(1), R, P(sum)]",
                       "[R, P(sum), P(sum)]"});
BENCHMARK_CAPTURE(MakeColdPlan, mesh4_tensor4_sums,
                  Case{"a=2,b=4,c=8,d=2",
                       "bf16[4096,512,64,64] [S(0), P(sum), R, S(1)]",
                       "[S(0)[1], S(0)[0], P(sum), P(sum)]"})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(
    MakeColdPlan, mesh5_tensor4_sums,
    Case{"a=2,b=4,c=8,d=2,e=4",
         "bf16[4096,512,64,64] [S(0)[1], P(sum), R, S(1), S(0)[0]]",
         "[P(sum), P(sum), P(sum), R, S(1)]"})
    ->Unit(benchmark::kMicrosecond);

// A full cache that the threads of a benchmark share.
class CachedPlan : public benchmark::Fixture {
 public:
  CachedPlan() {
    const DeviceMesh mesh = DeviceMesh::Parse(kCase.mesh).value();
    for (int64_t extent = 1; extent < kCapacity; ++extent) {
      const TensorMeta meta =
          TensorMeta::Create(DType::kBF16, {extent, 8}).value();
      const Layout layout =
          Layout::Create(meta, mesh, Placements(mesh.num_axes())).value();
      benchmark::DoNotOptimize(cache_.Get(layout, layout));
    }
    benchmark::DoNotOptimize(cache_.Get(SourceOf(kCase), TargetOf(kCase)));
  }

 protected:
  static constexpr int64_t kCapacity = 1024;
  static constexpr Case kCase = {
      "a=2,b=4,c=8,d=2",
      "bf16[4096,512,64,64] [S(0)[1], S(0)[0], P(sum), S(1)]",
      "[S(0), S(0), R, S(1)]"};

  PlanCache cache_{Topology::LocalCpu(), kCapacity};
};

// The caller's layouts share nothing with those in the cache.
BENCHMARK_DEFINE_F(CachedPlan, Get)(benchmark::State& state) {
  const Layout source = SourceOf(kCase);
  const Layout target = TargetOf(kCase);
  for (auto _ : state) benchmark::DoNotOptimize(cache_.Get(source, target));
}
BENCHMARK_REGISTER_F(CachedPlan, Get)->ThreadRange(1, 4)->UseRealTime();

}  // namespace
}  // namespace tessera

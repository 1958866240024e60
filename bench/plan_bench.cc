// What it costs to make a plan, and to find one in a cache.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "bench/smoke.h"
#include "tessera/mesh/topology.h"
#include "tessera/placement/layout.h"
#include "tessera/redistribute/plan_cache.h"
#include "tessera/redistribute/plan_many.h"
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

void MakeColdPlan(benchmark::State& state, const char* topology_name,
                  const Case& c) {
  const Layout source = SourceOf(c);
  const Layout target = TargetOf(c);
  const Topology topology = Topology::Preset(topology_name).value();
  for (auto _ : state) {
    benchmark::DoNotOptimize(MakePlan(source, target, topology));
  }
}

// Slow pairs of random samples, by the numbers of mesh axes and tensor dims:
// from shards to shards, to sums, of which there are more layouts, and from
// sums.
BENCHMARK_CAPTURE(MakeColdPlan, mesh2_tensor2_shards_cpu, "local-cpu",
                  Case{"a=8,b=8", "bf16[4096,16384] [S(1), S(0)]", "[R, R]"});
BENCHMARK_CAPTURE(MakeColdPlan, mesh2_tensor2_shards_h100, "h100-ib",
                  Case{"a=4,b=4", "bf16[4096,8192] [S(0), S(0)]", "[S(1), R]"});
BENCHMARK_CAPTURE(MakeColdPlan, mesh3_tensor3_shards_cpu, "local-cpu",
                  Case{"a=8,b=8,c=8", "bf16[2048,1024,2048] [R, S(0), R]",
                       "[S(1), S(0), S(0)]"})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(MakeColdPlan, mesh3_tensor3_shards_h100, "h100-ib",
                  Case{"a=4,b=8,c=2", "bf16[4096,2048,512] [S(0), S(0), S(2)]",
                       "[R, R, S(0)]"})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(MakeColdPlan, mesh4_tensor4_shards_cpu, "local-cpu",
                  Case{"a=2,b=4,c=8,d=2",
                       "bf16[1024,1024,1024,512] [S(1), S(3), S(1), S(2)]",
                       "[R, S(1), R, R]"})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(MakeColdPlan, mesh4_tensor4_shards_h100, "h100-ib",
                  Case{"a=2,b=4,c=8,d=2",
                       "bf16[1024,1024,1024,512] [S(1), S(3), S(1), S(2)]",
                       "[R, S(1), R, R]"})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(MakeColdPlan, mesh5_tensor4_shards_cpu, "local-cpu",
                  Case{"a=4,b=8,c=4,d=4,e=8",
                       "bf16[256,1024,256,256] [S(3), S(0), S(2), S(3), S(3)]",
                       "[R, S(2), S(1), S(1), R]"})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(
    MakeColdPlan, mesh5_tensor4_shards_h100, "h100-ib",
    Case{"a=2,b=4,c=4,d=4,e=8",
         "bf16[256,512,1024,256] [S(0)[1], S(3), S(0)[0], S(2), S(1)]",
         "[S(2), R, R, S(3), R]"})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(MakeColdPlan, mesh2_tensor2_sums_cpu, "local-cpu",
                  Case{"a=4,b=8", "bf16[8192,8192] [S(1), R]",
                       "[P(sum), P(sum)]"});
BENCHMARK_CAPTURE(MakeColdPlan, mesh2_tensor2_sums_h100, "h100-ib",
                  Case{"a=2,b=8", "bf16[8192,8192] [R, R]",
                       "[P(sum), P(sum)]"});
BENCHMARK_CAPTURE(MakeColdPlan, mesh3_tensor3_sums_cpu, "local-cpu",
                  Case{"a=8,b=4,c=8",
                       "bf16[4096,1024,2048] [R, S(0)[1], S(0)[0]]",
                       "[P(sum), P(sum), P(sum)]"})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(MakeColdPlan, mesh3_tensor3_sums_h100, "h100-ib",
                  Case{"a=4,b=8,c=8",
                       "bf16[2048,512,1024] [P(sum), S(2), S(2)]",
                       "[P(sum), R, P(sum)]"})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(MakeColdPlan, mesh4_tensor4_sums_cpu, "local-cpu",
                  Case{"a=2,b=8,c=4,d=2",
                       "bf16[1024,256,256,1024] [S(3)[1], S(0), S(3)[0], "
                       "P(sum)]",
                       "[R, P(sum), P(sum), R]"})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(MakeColdPlan, mesh4_tensor4_sums_h100, "h100-ib",
                  Case{"a=2,b=8,c=8,d=8",
                       "bf16[512,512,256,1024] [S(0), S(3), P(sum), S(0)]",
                       "[P(sum), P(sum), R, S(2)]"})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(
    MakeColdPlan, mesh5_tensor4_sums_cpu, "local-cpu",
    Case{"a=8,b=8,c=2,d=2,e=2",
         "bf16[256,1024,512,256] [S(3)[2], S(2), S(3)[0], S(3)[1], S(1)]",
         "[R, R, S(1), P(sum), S(2)]"})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(
    MakeColdPlan, mesh5_tensor4_sums_h100, "h100-ib",
    Case{"a=8,b=8,c=2,d=2,e=2",
         "bf16[256,1024,512,256] [S(3)[2], S(2), S(3)[0], S(3)[1], S(1)]",
         "[R, R, S(1), P(sum), S(2)]"})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(MakeColdPlan, mesh2_tensor2_reduced_h100, "h100-ib",
                  Case{"a=8,b=4", "bf16[2048,2048] [P(sum), R]",
                       "[R, P(sum)]"});
BENCHMARK_CAPTURE(MakeColdPlan, mesh3_tensor3_reduced_h100, "h100-ib",
                  Case{"a=8,b=8,c=8", "bf16[2048,512,512] [R, P(sum), P(sum)]",
                       "[R, R, R]"})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(MakeColdPlan, mesh4_tensor4_reduced_h100, "h100-ib",
                  Case{"a=8,b=8,c=8,d=8",
                       "bf16[512,256,512,2048] [P(sum), S(0)[1], S(0)[0], "
                       "S(1)]",
                       "[P(sum), R, P(sum), S(0)]"})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(MakeColdPlan, mesh5_tensor4_reduced_h100, "h100-ib",
                  Case{"a=8,b=8,c=4,d=4,e=2",
                       "bf16[256,1024,256,256] [R, P(sum), R, S(2), S(1)]",
                       "[S(1)[1], R, R, S(1)[0], S(0)]"})
    ->Unit(benchmark::kMicrosecond);

// The number of ranks does not count.
BENCHMARK_CAPTURE(MakeColdPlan, mesh2_ranks64, "h100-ib",
                  Case{"x=8,y=8", "bf16[131072,131072] [S(0), S(1)]",
                       "[S(1), R]"});
BENCHMARK_CAPTURE(MakeColdPlan, mesh2_ranks131072, "h100-ib",
                  Case{"x=1024,y=128", "bf16[131072,131072] [S(0), S(1)]",
                       "[S(1), R]"});
BENCHMARK_CAPTURE(MakeColdPlan, mesh3_ranks64, "h100-ib",
                  Case{"x=4,y=4,z=4", "bf16[131072,131072] [S(0), S(1), R]",
                       "[S(1), R, S(0)]"})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(MakeColdPlan, mesh3_ranks131072, "h100-ib",
                  Case{"x=64,y=64,z=32", "bf16[131072,131072] [S(0), S(1), R]",
                       "[S(1), R, S(0)]"})
    ->Unit(benchmark::kMicrosecond);

// Every number of mesh axes with every number of tensor dims, where all that is
// sharded moves and a sum is reduced. Extents are even or leave uneven pieces.
Redistribution Typical(const benchmark::State& state) {
  const auto num_axes = static_cast<int>(state.range(0));
  const auto num_dims = static_cast<int>(state.range(1));
  const bool uneven = state.range(2) != 0;
  const char* const meshes[] = {"a=8", "a=2,b=4", "a=2,b=2,c=2",
                                "a=2,b=2,c=2,d=2", "a=2,b=2,c=2,d=2,e=2"};
  const DeviceMesh mesh = DeviceMesh::Parse(meshes[num_axes - 1]).value();
  const TensorMeta meta =
      TensorMeta::Create(DType::kBF16, Dims(num_dims, uneven ? 101 : 128))
          .value();
  Placements from = {Placement::Partial()};
  Placements to = {Placement::Shard(0)};
  for (int axis = 1; axis < num_axes; ++axis) {
    from.push_back(Placement::Shard(axis % num_dims));
    to.push_back(Placement::Shard((axis + 1) % num_dims));
  }
  return {Layout::Create(meta, mesh, from).value(),
          Layout::Create(meta, mesh, to).value()};
}

void Cold(benchmark::State& state) {
  const Redistribution r = Typical(state);
  const Topology topology = Topology::LocalCpu();
  for (auto _ : state) {
    benchmark::DoNotOptimize(MakePlan(r.source, r.target, topology));
  }
}

void Cached(benchmark::State& state) {
  const Redistribution r = Typical(state);
  PlanCache cache(Topology::LocalCpu(), /*capacity=*/1);
  benchmark::DoNotOptimize(cache.Get(r.source, r.target));
  for (auto _ : state) {
    benchmark::DoNotOptimize(cache.Get(r.source, r.target));
  }
}

// So many pairs of random layouts, a different mesh and shape for each. Sizes
// and extents are powers of two; a quarter of the pairs has no sums.
std::vector<Redistribution> RandomPairs(int num_axes, int num_dims, int count) {
  const char* const kNames[] = {"a", "b", "c", "d", "e"};
  std::mt19937 rng(1);
  std::vector<Redistribution> pairs;
  while (static_cast<int>(pairs.size()) < count) {
    std::vector<DeviceMesh::AxisSize> axes;
    for (int axis = 0; axis < num_axes; ++axis) {
      axes.push_back({kNames[axis], 2 << rng() % 3});
    }
    const DeviceMesh mesh = DeviceMesh::Create(axes).value();
    Dims extents;
    for (int dim = 0; dim < num_dims; ++dim) {
      extents.push_back(int64_t{64} << rng() % 7);
    }
    const TensorMeta meta = TensorMeta::Create(DType::kBF16, extents).value();
    const uint32_t kinds = num_dims + (rng() % 4 == 0 ? 1 : 2);
    const auto random_layout = [&] {
      Placements placements;
      for (int axis = 0; axis < num_axes; ++axis) {
        const int kind = static_cast<int>(rng() % kinds);
        placements.push_back(kind < num_dims    ? Placement::Shard(kind)
                             : kind == num_dims ? Placement::Replicate()
                                                : Placement::Partial());
      }
      return Layout::Create(meta, mesh, placements).value();
    };
    const Layout source = random_layout();
    pairs.push_back({source, random_layout()});
  }
  return pairs;
}

// Microseconds of the median pair, the slowest of 95 %, and the slowest. A pair
// counts with its fastest turn.
void RandomColdPlans(benchmark::State& state) {
  using Clock = std::chrono::steady_clock;
  using Microseconds = std::chrono::duration<double, std::micro>;
  const Topology topology = Topology::Preset("h100-ib").value();
  const std::vector<Redistribution> pairs = RandomPairs(
      static_cast<int>(state.range(0)), static_cast<int>(state.range(1)),
      IsSmoke() ? 2 : static_cast<int>(state.range(2)));
  std::vector<double> fastest(pairs.size(),
                              std::numeric_limits<double>::infinity());
  for (auto _ : state) {
    for (size_t i = 0; i < pairs.size(); ++i) {
      const Clock::time_point begin = Clock::now();
      benchmark::DoNotOptimize(
          MakePlan(pairs[i].source, pairs[i].target, topology));
      fastest[i] =
          std::min(fastest[i], Microseconds(Clock::now() - begin).count());
    }
  }
  std::sort(fastest.begin(), fastest.end());
  state.counters["p50_us"] = fastest[fastest.size() / 2];
  state.counters["p95_us"] = fastest[fastest.size() * 95 / 100];
  state.counters["max_us"] = fastest.back();
}
BENCHMARK(RandomColdPlans)
    ->ArgNames({"axes", "dims", "pairs"})
    ->Args({2, 2, 1000})
    ->Args({3, 3, 1000})
    ->Args({4, 4, 100})
    ->Args({5, 4, 20})
    ->Iterations(9)
    ->Unit(benchmark::kMillisecond);

void AxesDimsAndEvenness(benchmark::internal::Benchmark* b) {
  b->ArgNames({"axes", "dims", "uneven"});
  b->ArgsProduct({{1, 2, 3, 4, 5}, {1, 2, 3, 4}, {0, 1}});
}
BENCHMARK(Cold)->Apply(AxesDimsAndEvenness)->Unit(benchmark::kMicrosecond);
BENCHMARK(Cached)->Apply(AxesDimsAndEvenness);

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

// What it costs to make a layout, to say which elements a rank holds, and to
// find what ranks have in common.

#include <benchmark/benchmark.h>

#include <cstddef>

#include "tessera/placement/layout.h"

namespace tessera {
namespace {

struct Case {
  const char* mesh;
  const char* layout;
};

Layout LayoutOf(const Case& c) {
  return Layout::Parse(c.layout, DeviceMesh::Parse(c.mesh).value()).value();
}

constexpr Case kEven = {"a=4,b=8", "bf16[4096,16384] [S(0), S(1)]"};
constexpr Case kUneven = {"a=4,b=8", "bf16[4099,16381] [S(0), S(1)]"};
constexpr Case kNested = {"a=2,b=4,c=8",
                          "bf16[4099,16381] [S(0)[2], S(0)[0], S(0)[1]]"};
constexpr Case kFiveAxes = {
    "a=2,b=4,c=4,d=4,e=8",
    "bf16[256,512,1024,256] [S(0)[1], S(3), S(0)[0], S(2), S(1)]"};
constexpr Case kRagged = {"a=4,b=8",
                          "bf16[4096,16384] [S(0), Ragged(-1000+2098000)[0]]"};
constexpr Case kManyRanks = {"a=1024,b=128",
                             "bf16[131072,131072] [S(0), S(1)]"};

void ParseLayout(benchmark::State& state, const Case& c) {
  const DeviceMesh mesh = DeviceMesh::Parse(c.mesh).value();
  for (auto _ : state) {
    benchmark::DoNotOptimize(Layout::Parse(c.layout, mesh));
  }
}

void RegionOf(benchmark::State& state, const Case& c) {
  const Layout layout = LayoutOf(c);
  const int rank = layout.mesh().size() - 1;
  for (auto _ : state) benchmark::DoNotOptimize(layout.RegionOf(rank));
}

void LocalMeta(benchmark::State& state, const Case& c) {
  const Layout layout = LayoutOf(c);
  const int rank = layout.mesh().size() - 1;
  for (auto _ : state) benchmark::DoNotOptimize(layout.LocalMeta(rank));
}

void MostElements(benchmark::State& state, const Case& c) {
  const Layout layout = LayoutOf(c);
  for (auto _ : state) benchmark::DoNotOptimize(layout.MostElements());
}

#define TESSERA_BENCH_REGIONS(function)              \
  BENCHMARK_CAPTURE(function, even, kEven);          \
  BENCHMARK_CAPTURE(function, uneven, kUneven);      \
  BENCHMARK_CAPTURE(function, nested, kNested);      \
  BENCHMARK_CAPTURE(function, five_axes, kFiveAxes); \
  BENCHMARK_CAPTURE(function, ragged, kRagged);      \
  BENCHMARK_CAPTURE(function, ranks131072, kManyRanks)

TESSERA_BENCH_REGIONS(ParseLayout);
TESSERA_BENCH_REGIONS(RegionOf);
TESSERA_BENCH_REGIONS(LocalMeta);
TESSERA_BENCH_REGIONS(MostElements);

// The regions of all ranks of two layouts, each intersected with each: what an
// exchange between them comes down to, without the shortcuts.
void IntersectAll(benchmark::State& state) {
  const DeviceMesh mesh = DeviceMesh::Parse("a=8,b=8").value();
  const Layout from =
      Layout::Parse("bf16[4099,16381] [S(0), S(1)]", mesh).value();
  const Layout to = from.With("[S(1), S(0)]").value();
  for (auto _ : state) {
    for (int sender = 0; sender < mesh.size(); ++sender) {
      const Region had = from.RegionOf(sender);
      for (int receiver = 0; receiver < mesh.size(); ++receiver) {
        const Region gets = to.RegionOf(receiver);
        for (size_t dim = 0; dim < had.box.size(); ++dim) {
          benchmark::DoNotOptimize(Intersect(had.box[dim], gets.box[dim]));
        }
      }
    }
  }
}
BENCHMARK(IntersectAll)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace tessera

// What a redistribution of several steps costs beside its steps run bare: the
// collectives and kernels that they come down to, called one by one on memory
// that is there.
//
// Four ranks do both by turns; `ratio` is the median of the redistribution's
// turns over the sum of the steps' medians.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
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
#include "tessera/redistribute/execute.h"
#include "tessera/redistribute/planner.h"
#include "tessera/sweep/turns.h"

namespace tessera {
namespace {

constexpr int kRanks = 4;

using Bytes = std::vector<std::byte>;

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

// A step of one axis that cuts evenly, from one memory to another.
absl::StatusOr<internal::Work> Bare(const Step& step, LocalRank& rank,
                                    std::byte* from, std::byte* to) {
  const TensorView in(from, step.before.LocalMeta(rank.rank));
  const TensorView out(to, step.after.LocalMeta(rank.rank));
  const int axis = step.axes.front();
  const Placement before = step.before.placement(axis);
  const Placement after = step.after.placement(axis);
  if (step.kind == StepKind::kSlice) {
    const int coordinate = (*step.before.mesh().CoordsOf(rank.rank))[axis];
    const TensorView piece = in.Slice(
        after.dim(), CeilSplit(in.shape().extent(after.dim()), 2, coordinate));
    return internal::Work([&rank, out, piece] {
      return rank.device.kernels().Copy(rank.stream, out, piece);
    });
  }
  TESSERA_ASSIGN_OR_RETURN(
      Communicator * comm,
      rank.comms.Get(step.before.mesh(), step.axes, rank.stream));
  return internal::Work([=, kind = step.kind] {
    switch (kind) {
      case StepKind::kAllGather:
        return comm->AllGather(in, out, before.dim());
      case StepKind::kReduceScatter:
        return comm->ReduceScatter(before.op(), in, out, after.dim());
      case StepKind::kAllReduce:
        return comm->AllReduce(before.op(), in, out);
      case StepKind::kAllToAll:
        return comm->AllToAll(in, after.dim(), {}, out, before.dim(), {});
      default:
        return absl::UnimplementedError("no bare form");
    }
  });
}

absl::StatusOr<std::vector<internal::Work>> WorksOf(const Plan& plan,
                                                    LocalRank& rank) {
  TESSERA_ASSIGN_OR_RETURN(
      PreparedPlan made,
      Prepare(std::make_shared<const Plan>(plan), rank.comms, rank.stream));
  const auto prepared = std::make_shared<PreparedPlan>(std::move(made));
  // The source, what lies behind each step, the target, the workspace.
  const auto memory = std::make_shared<std::vector<Bytes>>();
  const TensorMeta source = plan.source().LocalMeta(rank.rank);
  const TensorMeta target = plan.target().LocalMeta(rank.rank);
  memory->emplace_back(source.num_bytes());
  for (const Step& step : plan.steps()) {
    memory->emplace_back(step.after.LocalMeta(rank.rank).num_bytes());
  }
  memory->emplace_back(target.num_bytes());
  memory->emplace_back(prepared->workspace_bytes());
  std::vector<internal::Work> works = {[=] {
    Bytes& workspace = memory->back();
    return prepared->Execute(
        TensorView(memory->front().data(), source),
        TensorView((*memory)[memory->size() - 2].data(), target),
        {workspace.data(), static_cast<int64_t>(workspace.size())});
  }};
  for (size_t i = 0; i < plan.steps().size(); ++i) {
    TESSERA_ASSIGN_OR_RETURN(internal::Work bare,
                             Bare(plan.steps()[i], rank, (*memory)[i].data(),
                                  (*memory)[i + 1].data()));
    works.push_back(std::move(bare));
  }
  return works;
}

void Execute(benchmark::State& state, const Case& c) {
  const Plan plan = PlanOf(c);
  const int64_t bytes = plan.source().meta().num_bytes();
  const int turns = static_cast<int>(std::max<int64_t>(21, (1 << 30) / bytes));
  const auto medians = internal::MedianSeconds(
      kRanks, {.count = TurnsOr(std::min(turns, 201))},
      [&](LocalRank& rank) { return WorksOf(plan, rank); });
  if (!medians.ok()) {
    state.SkipWithError(medians.status().ToString().c_str());
    return;
  }
  for (auto _ : state) state.SetIterationTime(medians->front());
  state.SetLabel(plan.ToString());
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

// What the FSDP runtime costs beside what it has to do.
//
//   Hooks        what a unit costs in a step beside its data, of which there is
//                next to none: `us_per_unit` of the rank's CPU time where
//                streams are inline, of wall time where they are workers
//   Communicate  forward and backward of units without computation, beside
//                their collectives and the accumulation called one by one
//   Overlap      a step whose computation is a timer, beside what the times of
//                bare collectives predict, with overlap and without
//
// Works take turns; a ratio is one of medians.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "bench/smoke.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/run_ranks.h"
#include "tessera/fsdp/context.h"
#include "tessera/fsdp/optimizer.h"
#include "tessera/sweep/turns.h"

namespace tessera {
namespace {

using Seconds = std::chrono::duration<double>;

struct ModelOptions {
  std::string mesh;
  std::string strategy;
  int units = 1;
  int64_t elements = 1;  // of each, f32
  CpuStreams streams = CpuStreams::kInline;
  OverlapOptions overlap = {};
};

// Units of one weight each, one after the other, on one rank.
class Model {
 public:
  static absl::StatusOr<std::shared_ptr<Model>> Create(
      const ModelOptions& options, LocalRank& rank) {
    auto model = std::make_shared<Model>(options.streams);
    TESSERA_ASSIGN_OR_RETURN(model->compute_,
                             model->device_.NewStream("compute"));
    FsdpOptions fsdp;
    TESSERA_ASSIGN_OR_RETURN(fsdp.mesh, DeviceMesh::Parse(options.mesh));
    TESSERA_ASSIGN_OR_RETURN(
        fsdp.placements, PlacementsFor(options.strategy, fsdp.mesh.num_axes()));
    fsdp.overlap = options.overlap;
    TESSERA_ASSIGN_OR_RETURN(
        model->context_,
        Context::Create(std::move(fsdp), rank.comms.world(), *model->compute_));
    TESSERA_ASSIGN_OR_RETURN(
        const TensorMeta meta,
        TensorMeta::Create(DType::kF32, {options.elements}));
    for (int u = 0; u < options.units; ++u) {
      UnitBuilder builder = model->context_->NewUnit(absl::StrCat("unit", u));
      builder.Add("w", meta);
      TESSERA_ASSIGN_OR_RETURN(Unit * unit, builder.Build());
      model->units_.push_back(unit);
    }
    TESSERA_RETURN_IF_ERROR(model->context_->Prepare());
    return model;
  }

  explicit Model(CpuStreams streams) : device_({.streams = streams}) {}

  Stream& compute() { return *compute_; }
  Context& context() { return *context_; }

  // Forward and backward; each unit computes for `timer` in both.
  absl::Status Run(Seconds timer = Seconds(0)) {
    for (Unit* unit : units_) {
      unit->BeforeForward();
      TESSERA_RETURN_IF_ERROR(Sleep(timer));
      unit->AfterForward();
    }
    for (auto it = units_.rbegin(); it != units_.rend(); ++it) {
      (*it)->BeforeBackward();
      TESSERA_RETURN_IF_ERROR(
          (*it)->grad(0, GradientWrite::kOverwrite).status());
      TESSERA_RETURN_IF_ERROR(Sleep(timer));
      (*it)->AfterBackward();
    }
    return context_->status();
  }

 private:
  absl::Status Sleep(Seconds timer) {
    if (timer.count() == 0) return absl::OkStatus();
    return compute_->Launch({.name = "timer"}, [timer] {
      std::this_thread::sleep_for(timer);
      return absl::OkStatus();
    });
  }

  CpuDevice device_;
  std::unique_ptr<Stream> compute_;
  std::unique_ptr<Context> context_;
  std::vector<Unit*> units_;
};

double ThreadCpuSeconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) +
         static_cast<double>(time.tv_nsec) * 1e-9;
}

double WallSeconds() {
  return Seconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The median over turns of what a step costs rank 0 by `clock`.
absl::StatusOr<double> SecondsPerStep(const ModelOptions& options,
                                      double (*clock)()) {
  constexpr int kSteps = 10;
  std::vector<double> turns;
  TESSERA_ASSIGN_OR_RETURN(const DeviceMesh mesh,
                           DeviceMesh::Parse(options.mesh));
  const absl::Status status = RunLocalRanks(
      static_cast<int>(mesh.size()), [&](LocalRank& rank) -> absl::Status {
        TESSERA_ASSIGN_OR_RETURN(const std::shared_ptr<Model> model,
                                 Model::Create(options, rank));
        SgdOptimizer optimizer(model->context(), 0.1);
        for (int turn = 0; turn < TurnsOr(51) + 1; ++turn) {
          const double begin = clock();
          for (int step = 0; step < kSteps; ++step) {
            TESSERA_RETURN_IF_ERROR(model->Run());
            TESSERA_RETURN_IF_ERROR(optimizer.Step());
            TESSERA_RETURN_IF_ERROR(
                model->context().ZeroGradients(ZeroGrad::kRelease));
          }
          TESSERA_RETURN_IF_ERROR(model->context().Synchronize());
          // The first turn only warms up.
          if (rank.rank != 0 || turn == 0) continue;
          turns.push_back((clock() - begin) / kSteps);
        }
        return absl::OkStatus();
      });
  TESSERA_RETURN_IF_ERROR(status);
  return internal::Median(turns);
}

void Hooks(benchmark::State& state, const char* mesh, const char* strategy,
           CpuStreams streams) {
  const ModelOptions options = {.mesh = mesh,
                                .strategy = strategy,
                                .units = 32,
                                .elements = 64,
                                .streams = streams};
  const auto seconds = SecondsPerStep(
      options, streams == CpuStreams::kInline ? ThreadCpuSeconds : WallSeconds);
  if (!seconds.ok()) {
    state.SkipWithError(seconds.status().ToString().c_str());
    return;
  }
  for (auto _ : state) state.SetIterationTime(*seconds);
  state.counters["us_per_unit"] = *seconds / options.units * 1e6;
}

#define TESSERA_BENCH_HOOKS(name, ...)        \
  BENCHMARK_CAPTURE(Hooks, name, __VA_ARGS__) \
      ->UseManualTime()                       \
      ->Iterations(1)                         \
      ->Unit(benchmark::kMicrosecond)

TESSERA_BENCH_HOOKS(inline_1_rank, "dp=1", "fsdp", CpuStreams::kInline);
TESSERA_BENCH_HOOKS(inline_4_ranks, "dp_outer=2,dp_inner=2", "hsdp",
                    CpuStreams::kInline);
TESSERA_BENCH_HOOKS(worker_1_rank, "dp=1", "fsdp", CpuStreams::kWorker);
TESSERA_BENCH_HOOKS(worker_2_ranks, "dp=2", "fsdp", CpuStreams::kWorker);
TESSERA_BENCH_HOOKS(worker_4_ranks, "dp_outer=2,dp_inner=2", "hsdp",
                    CpuStreams::kWorker);

// The collectives of fully sharded units, on memory of their own.
class Bare {
 public:
  // Whole tensors of `elements` f32.
  static absl::StatusOr<std::shared_ptr<Bare>> Create(int64_t elements,
                                                      LocalRank& rank) {
    auto bare = std::make_shared<Bare>(rank.comms.world());
    const int64_t part = elements / rank.num_ranks;
    TESSERA_ASSIGN_OR_RETURN(bare->weight_, bare->Add(part, rank));
    TESSERA_ASSIGN_OR_RETURN(bare->gathered_, bare->Add(elements, rank));
    TESSERA_ASSIGN_OR_RETURN(bare->gradient_, bare->Add(elements, rank));
    TESSERA_ASSIGN_OR_RETURN(bare->sum_, bare->Add(part, rank));
    return bare;
  }

  explicit Bare(Communicator& comm) : comm_(comm) {}

  absl::Status Gather() { return comm_.AllGather(weight_, gathered_); }
  // In place, and accumulates what is left.
  absl::Status Reduce() {
    const int64_t part = sum_.num_elements();
    const TensorView reduced =
        gradient_.Slice(0, {comm_.rank() * part, (comm_.rank() + 1) * part});
    TESSERA_RETURN_IF_ERROR(
        comm_.ReduceScatter(ReduceOp::kSum, gradient_, reduced));
    return comm_.stream().device().kernels().AccumulateScaled(
        comm_.stream(), sum_, reduced, 0.5);
  }

 private:
  // Memory of zeros.
  absl::StatusOr<TensorView> Add(int64_t elements, LocalRank& rank) {
    TESSERA_ASSIGN_OR_RETURN(Buffer buffer,
                             rank.device.Allocate(4 * elements, "bare"));
    const TensorView view =
        TensorView::Flat(buffer.data(), DType::kF32, elements);
    buffers_.push_back(std::move(buffer));
    TESSERA_RETURN_IF_ERROR(rank.device.kernels().Fill(rank.stream, view, 0.0));
    return view;
  }

  Communicator& comm_;
  std::vector<Buffer> buffers_;
  TensorView weight_;
  TensorView gathered_;
  TensorView gradient_;
  TensorView sum_;
};

void Communicate(benchmark::State& state) {
  constexpr int kUnits = 2;
  const int64_t elements = state.range(0) / 4;
  const auto medians = internal::MedianSeconds(
      4, {.count = TurnsOr(21)},
      [&](LocalRank& rank) -> absl::StatusOr<std::vector<internal::Work>> {
        TESSERA_ASSIGN_OR_RETURN(const std::shared_ptr<Model> model,
                                 Model::Create({.mesh = "dp=4",
                                                .strategy = "fsdp",
                                                .units = kUnits,
                                                .elements = elements},
                                               rank));
        TESSERA_ASSIGN_OR_RETURN(const std::shared_ptr<Bare> bare,
                                 Bare::Create(elements, rank));
        return std::vector<internal::Work>{
            [model] {
              TESSERA_RETURN_IF_ERROR(model->Run());
              return model->context().Synchronize();
            },
            [bare, units = kUnits] {
              absl::Status status;
              for (int u = 0; u < units; ++u) {
                status.Update(bare->Gather());
                status.Update(bare->Gather());
                status.Update(bare->Reduce());
              }
              return status;
            }};
      });
  if (!medians.ok()) {
    state.SkipWithError(medians.status().ToString().c_str());
    return;
  }
  for (auto _ : state) state.SetIterationTime(medians->front());
  state.counters["ratio"] = medians->front() / medians->back();
}
BENCHMARK(Communicate)
    ->ArgName("bytes")
    ->Arg(1 << 20)
    ->Arg(64 << 20)
    ->UseManualTime()
    ->Iterations(1)
    ->Unit(benchmark::kMicrosecond);

// Two ranks: more would want more processors than computation by a timer
// leaves free on small machines.
void Overlap(benchmark::State& state) {
  constexpr int kUnits = 8;
  constexpr int64_t kElements = 4 << 20;
  const Seconds timer(0.02);
  const ModelOptions on = {.mesh = "dp=2",
                           .strategy = "fsdp",
                           .units = kUnits,
                           .elements = kElements,
                           .streams = CpuStreams::kWorker};
  ModelOptions off = on;
  off.overlap = {.prefetch = 0,
                 .gradients_in_flight = 1,
                 .streams = CommunicationStreams::kShared};
  const auto medians = internal::MedianSeconds(
      2, {.count = TurnsOr(11)},
      [&](LocalRank& rank) -> absl::StatusOr<std::vector<internal::Work>> {
        std::vector<internal::Work> works;
        for (const ModelOptions& options : {on, off}) {
          TESSERA_ASSIGN_OR_RETURN(const std::shared_ptr<Model> model,
                                   Model::Create(options, rank));
          works.emplace_back([model, timer] {
            TESSERA_RETURN_IF_ERROR(model->Run(timer));
            return model->context().Synchronize();
          });
        }
        TESSERA_ASSIGN_OR_RETURN(const std::shared_ptr<Bare> bare,
                                 Bare::Create(kElements, rank));
        works.emplace_back([bare] { return bare->Gather(); });
        works.emplace_back([bare] { return bare->Reduce(); });
        return works;
      });
  if (!medians.ok()) {
    state.SkipWithError(medians.status().ToString().c_str());
    return;
  }
  const double gather = (*medians)[2];
  const double reduce = (*medians)[3];
  const double compute = 2 * kUnits * timer.count();
  // What is exposed: the first gather of either direction and the last
  // reduction; or everything.
  const double predicted_on = compute + 2 * gather + reduce;
  const double predicted_off = compute + kUnits * (2 * gather + reduce);
  for (auto _ : state) state.SetIterationTime((*medians)[0]);
  state.counters["ratio_on"] = (*medians)[0] / predicted_on;
  state.counters["ratio_off"] = (*medians)[1] / predicted_off;
  state.counters["off_over_on"] = (*medians)[1] / (*medians)[0];
}
BENCHMARK(Overlap)->UseManualTime()->Iterations(1)->Unit(
    benchmark::kMillisecond);

}  // namespace
}  // namespace tessera

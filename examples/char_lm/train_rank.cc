#include "char_lm/train_rank.h"

#include <chrono>
#include <memory>
#include <utility>

#include "char_lm/optimizer.h"
#include "char_lm/rank_model.h"
#include "tessera/base/status_macros.h"
#include "tessera/device/host_scalar.h"
#include "tessera/fsdp/coalesced_all_reduce.h"
#include "tessera/fsdp/context.h"
#include "tessera/fsdp/gradient_norm.h"
#include "tessera/fsdp/memory_plan.h"

namespace char_lm {
namespace {

using tessera::Context;
using tessera::TensorView;

double TokensPerStep(const Options& options) {
  return static_cast<double>(options.data_parallel_size()) *
         options.microbatches * options.batch * options.model.context;
}

// The sum of a number of the host over all ranks, the same on each of them.
absl::StatusOr<double> SumOverRanks(double value,
                                    tessera::Communicator& world) {
  const TensorView view = TensorView::Flat(&value, tessera::DType::kF64, 1);
  TESSERA_RETURN_IF_ERROR(world.AllReduce(tessera::ReduceOp::kSum, view, view));
  TESSERA_RETURN_IF_ERROR(world.stream().Synchronize());
  return value;
}

// The same by way of a GPU.
absl::StatusOr<double> SumOverGpus(double value, tessera::Communicator& world) {
  tessera::Stream& stream = world.stream();
  TESSERA_ASSIGN_OR_RETURN(auto number,
                           tessera::HostScalar::Create(stream, kLossTag));
  TESSERA_RETURN_IF_ERROR(
      stream.device().kernels().Fill(stream, number.view(), value));
  TESSERA_RETURN_IF_ERROR(
      world.AllReduce(tessera::ReduceOp::kSum, number.view(), number.view()));
  TESSERA_RETURN_IF_ERROR(number.Request());
  return number.Value();
}

// The mean loss over all ranks and microbatches, the same on every rank.
absl::StatusOr<double> MeanLoss(double sum, const Options& options,
                                tessera::Communicator& world) {
  TESSERA_ASSIGN_OR_RETURN(sum, options.on_gpus() ? SumOverGpus(sum, world)
                                                  : SumOverRanks(sum, world));
  return sum / (world.size() * options.microbatches);
}

// The parts of norm gradients that ranks along "tp" have become their sum.
absl::Status SumNormGradients(const Options& options, const RankModel& model,
                              tessera::CoalescedAllReduce& coalesced,
                              tessera::Stream& compute) {
  if (options.tensor_parallel_size() == 1 || !options.sums_norm_gradients) {
    return absl::OkStatus();
  }
  TESSERA_ASSIGN_OR_RETURN(const auto gradients, model.NormGradients());
  const std::vector<tessera::CoalescedTensor> sums(gradients.begin(),
                                                   gradients.end());
  return coalesced.Run(kTensorAxis, sums, {}, compute);
}

// What the rank takes at most, by tag.
absl::StatusOr<std::map<std::string, int64_t>> PlanRankMemory(
    const Context& context, ModelOptimizer& optimizer) {
  auto bytes = tessera::PlanMemory(context.unit_memory());
  bytes[std::string(tessera::kGradientNormTag)] = sizeof(double);
  TESSERA_ASSIGN_OR_RETURN(const auto of_optimizer, optimizer.PlanMemory());
  bytes.insert(of_optimizer.begin(), of_optimizer.end());
  return bytes;
}

absl::Status RunSteps(const Options& options, const Text& text,
                      const Observer& observer, tessera::CommSet& comms,
                      Context& context, RankModel& model, RankResult& result) {
  TESSERA_ASSIGN_OR_RETURN(ModelOptimizer optimizer,
                           ModelOptimizer::Create(options, context));
  TESSERA_ASSIGN_OR_RETURN(tessera::GradientNorm norm,
                           tessera::GradientNorm::Create(context));
  TESSERA_ASSIGN_OR_RETURN(
      auto coalesced,
      tessera::CoalescedAllReduce::Create(
          options.mesh, comms, {.max_chunk_bytes = options.chunk_bytes}));
  TESSERA_ASSIGN_OR_RETURN(result.planned_memory,
                           PlanRankMemory(context, optimizer));
  const auto start = std::chrono::steady_clock::now();
  for (int step = 0; step < options.steps; ++step) {
    comms.log().Clear();
    if (step + 1 == options.steps) {
      TESSERA_RETURN_IF_ERROR(context.Synchronize());
      comms.world().stream().device().ClearTrace();
    }
    double loss = 0;
    for (int m = 0; m < options.microbatches; ++m) {
      const BatchId id = {.seed = options.seed,
                          .step = step,
                          .microbatch = m,
                          .rank = options.DataParallelRank(comms.rank())};
      tessera::Microbatch microbatch =
          context.OpenMicrobatch({.is_last = m + 1 == options.microbatches});
      TESSERA_ASSIGN_OR_RETURN(
          const double microbatch_loss,
          model.ForwardBackward(
              SampleBatch(text, id, options.batch, options.model.context)));
      TESSERA_RETURN_IF_ERROR(microbatch.Finish());
      loss += microbatch_loss;
    }
    TESSERA_RETURN_IF_ERROR(
        SumNormGradients(options, model, coalesced, context.compute()));
    TESSERA_RETURN_IF_ERROR(options.clip.has_value() ? norm.Clip(*options.clip)
                                                     : norm.Compute());
    TESSERA_RETURN_IF_ERROR(optimizer.Step());
    TESSERA_RETURN_IF_ERROR(context.ZeroGradients(options.zero_grad));
    TESSERA_ASSIGN_OR_RETURN(const double norm_value, norm.Value());
    TESSERA_ASSIGN_OR_RETURN(const double mean,
                             MeanLoss(loss, options, comms.world()));
    const std::chrono::duration<double> elapsed =
        std::chrono::steady_clock::now() - start;
    result.losses.push_back(mean);
    result.norms.push_back(norm_value);
    result.seconds = elapsed.count();
    if (comms.rank() != 0 || !observer.stepped) continue;
    observer.stepped({.step = step,
                      .loss = mean,
                      .norm = norm_value,
                      .tokens_per_second = (step + 1) * TokensPerStep(options) /
                                           result.seconds});
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RankResult> TrainRank(const Options& options, const Text& text,
                                     const Observer& observer,
                                     tessera::CommSet& comms,
                                     tessera::Stream& compute) {
  tessera::FsdpOptions fsdp;
  fsdp.mesh = options.mesh;
  for (int axis : options.DataParallelAxes()) {
    fsdp.data_parallel_axes.push_back(options.mesh.axis(axis).name);
  }
  fsdp.placements = options.placements;
  // The mean over microbatches too.
  fsdp.grad_divisor = options.microbatches;
  TESSERA_ASSIGN_OR_RETURN(
      std::unique_ptr<Context> context,
      Context::Create(std::move(fsdp), comms.world(), compute));
  TESSERA_ASSIGN_OR_RETURN(
      std::unique_ptr<RankModel> model,
      RankModel::Create(options, *context, comms, compute));
  TESSERA_RETURN_IF_ERROR(context->Prepare());
  TESSERA_RETURN_IF_ERROR(model->Initialize(options.seed));
  if (comms.rank() == 0 && observer.prepared) {
    observer.prepared(context->ToTable());
  }
  RankResult result;
  absl::Status status =
      RunSteps(options, text, observer, comms, *context, *model, result);
  // Whatever has happened, the streams are done with the model's memory.
  status.Update(context->Synchronize());
  TESSERA_RETURN_IF_ERROR(status);

  result.communication = comms.log().counters();
  result.memory = compute.device().memory();
  result.trace = compute.device().trace();
  return result;
}

TrainResult Combine(std::vector<RankResult> ranks, int first,
                    const Options& options) {
  TrainResult result;
  for (size_t r = 0; r < ranks.size(); ++r) {
    result.memory.push_back(std::move(ranks[r].memory));
    result.planned_memory.push_back(std::move(ranks[r].planned_memory));
    if (options.trace_path.empty()) continue;
    result.traces.push_back({.rank = first + static_cast<int>(r),
                             .trace = std::move(ranks[r].trace)});
  }
  result.losses = std::move(ranks[0].losses);
  result.norms = std::move(ranks[0].norms);
  result.seconds = ranks[0].seconds;
  result.communication = std::move(ranks[0].communication);
  return result;
}

}  // namespace char_lm

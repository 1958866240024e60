#include "char_lm/trainer.h"

#include <chrono>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "char_lm/model.h"
#include "char_lm/parameter.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/run_ranks.h"
#include "tessera/fsdp/context.h"
#include "tessera/fsdp/optimizer.h"

namespace char_lm {
namespace {

using tessera::Context;
using tessera::GradientWrite;
using tessera::ParameterId;
using tessera::TensorMeta;
using tessera::TensorView;
using tessera::Unit;

// The model of one rank: its units in Tessera and its activations. Weights and
// gradients are used where Tessera keeps them.
class RankModel {
 public:
  static absl::StatusOr<std::unique_ptr<RankModel>> Create(
      const Options& options, Context& context, tessera::Stream& compute) {
    auto model = std::unique_ptr<RankModel>(new RankModel(options, compute));
    TESSERA_ASSIGN_OR_RETURN(
        model->root_,
        AddUnit(context, "root", RootParameters(options.model),
                {.release = tessera::ReleaseWeights::kAfterBackward}));
    for (int64_t b = 0; b < options.model.layers; ++b) {
      TESSERA_ASSIGN_OR_RETURN(
          Unit * block,
          AddUnit(context, absl::StrCat("block", b),
                  BlockParameters(options.model), {.parent = model->root_}));
      model->blocks_.push_back(block);
      model->activations_.emplace_back(options.model, options.batch);
    }
    return model;
  }

  absl::Status Initialize(uint64_t seed) {
    TESSERA_RETURN_IF_ERROR(
        InitializeUnit(*root_, RootParameters(model_.config()), seed, 0));
    for (size_t b = 0; b < blocks_.size(); ++b) {
      TESSERA_RETURN_IF_ERROR(InitializeUnit(*blocks_[b],
                                             BlockParameters(model_.config()),
                                             seed, static_cast<int>(b) + 1));
    }
    return absl::OkStatus();
  }

  // Runs one microbatch on the compute stream. Returns its loss.
  absl::StatusOr<double> ForwardBackward(Batch batch) {
    batch_ = std::move(batch);
    TESSERA_RETURN_IF_ERROR(Forward());
    TESSERA_RETURN_IF_ERROR(Backward());
    TESSERA_RETURN_IF_ERROR(compute_.Synchronize());
    return loss_;
  }

 private:
  RankModel(const Options& options, tessera::Stream& compute)
      : model_(options.model),
        compute_(compute),
        x_(options.batch * options.model.context * options.model.width),
        head_(options.model, options.batch),
        work_(options.model, options.batch) {}

  static absl::StatusOr<Unit*> AddUnit(Context& context, absl::string_view name,
                                       const std::vector<ParameterSpec>& specs,
                                       tessera::UnitOptions options) {
    tessera::UnitBuilder builder = context.NewUnit(name, std::move(options));
    for (const ParameterSpec& spec : specs) {
      TESSERA_ASSIGN_OR_RETURN(
          TensorMeta meta,
          TensorMeta::Create(tessera::DType::kF32, spec.shape));
      builder.Add(spec.name, meta);
    }
    return builder.Build();
  }

  static absl::Status InitializeUnit(Unit& unit,
                                     const std::vector<ParameterSpec>& specs,
                                     uint64_t seed, int unit_index) {
    std::vector<float> values;
    for (ParameterId p = 0; p < unit.num_parameters(); ++p) {
      values.resize(specs[p].num_elements());
      InitializeParameter(specs[p], seed, unit_index, p, values.data());
      TESSERA_RETURN_IF_ERROR(unit.LoadWeight(
          p, TensorView(values.data(), unit.parameter_layout(p).meta())));
    }
    return absl::OkStatus();
  }

  static absl::StatusOr<std::vector<const float*>> Weights(const Unit& unit) {
    std::vector<const float*> weights;
    for (ParameterId p = 0; p < unit.num_parameters(); ++p) {
      TESSERA_ASSIGN_OR_RETURN(TensorView weight, unit.weight(p));
      weights.push_back(weight.as<float>());
    }
    return weights;
  }

  static absl::StatusOr<std::vector<float*>> Gradients(Unit& unit,
                                                       GradientWrite write) {
    std::vector<float*> gradients;
    for (ParameterId p = 0; p < unit.num_parameters(); ++p) {
      TESSERA_ASSIGN_OR_RETURN(TensorView gradient, unit.grad(p, write));
      gradients.push_back(gradient.as<float>());
    }
    return gradients;
  }

  template <typename Body>
  absl::Status Launch(absl::string_view name, Body body) {
    return compute_.Launch({.name = name}, [body = std::move(body)]() mutable {
      body();
      return absl::OkStatus();
    });
  }

  absl::Status Forward() {
    root_->BeforeForward();
    TESSERA_ASSIGN_OR_RETURN(auto root, Weights(*root_));
    TESSERA_RETURN_IF_ERROR(Launch("embed", [this, root] {
      model_.EmbedForward(root, batch_.tokens, absl::MakeSpan(x_));
    }));
    for (size_t b = 0; b < blocks_.size(); ++b) {
      blocks_[b]->BeforeForward();
      TESSERA_ASSIGN_OR_RETURN(auto weights, Weights(*blocks_[b]));
      TESSERA_RETURN_IF_ERROR(Launch("block", [this, b, weights] {
        model_.BlockForward(weights, absl::MakeSpan(x_), activations_[b]);
      }));
      blocks_[b]->AfterForward();
    }
    TESSERA_RETURN_IF_ERROR(Launch("head", [this, root] {
      loss_ = model_.HeadForward(root, x_, batch_.targets, head_);
    }));
    root_->AfterForward();
    return absl::OkStatus();
  }

  absl::Status Backward() {
    root_->BeforeBackward();
    TESSERA_ASSIGN_OR_RETURN(auto root, Weights(*root_));
    // Head and embedding both add to the token embedding's gradient.
    TESSERA_ASSIGN_OR_RETURN(auto d_root,
                             Gradients(*root_, GradientWrite::kAccumulate));
    TESSERA_RETURN_IF_ERROR(Launch("head backward", [this, root, d_root] {
      model_.HeadBackward(root, head_, batch_.targets, work_, d_root,
                          absl::MakeSpan(x_));
    }));
    for (size_t i = blocks_.size(); i-- > 0;) {
      blocks_[i]->BeforeBackward();
      TESSERA_ASSIGN_OR_RETURN(auto weights, Weights(*blocks_[i]));
      TESSERA_ASSIGN_OR_RETURN(
          auto d_weights, Gradients(*blocks_[i], GradientWrite::kOverwrite));
      TESSERA_RETURN_IF_ERROR(
          Launch("block backward", [this, i, weights, d_weights] {
            model_.BlockBackward(weights, activations_[i], work_, d_weights,
                                 absl::MakeSpan(x_));
          }));
      blocks_[i]->AfterBackward();
    }
    TESSERA_RETURN_IF_ERROR(Launch("embed backward", [this, d_root] {
      model_.EmbedBackward(batch_.tokens, x_, d_root);
    }));
    root_->AfterBackward();
    return absl::OkStatus();
  }

  const Model model_;
  tessera::Stream& compute_;
  Unit* root_ = nullptr;
  std::vector<Unit*> blocks_;

  Batch batch_;
  double loss_ = 0;
  std::vector<float> x_;
  std::vector<BlockActivations<float>> activations_;  // per block
  HeadActivations<float> head_;
  Workspace<float> work_;
};

double TokensPerStep(const Options& options) {
  return static_cast<double>(options.mesh.size()) * options.microbatches *
         options.batch * options.model.context;
}

// The mean loss over all ranks and microbatches, the same on every rank.
absl::StatusOr<double> MeanLoss(double sum, const Options& options,
                                tessera::Communicator& world) {
  const TensorView view = TensorView::Flat(&sum, tessera::DType::kF64, 1);
  TESSERA_RETURN_IF_ERROR(world.AllReduce(tessera::ReduceOp::kSum, view, view));
  TESSERA_RETURN_IF_ERROR(world.stream().Synchronize());
  return sum / (world.size() * options.microbatches);
}

absl::Status RunSteps(const Options& options, const Text& text,
                      const Observer& observer, tessera::CommSet& comms,
                      Context& context, RankModel& model, RankResult& result) {
  tessera::SgdOptimizer optimizer(context, options.learning_rate);
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
                          .rank = comms.rank()};
      tessera::Microbatch microbatch =
          context.OpenMicrobatch({.is_last = m + 1 == options.microbatches});
      TESSERA_ASSIGN_OR_RETURN(
          const double microbatch_loss,
          model.ForwardBackward(
              SampleBatch(text, id, options.batch, options.model.context)));
      TESSERA_RETURN_IF_ERROR(microbatch.Finish());
      loss += microbatch_loss;
    }
    TESSERA_RETURN_IF_ERROR(optimizer.Step());
    TESSERA_RETURN_IF_ERROR(context.ZeroGradients(options.zero_grad));
    TESSERA_ASSIGN_OR_RETURN(const double mean,
                             MeanLoss(loss, options, comms.world()));
    const std::chrono::duration<double> elapsed =
        std::chrono::steady_clock::now() - start;
    result.losses.push_back(mean);
    result.seconds = elapsed.count();
    if (comms.rank() != 0 || !observer.stepped) continue;
    observer.stepped(step, mean,
                     (step + 1) * TokensPerStep(options) / result.seconds);
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
  fsdp.placements = options.placements;
  // The mean over microbatches too.
  fsdp.grad_divisor = options.microbatches;
  TESSERA_ASSIGN_OR_RETURN(
      std::unique_ptr<Context> context,
      Context::Create(std::move(fsdp), comms.world(), compute));
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<RankModel> model,
                           RankModel::Create(options, *context, compute));
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
  result.units = context->unit_memory();
  return result;
}

// As one process of options.world.
absl::StatusOr<TrainResult> TrainAsProcess(const Options& options,
                                           const Text& text,
                                           const Observer& observer) {
  tessera::MpiWorld world = *options.world;
  if (world.num_ranks() != options.mesh.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "mesh ", options.mesh.ToString(), " has ", options.mesh.size(),
        " ranks, mpirun has started ", world.num_ranks()));
  }
  tessera::CpuDevice device(
      {.streams = options.streams, .trace = !options.trace_path.empty()});
  TESSERA_ASSIGN_OR_RETURN(const auto compute, device.NewStream("compute"));
  TESSERA_ASSIGN_OR_RETURN(const auto comm, world.Join(*compute));
  tessera::CommSet comms(*comm);
  TESSERA_ASSIGN_OR_RETURN(RankResult rank,
                           TrainRank(options, text, observer, comms, *compute));
  TrainResult result;
  result.losses = std::move(rank.losses);
  result.seconds = rank.seconds;
  result.communication = std::move(rank.communication);
  result.memory.push_back(std::move(rank.memory));
  if (!options.trace_path.empty()) {
    result.traces.push_back(
        {.rank = world.rank(), .trace = std::move(rank.trace)});
  }
  result.units = std::move(rank.units);
  return result;
}

absl::StatusOr<TrainResult> Train(const Options& options, const Text& text,
                                  const Observer& observer) {
  if (options.world.has_value()) {
    return TrainAsProcess(options, text, observer);
  }
  std::vector<RankResult> ranks(options.mesh.size());
  TESSERA_RETURN_IF_ERROR(tessera::RunLocalRanks(
      options.mesh.size(),
      [&](tessera::LocalRank& rank) -> absl::Status {
        TESSERA_ASSIGN_OR_RETURN(
            ranks[rank.rank],
            TrainRank(options, text, observer, rank.comms, rank.stream));
        return absl::OkStatus();
      },
      {.device = {.streams = options.streams,
                  .trace = !options.trace_path.empty()}}));
  TrainResult result;
  for (size_t r = 0; r < ranks.size(); ++r) {
    result.memory.push_back(std::move(ranks[r].memory));
    if (options.trace_path.empty()) continue;
    result.traces.push_back(
        {.rank = static_cast<int>(r), .trace = std::move(ranks[r].trace)});
  }
  result.losses = std::move(ranks[0].losses);
  result.seconds = ranks[0].seconds;
  result.communication = std::move(ranks[0].communication);
  result.units = std::move(ranks[0].units);
  return result;
}

}  // namespace char_lm

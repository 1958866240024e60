#include "char_lm/rank_model.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tessera/base/status_macros.h"
#include "tessera/device/device.h"
#include "tessera/tensor/index.h"
#include "tessera/tensor/tensor_meta.h"
#include "tessera/tensor/tensor_view.h"

namespace char_lm {
namespace {

using tessera::Context;
using tessera::DType;
using tessera::GradientWrite;
using tessera::ParameterId;
using tessera::TensorMeta;
using tessera::TensorView;
using tessera::Unit;

absl::Status InitializeUnit(Unit& unit, const std::vector<ParameterSpec>& specs,
                            uint64_t seed, int unit_index) {
  std::vector<float> values;
  for (ParameterId p = 0; p < unit.num_parameters(); ++p) {
    values.resize(specs[p].num_elements());
    InitializeParameter(specs[p], seed, unit_index, p, values.data());
    TESSERA_ASSIGN_OR_RETURN(TensorMeta meta,
                             TensorMeta::Create(DType::kF32, specs[p].shape));
    TESSERA_RETURN_IF_ERROR(
        unit.LoadWeight(p, TensorView(values.data(), std::move(meta))));
  }
  return absl::OkStatus();
}

bool IsNorm(const std::string& parameter) {
  return absl::StrContains(parameter, "norm.");
}

}  // namespace

RankModel::RankModel(const Options& options, tessera::Stream& compute)
    : model_(options.model),
      dtype_(options.dtype),
      compute_(compute),
      norm_rows_{0, options.batch * options.model.context},
      x_(norm_rows_.end * options.model.width),
      head_(options.model, options.batch),
      work_(options.model, options.batch) {}

absl::StatusOr<std::unique_ptr<RankModel>> RankModel::Create(
    const Options& options, Context& context, tessera::CommSet& comms,
    tessera::Stream& compute) {
  auto model = std::unique_ptr<RankModel>(new RankModel(options, compute));
  TESSERA_RETURN_IF_ERROR(model->PrepareToCompute(options));
  TESSERA_ASSIGN_OR_RETURN(
      model->root_,
      model->AddUnit(context, "root", RootParameters(options.model),
                     {.release = tessera::ReleaseWeights::kAfterBackward}));
  for (int64_t b = 0; b < options.model.layers; ++b) {
    TESSERA_ASSIGN_OR_RETURN(Unit * block,
                             model->AddUnit(context, absl::StrCat("block", b),
                                            BlockParameters(options.model),
                                            {.parent = model->root_}));
    model->blocks_.push_back(block);
    model->activations_.emplace_back(options.model, options.batch);
  }
  if (options.tensor_parallel_size() > 1) {
    TESSERA_ASSIGN_OR_RETURN(const int axis,
                             options.mesh.FindAxis(kTensorAxis));
    TESSERA_ASSIGN_OR_RETURN(model->tensor_parallel_,
                             comms.Get(options.mesh, {axis}, compute));
    const tessera::Interval rows = tessera::CeilSplit(
        model->norm_rows_.end, model->tensor_parallel_->size(),
        model->tensor_parallel_->rank());
    model->norm_rows_ = {rows.begin, rows.end};
  }
  return model;
}

absl::Status RankModel::PrepareToCompute(const Options& options) {
  host_ = &compute_;
  if (options.on_gpus()) {
    host_device_ = std::make_unique<tessera::CpuDevice>();
    TESSERA_ASSIGN_OR_RETURN(host_stream_, host_device_->NewStream("model"));
    host_ = host_stream_.get();
  }
  TESSERA_ASSIGN_OR_RETURN(
      UnitValues root,
      UnitValues::Create(options, RootParameters(options.model), compute_,
                         *host_));
  TESSERA_ASSIGN_OR_RETURN(
      UnitValues block,
      UnitValues::Create(options, BlockParameters(options.model), compute_,
                         *host_));
  root_values_.emplace(std::move(root));
  block_values_.emplace(std::move(block));
  return absl::OkStatus();
}

absl::StatusOr<Unit*> RankModel::AddUnit(
    Context& context, absl::string_view name,
    const std::vector<ParameterSpec>& specs, tessera::UnitOptions options) {
  tessera::UnitBuilder builder = context.NewUnit(name, std::move(options));
  for (const ParameterSpec& spec : specs) {
    TESSERA_ASSIGN_OR_RETURN(TensorMeta meta,
                             TensorMeta::Create(dtype_, spec.shape));
    builder.Add(spec.name, meta);
  }
  return builder.Build();
}

absl::Status RankModel::Initialize(uint64_t seed) {
  TESSERA_RETURN_IF_ERROR(
      InitializeUnit(*root_, RootParameters(model_.config()), seed, 0));
  for (size_t b = 0; b < blocks_.size(); ++b) {
    TESSERA_RETURN_IF_ERROR(InitializeUnit(*blocks_[b],
                                           BlockParameters(model_.config()),
                                           seed, static_cast<int>(b) + 1));
  }
  return absl::OkStatus();
}

absl::StatusOr<double> RankModel::ForwardBackward(Batch batch) {
  batch_ = std::move(batch);
  TESSERA_RETURN_IF_ERROR(Forward());
  TESSERA_RETURN_IF_ERROR(Backward());
  TESSERA_RETURN_IF_ERROR(compute_.Synchronize());
  return loss_;
}

absl::StatusOr<std::vector<tessera::ShardedTensor>> RankModel::NormGradients()
    const {
  std::vector<Unit*> units = {root_};
  units.insert(units.end(), blocks_.begin(), blocks_.end());
  std::vector<tessera::ShardedTensor> gradients;
  for (const Unit* unit : units) {
    for (ParameterId p = 0; p < unit->num_parameters(); ++p) {
      if (!IsNorm(unit->parameter_name(p))) continue;
      TESSERA_ASSIGN_OR_RETURN(tessera::ShardedTensor gradient,
                               unit->main_grad(p));
      gradients.push_back(std::move(gradient));
    }
  }
  return gradients;
}

absl::Status RankModel::Launch(absl::string_view name,
                               std::function<void()> body) {
  return host_->Launch({.name = name}, [body = std::move(body)] {
    body();
    return absl::OkStatus();
  });
}

absl::Status RankModel::GatherRows(std::vector<float>& matrix) {
  if (tensor_parallel_ == nullptr) return absl::OkStatus();
  const int64_t width = model_.config().width;
  TESSERA_ASSIGN_OR_RETURN(
      TensorMeta meta,
      TensorMeta::Create(DType::kF32,
                         {static_cast<int64_t>(matrix.size()) / width, width}));
  const TensorView all(matrix.data(), std::move(meta));
  return tensor_parallel_->AllGather(
      all.Slice(0, {norm_rows_.begin, norm_rows_.end}), all);
}

absl::Status RankModel::Forward() {
  root_->BeforeForward();
  TESSERA_ASSIGN_OR_RETURN(const auto root, root_values_->Weights(*root_));
  TESSERA_RETURN_IF_ERROR(Launch("embed", [this, root] {
    model_.EmbedForward(root, batch_.tokens, absl::MakeSpan(x_));
  }));
  for (size_t b = 0; b < blocks_.size(); ++b) {
    blocks_[b]->BeforeForward();
    TESSERA_RETURN_IF_ERROR(BlockForward(b));
    blocks_[b]->AfterForward();
  }
  TESSERA_RETURN_IF_ERROR(Launch("final norm", [this, root] {
    model_.FinalNormForward(root, x_, norm_rows_, head_);
  }));
  TESSERA_RETURN_IF_ERROR(GatherRows(head_.norm.output));
  TESSERA_RETURN_IF_ERROR(Launch("loss", [this, root] {
    loss_ = model_.LossForward(root, batch_.targets, head_);
  }));
  root_->AfterForward();
  return absl::OkStatus();
}

absl::Status RankModel::BlockForward(size_t b) {
  BlockActivations<float>& saved = activations_[b];
  TESSERA_ASSIGN_OR_RETURN(const auto weights,
                           block_values_->Weights(*blocks_[b]));
  const auto norm = [&](BlockNorm which) -> absl::Status {
    TESSERA_RETURN_IF_ERROR(Launch("norm", [this, which, weights, &saved] {
      model_.NormForward(which, weights, x_, norm_rows_, saved);
    }));
    return GatherRows(saved.norm(which).output);
  };
  TESSERA_RETURN_IF_ERROR(norm(BlockNorm::kAttention));
  TESSERA_RETURN_IF_ERROR(Launch("attention", [this, weights, &saved] {
    model_.AttentionForward(weights, saved, absl::MakeSpan(x_));
  }));
  TESSERA_RETURN_IF_ERROR(norm(BlockNorm::kMlp));
  return Launch("mlp", [this, weights, &saved] {
    model_.MlpForward(weights, saved, absl::MakeSpan(x_));
  });
}

absl::Status RankModel::Backward() {
  root_->BeforeBackward();
  TESSERA_ASSIGN_OR_RETURN(const auto root, root_values_->Weights(*root_));
  // Head and embedding both add to the token embedding's gradient.
  TESSERA_ASSIGN_OR_RETURN(
      const auto d_root,
      root_values_->Gradients(*root_, GradientWrite::kAccumulate));
  TESSERA_RETURN_IF_ERROR(Launch("loss backward", [this, root, d_root] {
    model_.LossBackward(root, head_, batch_.targets, work_, d_root,
                        absl::MakeSpan(x_));
  }));
  TESSERA_RETURN_IF_ERROR(Launch("final norm backward", [this, root, d_root] {
    model_.FinalNormBackward(root, head_, norm_rows_, work_, d_root,
                             absl::MakeSpan(x_));
  }));
  TESSERA_RETURN_IF_ERROR(GatherRows(x_));
  for (size_t b = blocks_.size(); b-- > 0;) {
    blocks_[b]->BeforeBackward();
    TESSERA_RETURN_IF_ERROR(BlockBackward(b));
    blocks_[b]->AfterBackward();
  }
  TESSERA_RETURN_IF_ERROR(Launch("embed backward", [this, d_root] {
    model_.EmbedBackward(batch_.tokens, x_, d_root);
  }));
  TESSERA_RETURN_IF_ERROR(root_values_->FinishGradients(*root_));
  root_->AfterBackward();
  return absl::OkStatus();
}

absl::Status RankModel::BlockBackward(size_t b) {
  const BlockActivations<float>& saved = activations_[b];
  TESSERA_ASSIGN_OR_RETURN(const auto weights,
                           block_values_->Weights(*blocks_[b]));
  TESSERA_ASSIGN_OR_RETURN(
      const auto d_weights,
      block_values_->Gradients(*blocks_[b], GradientWrite::kOverwrite));
  const auto norm = [&](BlockNorm which) -> absl::Status {
    TESSERA_RETURN_IF_ERROR(
        Launch("norm backward", [this, which, weights, d_weights, &saved] {
          model_.NormBackward(which, weights, saved, norm_rows_, work_,
                              d_weights, absl::MakeSpan(x_));
        }));
    return GatherRows(x_);
  };
  TESSERA_RETURN_IF_ERROR(Launch("mlp backward", [this, weights, d_weights,
                                                  &saved] {
    model_.MlpBackward(weights, saved, work_, d_weights, absl::MakeSpan(x_));
  }));
  TESSERA_RETURN_IF_ERROR(norm(BlockNorm::kMlp));
  TESSERA_RETURN_IF_ERROR(
      Launch("attention backward", [this, weights, d_weights, &saved] {
        model_.AttentionBackward(weights, saved, work_, d_weights,
                                 absl::MakeSpan(x_));
      }));
  TESSERA_RETURN_IF_ERROR(norm(BlockNorm::kAttention));
  return block_values_->FinishGradients(*blocks_[b]);
}

}  // namespace char_lm

#include "char_lm/reference.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "char_lm/model.h"
#include "char_lm/muon.h"
#include "char_lm/optimizer.h"
#include "char_lm/parameter.h"
#include "tessera/base/status_macros.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tessera/device/cpu/elementwise.h"
#include "tessera/testing/gradient_oracle.h"

namespace char_lm {
namespace {

using tessera::DType;
using tessera::TensorView;
using tessera::testing::GradientOracle;

// The parameters of one unit, or their gradients: a vector each.
using Values = std::vector<std::vector<float>>;

std::vector<const float*> Read(const Values& values) {
  std::vector<const float*> pointers;
  for (const auto& value : values) pointers.push_back(value.data());
  return pointers;
}

std::vector<float*> Write(Values& values) {
  std::vector<float*> pointers;
  for (auto& value : values) pointers.push_back(value.data());
  return pointers;
}

TensorView Flat(const std::vector<float>& values) {
  return TensorView::Flat(const_cast<float*>(values.data()), DType::kF32,
                          static_cast<int64_t>(values.size()));
}

// A copy in another dtype.
class Converted {
 public:
  Converted(const std::vector<float>& values, DType dtype)
      : bytes_(values.size() * tessera::SizeOf(dtype)),
        view_(TensorView::Flat(bytes_.data(), dtype,
                               static_cast<int64_t>(values.size()))) {
    tessera::CastElements(view_, Flat(values));
  }
  Converted(Converted&&) = default;

  const TensorView& view() const { return view_; }

 private:
  std::vector<std::byte> bytes_;
  TensorView view_;  // stays where it is when this is moved
};

// The whole model in plain memory. Unit 0 is the root, unit b + 1 block b.
class PlainModel {
 public:
  PlainModel(const Options& options, int64_t batch)
      : model_(options.model),
        dtype_(options.dtype),
        x_(batch * options.model.context * options.model.width),
        head_(options.model, batch),
        work_(options.model, batch) {
    AddUnit("root", RootParameters(options.model), options.seed);
    for (int64_t b = 0; b < options.model.layers; ++b) {
      AddUnit("block", BlockParameters(options.model), options.seed);
      activations_.emplace_back(options.model, batch);
    }
    Refresh();
  }

  // Leaves the gradients in gradients() and returns the loss.
  double ForwardBackward(const Batch& batch) {
    for (auto& gradient : gradients_[0]) {
      std::fill(gradient.begin(), gradient.end(), 0.0f);
    }
    const auto x = absl::MakeSpan(x_);
    const std::vector<const float*> root = Read(weights_[0]);
    const std::vector<float*> d_root = Write(gradients_[0]);
    model_.EmbedForward(root, batch.tokens, x);
    for (size_t b = 0; b < activations_.size(); ++b) {
      model_.BlockForward(Read(weights_[b + 1]), x, activations_[b]);
    }
    const double loss = model_.HeadForward(root, x, batch.targets, head_);
    model_.HeadBackward(root, head_, batch.targets, work_, d_root, x);
    for (size_t b = activations_.size(); b-- > 0;) {
      model_.BlockBackward(Read(weights_[b + 1]), activations_[b], work_,
                           Write(gradients_[b + 1]), x);
    }
    model_.EmbedBackward(batch.tokens, x, d_root);
    return loss;
  }

  std::vector<Values>& main_weights() { return main_weights_; }
  // Makes the weights that are computed with what the main weights are now.
  void Refresh() {
    for (size_t u = 0; u < weights_.size(); ++u) {
      for (size_t p = 0; p < weights_[u].size(); ++p) {
        tessera::CastElements(Flat(weights_[u][p]),
                              Converted(main_weights_[u][p], dtype_).view());
      }
    }
  }
  const std::vector<Values>& gradients() const { return gradients_; }
  const std::string& unit_name(size_t u) const { return names_[u]; }
  const ParameterSpec& spec(size_t u, size_t p) const { return specs_[u][p]; }

 private:
  void AddUnit(const char* name, const std::vector<ParameterSpec>& specs,
               uint64_t seed) {
    Values weights;
    const int unit = static_cast<int>(specs_.size());
    for (size_t p = 0; p < specs.size(); ++p) {
      weights.emplace_back(specs[p].num_elements());
      InitializeParameter(specs[p], seed, unit, static_cast<int>(p),
                          weights.back().data());
    }
    names_.emplace_back(name);
    specs_.push_back(specs);
    weights_.push_back(weights);
    gradients_.push_back(weights);  // for its sizes
    main_weights_.push_back(std::move(weights));
  }

  const Model model_;
  const DType dtype_;
  // All per unit.
  std::vector<std::string> names_;
  std::vector<std::vector<ParameterSpec>> specs_;
  std::vector<Values> main_weights_;
  std::vector<Values> weights_;  // rounded to the dtype
  std::vector<Values> gradients_;
  std::vector<float> x_;
  std::vector<BlockActivations<float>> activations_;
  HeadActivations<float> head_;
  Workspace<float> work_;
};

template <typename Visit>
absl::Status ForEachParameter(const std::vector<Values>& units, Visit visit) {
  for (size_t u = 0; u < units.size(); ++u) {
    for (size_t p = 0; p < units[u].size(); ++p) {
      TESSERA_RETURN_IF_ERROR(visit(u, p));
    }
  }
  return absl::OkStatus();
}

// What the run's optimizer does to all parameters of a model, with the kernels
// that Tessera uses.
class PlainOptimizer {
 public:
  // LIFETIME: borrows both.
  PlainOptimizer(const Options& options, PlainModel& model)
      : options_(options), model_(model), stream_(*device_.NewStream("plain")) {
    for (const Values& unit : model.main_weights()) {
      first_.emplace_back();
      for (const auto& weight : unit) first_.back().emplace_back(weight.size());
    }
    second_ = first_;
  }

  // `gradient(u, p)` gives a view of a gradient, which may be clipped.
  template <typename Gradient>
  absl::Status Step(Gradient gradient) {
    ++step_;
    if (options_.clip.has_value()) TESSERA_RETURN_IF_ERROR(Clip(gradient));
    TESSERA_RETURN_IF_ERROR(ForEachParameter(
        model_.main_weights(),
        [&](size_t u, size_t p) { return Update(u, p, gradient(u, p)); }));
    model_.Refresh();
    return absl::OkStatus();
  }

 private:
  template <typename Gradient>
  absl::Status Clip(Gradient gradient) {
    double squares = 0;
    const TensorView sum = TensorView::Flat(&squares, DType::kF64, 1);
    TESSERA_RETURN_IF_ERROR(
        ForEachParameter(model_.main_weights(), [&](size_t u, size_t p) {
          return device_.kernels().AddSquares(*stream_, sum, gradient(u, p));
        }));
    return ForEachParameter(model_.main_weights(), [&](size_t u, size_t p) {
      return device_.kernels().ClipToNorm(*stream_, gradient(u, p), sum,
                                          *options_.clip);
    });
  }

  absl::Status Update(size_t u, size_t p, const TensorView& gradient) {
    std::vector<float>& weight = model_.main_weights()[u][p];
    const std::vector<int64_t>& shape = model_.spec(u, p).shape;
    if (options_.optimizer == Optimizer::kMuon &&
        IsMuons(model_.unit_name(u), static_cast<int>(shape.size()))) {
      UpdateByMuon(MuonOf(options_), shape[0], shape[1], gradient.as<float>(),
                   weight.data(), first_[u][p].data());
      return absl::OkStatus();
    }
    if (options_.optimizer == Optimizer::kSgd) {
      return device_.kernels().Sgd(
          *stream_, Flat(weight), gradient, TensorView(),
          {.learning_rate = SgdOf(options_).learning_rate});
    }
    const tessera::AdamWHyperparameters h = AdamWOf(options_);
    return device_.kernels().AdamW(*stream_, Flat(weight), gradient,
                                   Flat(first_[u][p]), Flat(second_[u][p]),
                                   {.learning_rate = h.learning_rate,
                                    .beta1 = h.beta1,
                                    .beta2 = h.beta2,
                                    .epsilon = h.epsilon,
                                    .weight_decay = h.weight_decay,
                                    .step = step_});
  }

  const Options& options_;
  PlainModel& model_;
  tessera::CpuDevice device_;
  const std::unique_ptr<tessera::Stream> stream_;  // inline: at once
  std::vector<Values> first_;  // moments, or Muon's momentum
  std::vector<Values> second_;
  int64_t step_ = 0;
};

Batch SampleFor(const Options& options, const Text& text, int step,
                int microbatch, int rank) {
  return SampleBatch(text,
                     {.seed = options.seed,
                      .step = step,
                      .microbatch = microbatch,
                      .rank = rank},
                     options.batch, options.model.context);
}

// One for each parameter, by unit.
std::vector<std::vector<GradientOracle>> OraclesFor(const Options& options,
                                                    PlainModel& model) {
  GradientOracle::Options arithmetic;
  for (int axis : options.DataParallelAxes()) {
    arithmetic.axis_sizes.push_back(options.mesh.axis(axis).size);
  }
  arithmetic.placements = options.placements;
  arithmetic.wire = options.dtype;
  arithmetic.grad_divisor = options.microbatches;
  std::vector<std::vector<GradientOracle>> oracles;
  for (const Values& unit : model.main_weights()) {
    oracles.emplace_back();
    for (const auto& weight : unit) {
      oracles.back().emplace_back(arithmetic, weight.size());
    }
  }
  return oracles;
}

}  // namespace

absl::StatusOr<std::vector<double>> TrainOracle(const Options& options,
                                                const Text& text) {
  PlainModel model(options, options.batch);
  PlainOptimizer optimizer(options, model);
  const int ranks = options.data_parallel_size();
  std::vector<std::vector<GradientOracle>> oracles = OraclesFor(options, model);
  const auto for_each = [&](auto visit) {
    return ForEachParameter(model.main_weights(), [&](size_t u, size_t p) {
      visit(u, p);
      return absl::OkStatus();
    });
  };
  std::vector<double> losses;
  for (int step = 0; step < options.steps; ++step) {
    std::vector<double> rank_losses(ranks, 0.0);
    for (int m = 0; m < options.microbatches; ++m) {
      std::vector<std::vector<Values>> gradients(ranks);
      for (int rank = 0; rank < ranks; ++rank) {
        rank_losses[rank] +=
            model.ForwardBackward(SampleFor(options, text, step, m, rank));
        gradients[rank] = model.gradients();
      }
      TESSERA_RETURN_IF_ERROR(for_each([&](size_t u, size_t p) {
        std::vector<Converted> contributions;
        std::vector<TensorView> views;
        for (int rank = 0; rank < ranks; ++rank) {
          contributions.emplace_back(gradients[rank][u][p], options.dtype);
          views.push_back(contributions.back().view());
        }
        oracles[u][p].Add(views);
      }));
    }
    TESSERA_RETURN_IF_ERROR(
        for_each([&](size_t u, size_t p) { oracles[u][p].Finalize(); }));
    TESSERA_RETURN_IF_ERROR(optimizer.Step(
        [&](size_t u, size_t p) { return oracles[u][p].gradient(); }));
    TESSERA_RETURN_IF_ERROR(
        for_each([&](size_t u, size_t p) { oracles[u][p].Zero(); }));
    double loss = 0;
    for (double rank_loss : rank_losses) loss += rank_loss;
    losses.push_back(loss / (ranks * options.microbatches));
  }
  return losses;
}

absl::StatusOr<std::vector<double>> TrainBigBatch(const Options& options,
                                                  const Text& text) {
  const int ranks = options.data_parallel_size();
  PlainModel model(options, options.batch * ranks * options.microbatches);
  PlainOptimizer optimizer(options, model);
  std::vector<double> losses;
  for (int step = 0; step < options.steps; ++step) {
    Batch big;
    for (int m = 0; m < options.microbatches; ++m) {
      for (int rank = 0; rank < ranks; ++rank) {
        const Batch part = SampleFor(options, text, step, m, rank);
        big.tokens.insert(big.tokens.end(), part.tokens.begin(),
                          part.tokens.end());
        big.targets.insert(big.targets.end(), part.targets.begin(),
                           part.targets.end());
      }
    }
    losses.push_back(model.ForwardBackward(big));
    TESSERA_RETURN_IF_ERROR(optimizer.Step(
        [&](size_t u, size_t p) { return Flat(model.gradients()[u][p]); }));
  }
  return losses;
}

}  // namespace char_lm

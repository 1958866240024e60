#include "char_lm/reference.h"

#include <algorithm>
#include <utility>

#include "char_lm/model.h"
#include "char_lm/parameter.h"
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

// The whole model in plain memory. Unit 0 is the root, unit b + 1 block b.
class PlainModel {
 public:
  PlainModel(const Options& options, int64_t batch)
      : model_(options.model),
        x_(batch * options.model.context * options.model.width),
        head_(options.model, batch),
        work_(options.model, batch) {
    AddUnit(RootParameters(options.model), options.seed);
    for (int64_t b = 0; b < options.model.layers; ++b) {
      AddUnit(BlockParameters(options.model), options.seed);
      activations_.emplace_back(options.model, batch);
    }
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

  std::vector<Values>& weights() { return weights_; }
  const std::vector<Values>& gradients() const { return gradients_; }

 private:
  void AddUnit(const std::vector<ParameterSpec>& specs, uint64_t seed) {
    Values weights;
    Values gradients;
    const int unit = static_cast<int>(weights_.size());
    for (size_t p = 0; p < specs.size(); ++p) {
      weights.emplace_back(specs[p].num_elements());
      gradients.emplace_back(specs[p].num_elements());
      InitializeParameter(specs[p], seed, unit, static_cast<int>(p),
                          weights.back().data());
    }
    weights_.push_back(std::move(weights));
    gradients_.push_back(std::move(gradients));
  }

  const Model model_;
  std::vector<Values> weights_;    // per unit
  std::vector<Values> gradients_;  // per unit
  std::vector<float> x_;
  std::vector<BlockActivations<float>> activations_;
  HeadActivations<float> head_;
  Workspace<float> work_;
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

template <typename Visit>
void ForEachParameter(const std::vector<Values>& units, Visit visit) {
  for (size_t u = 0; u < units.size(); ++u) {
    for (size_t p = 0; p < units[u].size(); ++p) visit(u, p);
  }
}

}  // namespace

std::vector<double> TrainOracle(const Options& options, const Text& text) {
  PlainModel model(options, options.batch);
  const int ranks = options.mesh.size();
  GradientOracle::Options arithmetic;
  for (const tessera::MeshAxis& axis : options.mesh.axes()) {
    arithmetic.axis_sizes.push_back(axis.size);
  }
  arithmetic.placements = options.placements;
  arithmetic.grad_divisor = options.microbatches;
  std::vector<std::vector<GradientOracle>> oracles;  // per unit and parameter
  for (const Values& unit : model.weights()) {
    oracles.emplace_back();
    for (const auto& weight : unit) {
      oracles.back().emplace_back(arithmetic, weight.size());
    }
  }

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
      ForEachParameter(model.weights(), [&](size_t u, size_t p) {
        std::vector<TensorView> contributions;
        for (int rank = 0; rank < ranks; ++rank) {
          contributions.push_back(Flat(gradients[rank][u][p]));
        }
        oracles[u][p].Add(contributions);
      });
    }
    ForEachParameter(model.weights(), [&](size_t u, size_t p) {
      GradientOracle& oracle = oracles[u][p];
      oracle.Finalize();
      tessera::AccumulateScaledElements(Flat(model.weights()[u][p]),
                                        oracle.gradient(),
                                        -options.learning_rate);
      oracle.Zero();
    });
    double loss = 0;
    for (double rank_loss : rank_losses) loss += rank_loss;
    losses.push_back(loss / (ranks * options.microbatches));
  }
  return losses;
}

std::vector<double> TrainBigBatch(const Options& options, const Text& text) {
  const int ranks = options.mesh.size();
  PlainModel model(options, options.batch * ranks * options.microbatches);
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
    ForEachParameter(model.weights(), [&](size_t u, size_t p) {
      std::vector<float>& weight = model.weights()[u][p];
      const std::vector<float>& gradient = model.gradients()[u][p];
      const auto rate = static_cast<float>(options.learning_rate);
      for (size_t i = 0; i < weight.size(); ++i) {
        weight[i] -= rate * gradient[i];
      }
    });
  }
  return losses;
}

}  // namespace char_lm

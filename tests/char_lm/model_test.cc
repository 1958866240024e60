#include "char_lm/model.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "char_lm/random.h"
#include "char_lm/text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace char_lm {
namespace {

using ::testing::HasSubstr;

// `size` elements that start `shift` elements past a 64-byte boundary.
template <typename T>
class Array {
 public:
  Array(int64_t size, int64_t shift)
      : storage_(size + shift + 64), size_(size) {
    const uintptr_t address = reinterpret_cast<uintptr_t>(storage_.data());
    start_ = (64 - address % 64) % 64 / sizeof(T) + shift;
  }

  T* data() { return storage_.data() + start_; }
  absl::Span<T> span() { return {data(), static_cast<size_t>(size_)}; }

 private:
  std::vector<T> storage_;
  int64_t size_;
  int64_t start_;
};

// A unit's weights and gradients, every array of them shifted differently.
template <typename T>
struct Unit {
  Unit(const std::vector<ParameterSpec>& specs, int index, int64_t shift) {
    for (const ParameterSpec& spec : specs) {
      const int64_t size = spec.num_elements();
      const int p = static_cast<int>(arrays.size() / 2);
      std::vector<float> initial(size);
      InitializeParameter(spec, /*seed=*/7, index, p, initial.data());
      arrays.emplace_back(size, (shift * (2 * p + 1)) % 16);
      arrays.emplace_back(size, (shift * (2 * p + 3)) % 16);
      std::copy(initial.begin(), initial.end(), weight(p).begin());
    }
    for (size_t p = 0; p < specs.size(); ++p) {
      weights.push_back(weight(p).data());
      grads.push_back(grad(p).data());
    }
  }
  // The pointers are into the arrays, which keep their place when moved.
  Unit(Unit&&) = default;
  Unit(const Unit&) = delete;

  absl::Span<T> weight(size_t p) { return arrays[2 * p].span(); }
  absl::Span<T> grad(size_t p) { return arrays[2 * p + 1].span(); }

  std::vector<Array<T>> arrays;
  std::vector<const T*> weights;
  std::vector<T*> grads;
};

// A whole model in one place, the root unit first.
template <typename T>
class Network {
 public:
  Network(const ModelConfig& config, int64_t batch, int64_t shift = 0)
      : model_(config),
        head_(config, batch),
        work_(config, batch),
        x_(batch * config.context * config.width, shift % 16) {
    units_.emplace_back(RootParameters(config), 0, shift);
    for (int b = 0; b < config.layers; ++b) {
      units_.emplace_back(BlockParameters(config), b + 1, shift);
      blocks_.emplace_back(config, batch);
    }
  }

  std::vector<Unit<T>>& units() { return units_; }
  const HeadActivations<T>& head() const { return head_; }

  double Forward(const Batch& batch) {
    model_.EmbedForward(units_[0].weights, batch.tokens, x_.span());
    for (size_t b = 0; b < blocks_.size(); ++b) {
      model_.BlockForward(units_[b + 1].weights, x_.span(), blocks_[b]);
    }
    return model_.HeadForward(units_[0].weights, x_.span(), batch.targets,
                              head_);
  }

  // Adds to the root's gradients and overwrites the blocks'.
  void Backward(const Batch& batch) {
    Unit<T>& root = units_[0];
    model_.HeadBackward(root.weights, head_, batch.targets, work_, root.grads,
                        x_.span());
    for (size_t b = blocks_.size(); b > 0; --b) {
      model_.BlockBackward(units_[b].weights, blocks_[b - 1], work_,
                           units_[b].grads, x_.span());
    }
    model_.EmbedBackward(batch.tokens, x_.span(), root.grads);
  }

  double LossAndGradients(const Batch& batch) {
    for (Unit<T>& unit : units_) {
      const T value =
          &unit == &units_[0] ? 0 : std::numeric_limits<T>::quiet_NaN();
      for (size_t p = 0; p < unit.grads.size(); ++p) {
        std::fill(unit.grad(p).begin(), unit.grad(p).end(), value);
      }
    }
    const double loss = Forward(batch);
    Backward(batch);
    return loss;
  }

  void Step(T rate) {
    for (Unit<T>& unit : units_) {
      for (size_t p = 0; p < unit.grads.size(); ++p) {
        const absl::Span<T> weight = unit.weight(p);
        for (size_t i = 0; i < weight.size(); ++i) {
          weight[i] -= rate * unit.grads[p][i];
        }
      }
    }
  }

  // All gradients, one after the other.
  std::vector<T> Gradients() {
    std::vector<T> all;
    for (Unit<T>& unit : units_) {
      for (size_t p = 0; p < unit.grads.size(); ++p) {
        all.insert(all.end(), unit.grad(p).begin(), unit.grad(p).end());
      }
    }
    return all;
  }

 private:
  BasicModel<T> model_;
  std::vector<Unit<T>> units_;
  std::vector<BlockActivations<T>> blocks_;
  HeadActivations<T> head_;
  Workspace<T> work_;
  Array<T> x_;
};

ModelConfig Tiny() {
  return {.vocab = 5,
          .context = 4,
          .width = 6,
          .heads = 2,
          .layers = 2,
          .mlp_width = 7};
}

Batch RandomBatch(const ModelConfig& config, int64_t sequences, int step = 0) {
  Text text;
  Random random({static_cast<uint64_t>(step)});
  for (int i = 0; i < 1000; ++i) {
    text.tokens.push_back(static_cast<int32_t>(random.Next() % config.vocab));
  }
  return SampleBatch(text, {.step = step}, sequences, config.context);
}

// Sequence `index` of the batch.
Batch Sequence(const Batch& batch, int64_t context, int index) {
  const auto cut = [=](const std::vector<int32_t>& ids) {
    return std::vector<int32_t>(ids.begin() + index * context,
                                ids.begin() + (index + 1) * context);
  };
  return {cut(batch.tokens), cut(batch.targets)};
}

// Moves gains and biases off their special initial values.
template <typename T>
void Perturb(Network<T>& network) {
  Random random({17});
  for (Unit<T>& unit : network.units()) {
    for (size_t p = 0; p < unit.weights.size(); ++p) {
      for (T& value : unit.weight(p)) {
        value += static_cast<T>(random.Next() >> 40) / (1 << 25) - T{0.25};
      }
    }
  }
}

template <typename T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

TEST(ModelConfig, AcceptsTheDefault) {
  EXPECT_TRUE(ModelConfig::Validate({}).ok());
  EXPECT_TRUE(ModelConfig::Validate(Tiny()).ok());
}

TEST(ModelConfig, RejectsSizesOutOfRange) {
  const auto expect_error = [](const ModelConfig& config,
                               const std::string& message) {
    const absl::Status status = ModelConfig::Validate(config);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(message));
  };
  expect_error({.vocab = 1}, "model: vocab is 1, want 2 to 65536");
  expect_error({.context = 0}, "model: context is 0, want 2 to 65536");
  expect_error({.width = -64}, "model: width is -64, want 2 to 65536");
  expect_error({.heads = 0}, "model: heads is 0, want 1 to 65536");
  expect_error({.layers = 1 << 20}, "model: layers is 1048576, want 1 to 1024");
  expect_error({.mlp_width = 1 << 20}, "model: mlp width is 1048576");
  expect_error({.width = 64, .heads = 5}, "model: width 64 in 5 heads");
  expect_error({.width = 64, .heads = 64}, "at least 2 for each");
}

TEST(Model, ListsParametersInOrder) {
  const ModelConfig config = Tiny();
  const auto root = RootParameters(config);
  ASSERT_EQ(root.size(), kFinalNormBias + 1u);
  EXPECT_EQ(root[kTokenEmbedding].name, "token_embedding");
  EXPECT_EQ(root[kTokenEmbedding].shape, (std::vector<int64_t>{5, 6}));
  EXPECT_EQ(root[kFinalNormBias].name, "final_norm.bias");
  const auto block = BlockParameters(config);
  ASSERT_EQ(block.size(), kMlpOutBias + 1u);
  EXPECT_EQ(block[kQkvWeight].name, "qkv.weight");
  EXPECT_EQ(block[kQkvWeight].shape, (std::vector<int64_t>{6, 18}));
  EXPECT_EQ(block[kMlpOutBias].name, "mlp_out.bias");
}

// Every element of every parameter, in double: the truncation error of a
// central difference and its rounding error are both far below the tolerance.
TEST(Model, GradientsEqualCentralDifferences) {
  const ModelConfig config = Tiny();
  const Batch batch = RandomBatch(config, 3);
  Network<double> network(config, 3);
  Perturb(network);
  network.LossAndGradients(batch);
  constexpr double kStep = 1e-5;
  for (size_t u = 0; u < network.units().size(); ++u) {
    Unit<double>& unit = network.units()[u];
    for (size_t p = 0; p < unit.weights.size(); ++p) {
      double largest = 0;
      for (size_t i = 0; i < unit.weight(p).size(); ++i) {
        double& w = unit.weight(p)[i];
        const double at = w;
        w = at + kStep;
        const double above = network.Forward(batch);
        w = at - kStep;
        const double below = network.Forward(batch);
        w = at;
        ASSERT_NEAR(unit.grad(p)[i], (above - below) / (2 * kStep), 1e-8)
            << "unit " << u << " parameter " << p << " element " << i;
        largest = std::max(largest, std::abs(unit.grad(p)[i]));
      }
      EXPECT_GT(largest, 1e-5) << "unit " << u << " parameter " << p;
    }
  }
}

TEST(Model, FloatAgreesWithDouble) {
  const ModelConfig config = {.context = 16, .layers = 2};
  const Batch batch = RandomBatch(config, 2);
  Network<float> single(config, 2);
  Network<double> precise(config, 2);
  EXPECT_NEAR(single.LossAndGradients(batch), precise.LossAndGradients(batch),
              1e-5);
  const std::vector<float> got = single.Gradients();
  const std::vector<double> want = precise.Gradients();
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-5);
}

TEST(Model, RootGradientsAddUp) {
  const ModelConfig config = Tiny();
  const Batch batch = RandomBatch(config, 2);
  Network<double> network(config, 2);
  network.LossAndGradients(batch);
  const std::vector<double> once = network.Gradients();
  network.Forward(batch);
  network.Backward(batch);
  const std::vector<double> twice = network.Gradients();
  int64_t root_size = 0;
  for (const ParameterSpec& spec : RootParameters(config)) {
    root_size += spec.num_elements();
  }
  for (int64_t i = 0; i < static_cast<int64_t>(once.size()); ++i) {
    ASSERT_NEAR(twice[i], (i < root_size ? 2 : 1) * once[i], 1e-12);
  }
}

TEST(Model, BitsDoNotDependOnAddresses) {
  const ModelConfig odd = {.vocab = 7,
                           .context = 5,
                           .width = 15,
                           .heads = 3,
                           .layers = 1,
                           .mlp_width = 11};
  for (const ModelConfig& config :
       {Tiny(), odd, ModelConfig{.context = 16, .layers = 1}}) {
    const Batch batch = RandomBatch(config, 2);
    Network<float> reference(config, 2);
    const double loss = reference.LossAndGradients(batch);
    const std::vector<float> gradients = reference.Gradients();
    // In elements of 4 bytes: every place within a cache line.
    for (int64_t shift = 1; shift < 16; ++shift) {
      Network<float> shifted(config, 2, shift);
      EXPECT_EQ(shifted.LossAndGradients(batch), loss);
      EXPECT_TRUE(SameBits(shifted.Gradients(), gradients)) << shift;
    }
  }
}

TEST(Model, BitsDoNotDependOnThreadOrHistory) {
  const ModelConfig config = {.context = 16, .layers = 1};
  const Batch batch = RandomBatch(config, 2);
  Network<float> reference(config, 2);
  reference.LossAndGradients(batch);
  const std::vector<float> gradients = reference.Gradients();
  std::vector<char> same(4, false);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Network<float> network(config, 2, t);
      for (int step = 0; step < t; ++step) {
        network.LossAndGradients(RandomBatch(config, 2, step + 1));
      }
      network.LossAndGradients(batch);
      same[t] = SameBits(network.Gradients(), gradients);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(same, std::vector<char>(4, true));
}

TEST(Model, BatchIsTheMeanOfItsSequences) {
  const ModelConfig config = Tiny();
  const Batch batch = RandomBatch(config, 2);
  Network<float> both(config, 2);
  const double loss = both.LossAndGradients(batch);
  Network<float> one(config, 1);
  double mean_loss = 0;
  std::vector<float> mean(both.Gradients().size());
  for (const int s : {0, 1}) {
    mean_loss += one.LossAndGradients(Sequence(batch, config.context, s)) / 2;
    const std::vector<float> gradients = one.Gradients();
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += gradients[i] / 2;
  }
  EXPECT_NEAR(loss, mean_loss, 1e-6);
  const std::vector<float> gradients = both.Gradients();
  for (size_t i = 0; i < mean.size(); ++i) {
    ASSERT_NEAR(gradients[i], mean[i], 1e-6);
  }
}

TEST(Model, SeesNothingOfLaterTokens) {
  const ModelConfig config = {.vocab = 9, .context = 12};
  Batch batch = RandomBatch(config, 1);
  Network<float> network(config, 1);
  const auto predictions = [&] {
    network.Forward(batch);
    return network.head().probabilities;
  };
  const std::vector<float> before = predictions();
  constexpr int kChanged = 7;
  batch.tokens[kChanged] = (batch.tokens[kChanged] + 1) % 9;
  const std::vector<float> after = predictions();
  for (int position = 0; position < config.context; ++position) {
    const auto row = position * config.vocab;
    const bool same =
        std::equal(before.begin() + row, before.begin() + row + config.vocab,
                   after.begin() + row);
    EXPECT_EQ(same, position < kChanged) << position;
  }
}

TEST(Model, StartsFromNearlyUniformPredictions) {
  const ModelConfig config;
  Network<float> network(config, 4);
  EXPECT_NEAR(network.Forward(RandomBatch(config, 4)),
              std::log(static_cast<double>(config.vocab)), 0.25);
}

TEST(Model, LearnsFromText) {
  ModelConfig config = {
      .context = 32, .width = 32, .layers = 1, .mlp_width = 64};
  const auto text = LoadText(kDefaultTextPath, config.context);
  if (absl::IsNotFound(text.status())) {
    GTEST_SKIP() << "needs a text: " << text.status().message();
  }
  ASSERT_TRUE(text.ok()) << text.status();
  config.vocab = text->vocab_size();
  Network<float> network(config, 4);
  std::vector<double> losses;
  for (int step = 0; step < 30; ++step) {
    losses.push_back(network.LossAndGradients(
        SampleBatch(*text, {.step = step}, 4, config.context)));
    network.Step(0.2f);
  }
  EXPECT_LT(losses.back(), losses.front() - 0.7);
}

}  // namespace
}  // namespace char_lm

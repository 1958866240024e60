#include "char_lm/model.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace char_lm {
namespace {

// Keeps products of the sizes far from overflow.
constexpr int64_t kMaxSize = 1 << 16;
constexpr int64_t kMaxLayers = 1 << 10;

absl::Status CheckSize(absl::string_view name, int64_t size, int64_t min,
                       int64_t max) {
  if (size >= min && size <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("model: ", name, " is ", size, ", want ", min, " to ", max));
}

ParameterSpec Normal(absl::string_view name, std::vector<int64_t> shape,
                     double stddev) {
  return {std::string(name), std::move(shape), Init::kNormal, stddev};
}

ParameterSpec Zeros(absl::string_view name, int64_t size) {
  return {std::string(name), {size}, Init::kZeros};
}

ParameterSpec Ones(absl::string_view name, int64_t size) {
  return {std::string(name), {size}, Init::kOnes};
}

double RootOfInverse(int64_t n) {
  return 1 / std::sqrt(static_cast<double>(n));
}

// All of `values`, a vector or span, as a matrix with `cols` columns.
template <typename Values>
auto RowsOf(Values&& values, int64_t cols) {
  return MatrixView(values.data(), static_cast<int64_t>(values.size()) / cols,
                    cols);
}

}  // namespace

absl::Status ModelConfig::Validate(const ModelConfig& config) {
  const struct {
    absl::string_view name;
    int64_t size;
    int64_t min;
    int64_t max;
  } sizes[] = {
      // A matrix product has at least two rows and columns: see matmul.h.
      {"vocab", config.vocab, 2, kMaxSize},
      {"context", config.context, 2, kMaxSize},
      {"width", config.width, 2, kMaxSize},
      {"heads", config.heads, 1, kMaxSize},
      {"layers", config.layers, 1, kMaxLayers},
      {"mlp width", config.mlp_width, 2, kMaxSize},
  };
  for (const auto& [name, size, min, max] : sizes) {
    absl::Status status = CheckSize(name, size, min, max);
    if (!status.ok()) return status;
  }
  if (config.width % config.heads != 0 || config.head_width() < 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model: width ", config.width, " in ", config.heads,
        " heads, want a multiple of the heads, at least 2 for each"));
  }
  return absl::OkStatus();
}

std::vector<ParameterSpec> RootParameters(const ModelConfig& config) {
  // Logits are products with normalized rows. So scaled, their standard
  // deviation is one half: the first predictions are close to uniform.
  const double stddev = RootOfInverse(config.width) / 2;
  return {
      Normal("token_embedding", {config.vocab, config.width}, stddev),
      Normal("position_embedding", {config.context, config.width}, stddev),
      Ones("final_norm.gain", config.width),
      Zeros("final_norm.bias", config.width),
  };
}

std::vector<ParameterSpec> BlockParameters(const ModelConfig& config) {
  const int64_t width = config.width;
  const int64_t mlp_width = config.mlp_width;
  // Each block adds to the residual stream twice; so scaled, the sum of all
  // has the variance of one.
  const double residual = RootOfInverse(2 * config.layers);
  return {
      Ones("attention_norm.gain", width),
      Zeros("attention_norm.bias", width),
      Normal("qkv.weight", {width, 3 * width}, RootOfInverse(width)),
      Zeros("qkv.bias", 3 * width),
      Normal("projection.weight", {width, width},
             residual * RootOfInverse(width)),
      Zeros("projection.bias", width),
      Ones("mlp_norm.gain", width),
      Zeros("mlp_norm.bias", width),
      Normal("mlp_in.weight", {width, mlp_width}, RootOfInverse(width)),
      Zeros("mlp_in.bias", mlp_width),
      Normal("mlp_out.weight", {mlp_width, width},
             residual * RootOfInverse(mlp_width)),
      Zeros("mlp_out.bias", width),
  };
}

template <typename T>
BlockActivations<T>::BlockActivations(const ModelConfig& config, int64_t batch)
    : attention_norm(batch * config.context, config.width),
      qkv(batch * config.context * 3 * config.width),
      probabilities(batch * config.heads * config.context * config.context),
      attended(batch * config.context * config.width),
      mlp_norm(batch * config.context, config.width),
      hidden(batch * config.context * config.mlp_width),
      gate(hidden.size()),
      activated(hidden.size()) {}

template <typename T>
HeadActivations<T>::HeadActivations(const ModelConfig& config, int64_t batch)
    : norm(batch * config.context, config.width),
      probabilities(batch * config.context * config.vocab) {}

template <typename T>
Workspace<T>::Workspace(const ModelConfig& config, int64_t batch)
    : d_norm(batch * config.context * config.width),
      d_qkv(batch * config.context * 3 * config.width),
      d_attended(batch * config.context * config.width),
      d_scores(config.context * config.context),
      d_hidden(batch * config.context * config.mlp_width),
      d_logits(batch * config.context * config.vocab) {}

template <typename T>
void BasicModel<T>::EmbedForward(Weights root, Ids tokens,
                                 absl::Span<T> x) const {
  assert(x.size() == tokens.size() * config_.width);
  const int64_t width = config_.width;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const T* token = root[kTokenEmbedding] + tokens[i] * width;
    const T* position =
        root[kPositionEmbedding] + (i % config_.context) * width;
    for (int64_t j = 0; j < width; ++j)
      x[i * width + j] = token[j] + position[j];
  }
}

template <typename T>
void BasicModel<T>::BlockForward(Weights block, absl::Span<T> x,
                                 BlockActivations<T>& saved) const {
  assert(x.size() == saved.attended.size());
  NormForward(BlockNorm::kAttention, block, x, AllOf(x), saved);
  AttentionForward(block, saved, x);
  NormForward(BlockNorm::kMlp, block, x, AllOf(x), saved);
  MlpForward(block, saved, x);
}

template <typename T>
void BasicModel<T>::NormForward(BlockNorm norm, Weights block,
                                absl::Span<const T> x, Rows rows,
                                BlockActivations<T>& saved) const {
  const int gain = static_cast<int>(norm);
  LayerNorm(RowsOf(x, config_.width), block[gain], block[gain + 1], rows,
            saved.norm(norm));
}

template <typename T>
void BasicModel<T>::AttentionForward(Weights block, BlockActivations<T>& saved,
                                     absl::Span<T> x) const {
  const int64_t width = config_.width;
  const MatrixView<T> stream = RowsOf(x, width);
  Linear(RowsOf(saved.attention_norm.output, width), block[kQkvWeight],
         block[kQkvBias], RowsOf(saved.qkv, 3 * width));
  Attention(Attentions(stream.rows), std::as_const(saved.qkv).data(),
            saved.probabilities.data(), saved.attended.data());
  Linear(RowsOf(saved.attended, width), block[kProjectionWeight],
         block[kProjectionBias], stream, Store::kAccumulate);
}

template <typename T>
void BasicModel<T>::MlpForward(Weights block, BlockActivations<T>& saved,
                               absl::Span<T> x) const {
  const int64_t width = config_.width;
  Linear(RowsOf(saved.mlp_norm.output, width), block[kMlpInWeight],
         block[kMlpInBias], RowsOf(saved.hidden, config_.mlp_width));
  Gelu<T>(saved.hidden, absl::MakeSpan(saved.gate),
          absl::MakeSpan(saved.activated));
  Linear(RowsOf(saved.activated, config_.mlp_width), block[kMlpOutWeight],
         block[kMlpOutBias], RowsOf(x, width), Store::kAccumulate);
}

template <typename T>
double BasicModel<T>::HeadForward(Weights root, absl::Span<const T> x,
                                  Ids targets,
                                  HeadActivations<T>& saved) const {
  FinalNormForward(root, x, AllOf(x), saved);
  return LossForward(root, targets, saved);
}

template <typename T>
void BasicModel<T>::FinalNormForward(Weights root, absl::Span<const T> x,
                                     Rows rows,
                                     HeadActivations<T>& saved) const {
  LayerNorm(RowsOf(x, config_.width), root[kFinalNormGain],
            root[kFinalNormBias], rows, saved.norm);
}

template <typename T>
double BasicModel<T>::LossForward(Weights root, Ids targets,
                                  HeadActivations<T>& saved) const {
  const int64_t width = config_.width;
  const int64_t vocab = config_.vocab;
  const MatrixView<T> logits = RowsOf(saved.probabilities, vocab);
  MultiplyByTransposed(RowsOf(saved.norm.output, width),
                       {root[kTokenEmbedding], vocab, width}, logits);
  return SoftmaxCrossEntropy(logits, targets);
}

template <typename T>
void BasicModel<T>::HeadBackward(Weights root, const HeadActivations<T>& saved,
                                 Ids targets, Workspace<T>& work, Grads d_root,
                                 absl::Span<T> d_x) const {
  LossBackward(root, saved, targets, work, d_root, d_x);
  FinalNormBackward(root, saved, AllOf(d_x), work, d_root, d_x);
}

template <typename T>
void BasicModel<T>::LossBackward(Weights root, const HeadActivations<T>& saved,
                                 Ids targets, Workspace<T>& work, Grads d_root,
                                 absl::Span<T> d_x) const {
  const int64_t width = config_.width;
  const int64_t vocab = config_.vocab;
  const MatrixView<T> d_logits = RowsOf(work.d_logits, vocab);
  SoftmaxCrossEntropyBackward(RowsOf(saved.probabilities, vocab), targets,
                              d_logits);
  MultiplyTransposed(d_logits, RowsOf(saved.norm.output, width),
                     MatrixView(d_root[kTokenEmbedding], vocab, width),
                     Store::kAccumulate);
  Multiply(d_logits, {root[kTokenEmbedding], vocab, width},
           RowsOf(work.d_norm, width));
  std::fill(d_x.begin(), d_x.end(), T{0});
}

template <typename T>
void BasicModel<T>::FinalNormBackward(Weights root,
                                      const HeadActivations<T>& saved,
                                      Rows rows, const Workspace<T>& work,
                                      Grads d_root, absl::Span<T> d_x) const {
  const int64_t width = config_.width;
  LayerNormBackward(saved.norm, root[kFinalNormGain],
                    RowsOf(work.d_norm, width), rows, d_root[kFinalNormGain],
                    d_root[kFinalNormBias], RowsOf(d_x, width));
}

template <typename T>
void BasicModel<T>::BlockBackward(Weights block,
                                  const BlockActivations<T>& saved,
                                  Workspace<T>& work, Grads d_block,
                                  absl::Span<T> d_x) const {
  assert(d_x.size() == saved.attended.size());
  MlpBackward(block, saved, work, d_block, d_x);
  NormBackward(BlockNorm::kMlp, block, saved, AllOf(d_x), work, d_block, d_x);
  AttentionBackward(block, saved, work, d_block, d_x);
  NormBackward(BlockNorm::kAttention, block, saved, AllOf(d_x), work, d_block,
               d_x);
}

template <typename T>
void BasicModel<T>::MlpBackward(Weights block, const BlockActivations<T>& saved,
                                Workspace<T>& work, Grads d_block,
                                absl::Span<T> d_x) const {
  const int64_t width = config_.width;
  const MatrixView<T> d_hidden = RowsOf(work.d_hidden, config_.mlp_width);
  LinearBackward(RowsOf(saved.activated, config_.mlp_width),
                 block[kMlpOutWeight], RowsOf(d_x, width),
                 d_block[kMlpOutWeight], d_block[kMlpOutBias], d_hidden);
  GeluBackward<T>(saved.hidden, saved.gate, absl::MakeSpan(work.d_hidden));
  LinearBackward(RowsOf(saved.mlp_norm.output, width), block[kMlpInWeight],
                 d_hidden, d_block[kMlpInWeight], d_block[kMlpInBias],
                 RowsOf(work.d_norm, width));
}

template <typename T>
void BasicModel<T>::AttentionBackward(Weights block,
                                      const BlockActivations<T>& saved,
                                      Workspace<T>& work, Grads d_block,
                                      absl::Span<T> d_x) const {
  const int64_t width = config_.width;
  const MatrixView<T> d_stream = RowsOf(d_x, width);
  LinearBackward(RowsOf(saved.attended, width), block[kProjectionWeight],
                 d_stream, d_block[kProjectionWeight], d_block[kProjectionBias],
                 RowsOf(work.d_attended, width));
  char_lm::AttentionBackward<T>(
      Attentions(d_stream.rows), saved.qkv.data(), saved.probabilities.data(),
      work.d_attended.data(), work.d_scores.data(), work.d_qkv.data());
  LinearBackward(RowsOf(saved.attention_norm.output, width), block[kQkvWeight],
                 RowsOf(work.d_qkv, 3 * width), d_block[kQkvWeight],
                 d_block[kQkvBias], RowsOf(work.d_norm, width));
}

template <typename T>
void BasicModel<T>::NormBackward(BlockNorm norm, Weights block,
                                 const BlockActivations<T>& saved, Rows rows,
                                 const Workspace<T>& work, Grads d_block,
                                 absl::Span<T> d_x) const {
  const int64_t width = config_.width;
  const int gain = static_cast<int>(norm);
  std::fill_n(d_block[gain], width, T{0});
  std::fill_n(d_block[gain + 1], width, T{0});
  LayerNormBackward(saved.norm(norm), block[gain], RowsOf(work.d_norm, width),
                    rows, d_block[gain], d_block[gain + 1], RowsOf(d_x, width));
}

template <typename T>
void BasicModel<T>::EmbedBackward(Ids tokens, absl::Span<const T> d_x,
                                  Grads d_root) const {
  assert(d_x.size() == tokens.size() * config_.width);
  const int64_t width = config_.width;
  for (size_t i = 0; i < tokens.size(); ++i) {
    T* token = d_root[kTokenEmbedding] + tokens[i] * width;
    T* position = d_root[kPositionEmbedding] + (i % config_.context) * width;
    for (int64_t j = 0; j < width; ++j) {
      token[j] += d_x[i * width + j];
      position[j] += d_x[i * width + j];
    }
  }
}

template <typename T>
AttentionShape BasicModel<T>::Attentions(int64_t rows) const {
  return {rows / config_.context, config_.context, config_.heads,
          config_.head_width()};
}

template <typename T>
Rows BasicModel<T>::AllOf(absl::Span<const T> x) const {
  return {0, static_cast<int64_t>(x.size()) / config_.width};
}

template struct BlockActivations<float>;
template struct BlockActivations<double>;
template struct HeadActivations<float>;
template struct HeadActivations<double>;
template struct Workspace<float>;
template struct Workspace<double>;
template class BasicModel<float>;
template class BasicModel<double>;

}  // namespace char_lm

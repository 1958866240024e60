#ifndef CHAR_LM_MODEL_H_
#define CHAR_LM_MODEL_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "char_lm/layers.h"
#include "char_lm/parameter.h"

namespace char_lm {

// A character-level transformer: token and position embedding, pre-norm blocks
// of causal attention and MLP, a final norm, and an output head that shares the
// token embedding. Forward and backward are written out unit by unit, on
// weights and gradients whose memory belongs to the caller:
//
//   const Model model(config);
//   model.EmbedForward(root_weights, tokens, x);
//   for (int b = 0; b < layers; ++b) {
//     model.BlockForward(block_weights[b], x, blocks[b]);
//   }
//   double loss = model.HeadForward(root_weights, x, targets, head);
//   model.HeadBackward(root_weights, head, targets, work, root_grads, x);
//   for (int b = layers - 1; b >= 0; --b) {
//     model.BlockBackward(block_weights[b], blocks[b], work, block_grads[b],
//     x);
//   }
//   model.EmbedBackward(tokens, x, root_grads);

struct ModelConfig {
  int64_t vocab = 96;
  int64_t context = 64;
  int64_t width = 64;
  int64_t heads = 4;
  int64_t layers = 2;
  int64_t mlp_width = 256;

  // ERRORS: InvalidArgument where a size is out of range or the heads do not
  // divide the width.
  static absl::Status Validate(const ModelConfig& config);

  int64_t head_width() const { return width / heads; }
};

// The root unit: what the ends of the model use. The positions in the list of
// RootParameters.
enum RootParameter {
  kTokenEmbedding,
  kPositionEmbedding,
  kFinalNormGain,
  kFinalNormBias,
};

// A block unit. The positions in the list of BlockParameters.
enum BlockParameter {
  kAttentionNormGain,
  kAttentionNormBias,
  kQkvWeight,
  kQkvBias,
  kProjectionWeight,
  kProjectionBias,
  kMlpNormGain,
  kMlpNormBias,
  kMlpInWeight,
  kMlpInBias,
  kMlpOutWeight,
  kMlpOutBias,
};

// The norms of a block, by the gain; the bias is the parameter behind it.
enum class BlockNorm {
  kAttention = kAttentionNormGain,
  kMlp = kMlpNormGain,
};

std::vector<ParameterSpec> RootParameters(const ModelConfig& config);
std::vector<ParameterSpec> BlockParameters(const ModelConfig& config);

// What forward leaves for backward, made once and used again in every step. A
// backward may follow once its forward has been the last to write them: one
// set per block for each microbatch in flight.
template <typename T>
struct BlockActivations {
  BlockActivations(const ModelConfig& config, int64_t batch);

  NormActivations<T>& norm(BlockNorm which) {
    return which == BlockNorm::kMlp ? mlp_norm : attention_norm;
  }
  const NormActivations<T>& norm(BlockNorm which) const {
    return which == BlockNorm::kMlp ? mlp_norm : attention_norm;
  }

  NormActivations<T> attention_norm;
  std::vector<T> qkv;            // [batch, context, 3, heads, head width]
  std::vector<T> probabilities;  // [batch, heads, context, context]
  std::vector<T> attended;       // [batch, context, width]
  NormActivations<T> mlp_norm;
  std::vector<T> hidden;     // [batch, context, mlp width]
  std::vector<T> gate;       // The same.
  std::vector<T> activated;  // The same.
};

template <typename T>
struct HeadActivations {
  HeadActivations(const ModelConfig& config, int64_t batch);

  NormActivations<T> norm;
  std::vector<T> probabilities;  // [batch, context, vocab]
};

// Scratch memory of the backward functions, which leaves nothing from one call
// to the next: one for each thread.
template <typename T>
struct Workspace {
  Workspace(const ModelConfig& config, int64_t batch);

  std::vector<T> d_norm;      // [batch, context, width]
  std::vector<T> d_qkv;       // [batch, context, 3, width]
  std::vector<T> d_attended;  // [batch, context, width]
  std::vector<T> d_scores;    // [context, context]
  std::vector<T> d_hidden;    // [batch, context, mlp width]
  std::vector<T> d_logits;    // [batch, context, vocab]
};

// The model's arithmetic. T is float, or double to check gradients.
//
// `weights` and `grads` hold a pointer for each parameter of the unit, in the
// order of its specs. `x`, [batch, context, width], is the residual stream:
// forward functions replace it by the next layer's input; backward functions
// take in it the gradient of their output and leave that of their input.
// Tokens and targets are [batch, context] and lie in [0, vocab). The loss is
// the mean cross-entropy over all batch * context targets.
//
// Results are bitwise a function of the values passed in, whatever the
// addresses, the thread and the order of calls.
//
// REQUIRES: all arguments of a call agree on the batch size. No two of them
// overlap. Thread-safe: an immutable value without memory of its own.
template <typename T>
class BasicModel {
 public:
  using Weights = absl::Span<const T* const>;
  using Grads = absl::Span<T* const>;
  using Ids = absl::Span<const int32_t>;

  // REQUIRES: ModelConfig::Validate(config).ok()
  explicit BasicModel(const ModelConfig& config) : config_(config) {}

  const ModelConfig& config() const { return config_; }

  // Overwrites x with the sum of the embeddings.
  void EmbedForward(Weights root, Ids tokens, absl::Span<T> x) const;

  // In order: the attention norm, attention, the MLP norm, the MLP.
  void BlockForward(Weights block, absl::Span<T> x,
                    BlockActivations<T>& saved) const;

  // The final norm and the loss, which is returned. Leaves x as it is.
  double HeadForward(Weights root, absl::Span<const T> x, Ids targets,
                     HeadActivations<T>& saved) const;

  // The loss and the final norm. Overwrites d_x. ADDS to the gradients of the
  // token embedding and the final norm.
  void HeadBackward(Weights root, const HeadActivations<T>& saved, Ids targets,
                    Workspace<T>& work, Grads d_root, absl::Span<T> d_x) const;

  // In order: the MLP, its norm, attention, its norm. OVERWRITES every gradient
  // of the block.
  void BlockBackward(Weights block, const BlockActivations<T>& saved,
                     Workspace<T>& work, Grads d_block,
                     absl::Span<T> d_x) const;

  // The parts that these are made of, for callers who share out the rows of
  // norms: what needs a norm's output, forward, or d_x behind a norm, backward,
  // needs all rows of it.

  void NormForward(BlockNorm norm, Weights block, absl::Span<const T> x,
                   Rows rows, BlockActivations<T>& saved) const;
  void AttentionForward(Weights block, BlockActivations<T>& saved,
                        absl::Span<T> x) const;
  void MlpForward(Weights block, BlockActivations<T>& saved,
                  absl::Span<T> x) const;
  void FinalNormForward(Weights root, absl::Span<const T> x, Rows rows,
                        HeadActivations<T>& saved) const;
  double LossForward(Weights root, Ids targets,
                     HeadActivations<T>& saved) const;

  // Those in front of a norm leave the gradient of its output in work.d_norm.
  void LossBackward(Weights root, const HeadActivations<T>& saved, Ids targets,
                    Workspace<T>& work, Grads d_root, absl::Span<T> d_x) const;
  // Adds to the gradients of the norm, and to `rows` of d_x.
  void FinalNormBackward(Weights root, const HeadActivations<T>& saved,
                         Rows rows, const Workspace<T>& work, Grads d_root,
                         absl::Span<T> d_x) const;
  void MlpBackward(Weights block, const BlockActivations<T>& saved,
                   Workspace<T>& work, Grads d_block, absl::Span<T> d_x) const;
  void AttentionBackward(Weights block, const BlockActivations<T>& saved,
                         Workspace<T>& work, Grads d_block,
                         absl::Span<T> d_x) const;
  // Overwrites the gradients of the norm by what `rows` contribute, and adds to
  // these rows of d_x.
  void NormBackward(BlockNorm norm, Weights block,
                    const BlockActivations<T>& saved, Rows rows,
                    const Workspace<T>& work, Grads d_block,
                    absl::Span<T> d_x) const;

  // ADDS to the gradients of the token and the position embedding.
  void EmbedBackward(Ids tokens, absl::Span<const T> d_x, Grads d_root) const;

 private:
  AttentionShape Attentions(int64_t rows) const;
  // All rows of a residual stream.
  Rows AllOf(absl::Span<const T> x) const;

  ModelConfig config_;
};

extern template class BasicModel<float>;
extern template class BasicModel<double>;

using Model = BasicModel<float>;

}  // namespace char_lm

#endif  // CHAR_LM_MODEL_H_

#ifndef CHAR_LM_LAYERS_H_
#define CHAR_LM_LAYERS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "char_lm/matmul.h"

namespace char_lm {

// The layers that a transformer is made of, forward and backward, for T float
// and double. Matrices are row-major with one row per token; d_x names the
// gradient of the loss with respect to x. Sums run in a fixed order, so that
// results are a function of the arguments' values alone.

// Some rows of a matrix, from begin up to end.
struct Rows {
  int64_t begin;
  int64_t end;
};

// What LayerNorm leaves for its backward.
template <typename T>
struct NormActivations {
  NormActivations(int64_t rows, int64_t width)
      : normalized(rows * width), inverse_stddev(rows), output(rows * width) {}

  std::vector<T> normalized;      // [rows, width], before gain and bias
  std::vector<T> inverse_stddev;  // [rows]
  std::vector<T> output;          // [rows, width]
};

// saved.output = gain * (x - mean) / sqrt(variance + 1e-5) + bias, in `rows`.
template <typename T>
void LayerNorm(ConstMatrixView<T> x, const T* gain, const T* bias, Rows rows,
               NormActivations<T>& saved);

// Adds what `rows` contribute to d_gain and d_bias, and to these rows of d_x.
template <typename T>
void LayerNormBackward(const NormActivations<T>& saved, const T* gain,
                       ConstMatrixView<T> d_output, Rows rows, T* d_gain,
                       T* d_bias, MatrixView<T> d_x);

// y = x weight + bias, or y += that. weight: [columns of x, columns of y].
template <typename T>
void Linear(ConstMatrixView<T> x, const T* weight, const T* bias,
            MatrixView<T> y, Store store = Store::kOverwrite);

// Overwrites d_weight, d_bias and d_x.
template <typename T>
void LinearBackward(ConstMatrixView<T> x, const T* weight,
                    ConstMatrixView<T> d_y, T* d_weight, T* d_bias,
                    MatrixView<T> d_x);

// The tanh form of GELU, y = x gate with gate = (1 + tanh(u)) / 2 and
// u = sqrt(2 / pi) (x + 0.044715 x^3). The gate is kept for the backward.
// Source: https://arxiv.org/abs/1606.08415
template <typename T>
void Gelu(absl::Span<const T> x, absl::Span<T> gate, absl::Span<T> y);

// d_y becomes d_x in place.
template <typename T>
void GeluBackward(absl::Span<const T> x, absl::Span<const T> gate,
                  absl::Span<T> d_y);

// How the rows of a batch are cut into sequences and their columns into heads.
struct AttentionShape {
  int64_t batch;
  int64_t context;
  int64_t heads;
  int64_t head_width;
};

// Causal multi-head attention. A row of qkv, [batch * context, 3 * width],
// holds query, key and value, each `heads` times `head_width` long. Writes
// attended, [batch * context, width], and for the backward the attention
// probabilities, [batch, heads, context, context].
template <typename T>
void Attention(const AttentionShape& shape, const T* qkv, T* probabilities,
               T* attended);

// Overwrites d_qkv. `d_scores` is scratch, [context, context].
template <typename T>
void AttentionBackward(const AttentionShape& shape, const T* qkv,
                       const T* probabilities, const T* d_attended, T* d_scores,
                       T* d_qkv);

// Turns logits, a row per target, into probabilities in place. Returns the
// cross-entropy with the targets, the mean over rows.
template <typename T>
double SoftmaxCrossEntropy(MatrixView<T> logits,
                           absl::Span<const int32_t> targets);

// Overwrites d_logits with the gradient of the mean.
template <typename T>
void SoftmaxCrossEntropyBackward(ConstMatrixView<T> probabilities,
                                 absl::Span<const int32_t> targets,
                                 MatrixView<T> d_logits);

}  // namespace char_lm

#endif  // CHAR_LM_LAYERS_H_

#include "char_lm/layers.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace char_lm {
namespace {

constexpr double kNormEpsilon = 1e-5;

// The gate of Gelu is the logistic function of 2 u, with
// 2 u = x (kGeluLinear + kGeluCubic x^2).
constexpr double kGeluLinear = 1.5957691216057308;  // 2 sqrt(2 / pi)
constexpr double kGeluCubic = kGeluLinear * 0.044715;

// The sum of term(0), ..., term(count - 1) in a fixed order: four partial
// sums, which do not wait for each other as one running sum would.
template <typename T, typename Term>
T Sum(int64_t count, Term term) {
  T partial[4] = {};
  int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    for (int lane = 0; lane < 4; ++lane) partial[lane] += term(i + lane);
  }
  for (int lane = 0; i < count; ++i, ++lane) partial[lane] += term(i);
  return (partial[0] + partial[1]) + (partial[2] + partial[3]);
}

// Overwrites sums with the sum of the rows.
template <typename T>
void SumRows(MatrixView<const T> rows, T* sums) {
  std::fill_n(sums, rows.cols, T{0});
  for (int64_t i = 0; i < rows.rows; ++i) {
    const T* row = rows.data + i * rows.stride;
    for (int64_t j = 0; j < rows.cols; ++j) sums[j] += row[j];
  }
}

// Turns row[0 .. count) into softmax(scale * row). Returns the logarithm of the
// sum of exp(scale * row).
template <typename T>
T Softmax(int64_t count, T scale, T* row) {
  const T max = *std::max_element(row, row + count);
  for (int64_t j = 0; j < count; ++j) row[j] = std::exp(scale * (row[j] - max));
  const T sum = Sum<T>(count, [row](int64_t j) { return row[j]; });
  const T inverse = 1 / sum;
  for (int64_t j = 0; j < count; ++j) row[j] *= inverse;
  return scale * max + std::log(sum);
}

// The query, key or value of one head in one sequence, as a matrix
// [context, head_width] within qkv.
enum Part { kQuery, kKey, kValue };

template <typename T>
MatrixView<T> HeadOf(T* qkv, const AttentionShape& shape, int64_t sequence,
                     int64_t head, Part part) {
  const int64_t width = shape.heads * shape.head_width;
  return {qkv + sequence * shape.context * 3 * width + part * width +
              head * shape.head_width,
          shape.context, shape.head_width, 3 * width};
}

template <typename T>
MatrixView<T> HeadOfAttended(T* attended, const AttentionShape& shape,
                             int64_t sequence, int64_t head) {
  const int64_t width = shape.heads * shape.head_width;
  return {attended + sequence * shape.context * width + head * shape.head_width,
          shape.context, shape.head_width, width};
}

template <typename T>
MatrixView<T> ScoresOf(T* scores, const AttentionShape& shape, int64_t sequence,
                       int64_t head) {
  return {
      scores + (sequence * shape.heads + head) * shape.context * shape.context,
      shape.context, shape.context};
}

template <typename T>
T ScoreScale(const AttentionShape& shape) {
  return 1 / std::sqrt(static_cast<T>(shape.head_width));
}

// Row i attends to the columns 0 .. i; the others become zero.
template <typename T>
void CausalSoftmax(T scale, MatrixView<T> scores) {
  for (int64_t i = 0; i < scores.rows; ++i) {
    T* row = scores.data + i * scores.stride;
    Softmax(i + 1, scale, row);
    std::fill(row + i + 1, row + scores.cols, T{0});
  }
}

// Turns the gradient of the probabilities into that of the scores, in place.
template <typename T>
void CausalSoftmaxBackward(T scale, MatrixView<const T> probabilities,
                           MatrixView<T> d_scores) {
  for (int64_t i = 0; i < d_scores.rows; ++i) {
    const T* p = probabilities.data + i * probabilities.stride;
    T* d = d_scores.data + i * d_scores.stride;
    const T mean = Sum<T>(i + 1, [p, d](int64_t j) { return p[j] * d[j]; });
    for (int64_t j = 0; j <= i; ++j) d[j] = scale * p[j] * (d[j] - mean);
    std::fill(d + i + 1, d + d_scores.cols, T{0});
  }
}

}  // namespace

template <typename T>
void LayerNorm(ConstMatrixView<T> x, const T* gain, const T* bias, Rows rows,
               NormActivations<T>& saved) {
  const int64_t width = x.cols;
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const T* in = x.data + i * x.stride;
    T* normalized = saved.normalized.data() + i * width;
    T* out = saved.output.data() + i * width;
    const T mean = Sum<T>(width, [in](int64_t j) { return in[j]; }) / width;
    for (int64_t j = 0; j < width; ++j) normalized[j] = in[j] - mean;
    const T variance = Sum<T>(width,
                              [normalized](int64_t j) {
                                return normalized[j] * normalized[j];
                              }) /
                       width;
    const T inverse_stddev =
        1 / std::sqrt(variance + static_cast<T>(kNormEpsilon));
    for (int64_t j = 0; j < width; ++j) {
      normalized[j] *= inverse_stddev;
      out[j] = gain[j] * normalized[j] + bias[j];
    }
    saved.inverse_stddev[i] = inverse_stddev;
  }
}

template <typename T>
void LayerNormBackward(const NormActivations<T>& saved, const T* gain,
                       ConstMatrixView<T> d_output, Rows rows, T* d_gain,
                       T* d_bias, MatrixView<T> d_x) {
  const int64_t width = d_x.cols;
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const T* normalized = saved.normalized.data() + i * width;
    const T* d_out = d_output.data + i * d_output.stride;
    T* d_in = d_x.data + i * d_x.stride;
    for (int64_t j = 0; j < width; ++j) {
      d_gain[j] += d_out[j] * normalized[j];
      d_bias[j] += d_out[j];
    }
    // Mean and variance depend on x too: that takes out of the gradient its
    // mean and its component along the normalized row.
    const T mean =
        Sum<T>(width, [=](int64_t j) { return gain[j] * d_out[j]; }) / width;
    const T along =
        Sum<T>(width,
               [=](int64_t j) { return gain[j] * d_out[j] * normalized[j]; }) /
        width;
    for (int64_t j = 0; j < width; ++j) {
      d_in[j] += saved.inverse_stddev[i] *
                 (gain[j] * d_out[j] - mean - normalized[j] * along);
    }
  }
}

template <typename T>
void Linear(ConstMatrixView<T> x, const T* weight, const T* bias,
            MatrixView<T> y, Store store) {
  for (int64_t i = 0; i < y.rows; ++i) {
    T* row = y.data + i * y.stride;
    if (store == Store::kOverwrite) {
      std::copy_n(bias, y.cols, row);
    } else {
      for (int64_t j = 0; j < y.cols; ++j) row[j] += bias[j];
    }
  }
  Multiply(x, {weight, x.cols, y.cols}, y, Store::kAccumulate);
}

template <typename T>
void LinearBackward(ConstMatrixView<T> x, const T* weight,
                    ConstMatrixView<T> d_y, T* d_weight, T* d_bias,
                    MatrixView<T> d_x) {
  MultiplyTransposed(x, d_y, MatrixView<T>(d_weight, x.cols, d_y.cols));
  SumRows<T>(d_y, d_bias);
  MultiplyByTransposed(d_y, {weight, x.cols, d_y.cols}, d_x);
}

template <typename T>
void Gelu(absl::Span<const T> x, absl::Span<T> gate, absl::Span<T> y) {
  constexpr T kLinear = kGeluLinear;
  constexpr T kCubic = kGeluCubic;
  for (size_t i = 0; i < x.size(); ++i) {
    gate[i] = 1 / (1 + std::exp(-x[i] * (kLinear + kCubic * x[i] * x[i])));
    y[i] = x[i] * gate[i];
  }
}

template <typename T>
void GeluBackward(absl::Span<const T> x, absl::Span<const T> gate,
                  absl::Span<T> d_y) {
  constexpr T kLinear = kGeluLinear;
  constexpr T kCubic = kGeluCubic;
  for (size_t i = 0; i < x.size(); ++i) {
    const T d_exponent = kLinear + 3 * kCubic * x[i] * x[i];
    d_y[i] *= gate[i] + x[i] * gate[i] * (1 - gate[i]) * d_exponent;
  }
}

template <typename T>
void Attention(const AttentionShape& shape, const T* qkv, T* probabilities,
               T* attended) {
  for (int64_t s = 0; s < shape.batch; ++s) {
    for (int64_t h = 0; h < shape.heads; ++h) {
      const MatrixView<T> scores = ScoresOf(probabilities, shape, s, h);
      MultiplyByTransposed(HeadOf(qkv, shape, s, h, kQuery),
                           HeadOf(qkv, shape, s, h, kKey), scores);
      CausalSoftmax(ScoreScale<T>(shape), scores);
      Multiply(scores, HeadOf(qkv, shape, s, h, kValue),
               HeadOfAttended(attended, shape, s, h));
    }
  }
}

template <typename T>
void AttentionBackward(const AttentionShape& shape, const T* qkv,
                       const T* probabilities, const T* d_attended, T* d_scores,
                       T* d_qkv) {
  const MatrixView<T> d_s(d_scores, shape.context, shape.context);
  for (int64_t s = 0; s < shape.batch; ++s) {
    for (int64_t h = 0; h < shape.heads; ++h) {
      const auto p = ScoresOf(probabilities, shape, s, h);
      const auto d_out = HeadOfAttended(d_attended, shape, s, h);
      MultiplyTransposed(p, d_out, HeadOf(d_qkv, shape, s, h, kValue));
      MultiplyByTransposed(d_out, HeadOf(qkv, shape, s, h, kValue), d_s);
      CausalSoftmaxBackward(ScoreScale<T>(shape), p, d_s);
      Multiply(d_s, HeadOf(qkv, shape, s, h, kKey),
               HeadOf(d_qkv, shape, s, h, kQuery));
      MultiplyTransposed(d_s, HeadOf(qkv, shape, s, h, kQuery),
                         HeadOf(d_qkv, shape, s, h, kKey));
    }
  }
}

template <typename T>
double SoftmaxCrossEntropy(MatrixView<T> logits,
                           absl::Span<const int32_t> targets) {
  assert(targets.size() == static_cast<size_t>(logits.rows));
  double loss = 0;
  for (int64_t i = 0; i < logits.rows; ++i) {
    T* row = logits.data + i * logits.stride;
    const T target_logit = row[targets[i]];
    loss += Softmax(logits.cols, T{1}, row) - target_logit;
  }
  return loss / static_cast<double>(logits.rows);
}

template <typename T>
void SoftmaxCrossEntropyBackward(ConstMatrixView<T> probabilities,
                                 absl::Span<const int32_t> targets,
                                 MatrixView<T> d_logits) {
  assert(targets.size() == static_cast<size_t>(d_logits.rows));
  const T scale = 1 / static_cast<T>(d_logits.rows);
  for (int64_t i = 0; i < d_logits.rows; ++i) {
    const T* p = probabilities.data + i * probabilities.stride;
    T* d = d_logits.data + i * d_logits.stride;
    for (int64_t j = 0; j < d_logits.cols; ++j) d[j] = scale * p[j];
    d[targets[i]] -= scale;
  }
}

#define CHAR_LM_INSTANTIATE(T)                                                \
  template void LayerNorm(ConstMatrixView<T>, const T*, const T*, Rows,       \
                          NormActivations<T>&);                               \
  template void LayerNormBackward(const NormActivations<T>&, const T*,        \
                                  ConstMatrixView<T>, Rows, T*, T*,           \
                                  MatrixView<T>);                             \
  template void Linear(ConstMatrixView<T>, const T*, const T*, MatrixView<T>, \
                       Store);                                                \
  template void LinearBackward(ConstMatrixView<T>, const T*,                  \
                               ConstMatrixView<T>, T*, T*, MatrixView<T>);    \
  template void Gelu(absl::Span<const T>, absl::Span<T>, absl::Span<T>);      \
  template void GeluBackward(absl::Span<const T>, absl::Span<const T>,        \
                             absl::Span<T>);                                  \
  template void Attention(const AttentionShape&, const T*, T*, T*);           \
  template void AttentionBackward(const AttentionShape&, const T*, const T*,  \
                                  const T*, T*, T*);                          \
  template double SoftmaxCrossEntropy(MatrixView<T>,                          \
                                      absl::Span<const int32_t>);             \
  template void SoftmaxCrossEntropyBackward(                                  \
      ConstMatrixView<T>, absl::Span<const int32_t>, MatrixView<T>)
CHAR_LM_INSTANTIATE(float);
CHAR_LM_INSTANTIATE(double);
#undef CHAR_LM_INSTANTIATE

}  // namespace char_lm

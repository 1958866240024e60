#include "char_lm/muon.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "char_lm/matmul.h"

namespace char_lm {
namespace {

constexpr int kIterations = 5;
constexpr float kA = 3.4445f;
constexpr float kB = -4.7750f;
constexpr float kC = 2.0315f;

void Transpose(int64_t rows, int64_t columns, const float* x, float* out) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j)
      out[j * rows + i] = x[i * columns + j];
  }
}

void DivideByNorm(int64_t size, float* x) {
  double squares = 0;
  for (int64_t i = 0; i < size; ++i)
    squares += static_cast<double>(x[i]) * x[i];
  const auto scale = static_cast<float>(1 / (std::sqrt(squares) + 1e-7));
  for (int64_t i = 0; i < size; ++i) x[i] *= scale;
}

// REQUIRES: no more rows than columns, so that the products are small.
void OrthogonalizeWide(int64_t rows, int64_t columns, float* x) {
  DivideByNorm(rows * columns, x);
  std::vector<float> squared(rows * rows);
  std::vector<float> polynomial(rows * rows);
  std::vector<float> product(rows * columns);
  const MatrixView<float> matrix(x, rows, columns);
  const MatrixView<float> a(squared.data(), rows, rows);
  const MatrixView<float> p(polynomial.data(), rows, rows);
  const MatrixView<float> px(product.data(), rows, columns);
  for (int k = 0; k < kIterations; ++k) {
    MultiplyByTransposed<float>(matrix, matrix, a);
    Multiply<float>(a, a, p);
    for (size_t i = 0; i < polynomial.size(); ++i) {
      polynomial[i] = kB * squared[i] + kC * polynomial[i];
    }
    Multiply<float>(p, matrix, px);
    for (size_t i = 0; i < product.size(); ++i) {
      x[i] = kA * x[i] + product[i];
    }
  }
}

}  // namespace

void Orthogonalize(int64_t rows, int64_t columns, float* x) {
  if (rows <= columns) {
    OrthogonalizeWide(rows, columns, x);
    return;
  }
  std::vector<float> transposed(rows * columns);
  Transpose(rows, columns, x, transposed.data());
  OrthogonalizeWide(columns, rows, transposed.data());
  Transpose(columns, rows, transposed.data(), x);
}

void UpdateByMuon(const MuonUpdate& update, int64_t rows, int64_t columns,
                  const float* gradient, float* weight, float* momentum) {
  const int64_t size = rows * columns;
  const auto mu = static_cast<float>(update.momentum);
  std::vector<float> step(size);
  for (int64_t i = 0; i < size; ++i) {
    momentum[i] = mu * momentum[i] + gradient[i];
    step[i] = gradient[i] + mu * momentum[i];
  }
  Orthogonalize(rows, columns, step.data());
  const double shape =
      std::sqrt(std::max(1.0, static_cast<double>(columns) / rows));
  const auto rate = static_cast<float>(update.learning_rate * shape);
  for (int64_t i = 0; i < size; ++i) weight[i] -= rate * step[i];
}

}  // namespace char_lm

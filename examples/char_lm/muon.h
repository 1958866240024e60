#ifndef CHAR_LM_MUON_H_
#define CHAR_LM_MUON_H_

#include <cstdint>

namespace char_lm {

// The momentum of a matrix, orthogonalized: an update that moves all of its
// directions equally far.
//
//   m = momentum * m + g
//   u = g + momentum * m                     (Nesterov)
//   w = w - learning_rate * sqrt(max(1, columns / rows)) * Orthogonalize(u)
//
// A weight is [inputs, outputs]. Only for whole matrices: a part of one has
// other directions. Source: https://kellerjordan.github.io/posts/muon/
struct MuonUpdate {
  double learning_rate = 0.02;
  double momentum = 0.95;
};

// x, [rows, columns], row-major, becomes a matrix with about the same singular
// vectors and singular values between about 0.7 and 1.2, in place: x over its
// Frobenius norm, then five Newton-Schulz iterations
//
//   x = a x + (b A + c A^2) x,   A = x x^T
//
// with a = 3.4445, b = -4.7750, c = 2.0315, on the transpose where there are
// more rows than columns. Source: as above.
//
// REQUIRES: at least two rows and two columns.
void Orthogonalize(int64_t rows, int64_t columns, float* x);

// One update of a weight [rows, columns] and its momentum, which begins as
// zeros. Bitwise a function of the values. REQUIRES: as Orthogonalize.
void UpdateByMuon(const MuonUpdate& update, int64_t rows, int64_t columns,
                  const float* gradient, float* weight, float* momentum);

}  // namespace char_lm

#endif  // CHAR_LM_MUON_H_

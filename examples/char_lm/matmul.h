#ifndef CHAR_LM_MATMUL_H_
#define CHAR_LM_MATMUL_H_

#include <cstdint>
#include <type_traits>

namespace char_lm {

// A row-major matrix on borrowed memory: row i starts at data + i * stride.
template <typename T>
struct MatrixView {
  MatrixView(T* d, int64_t r, int64_t c) : MatrixView(d, r, c, c) {}
  MatrixView(T* d, int64_t r, int64_t c, int64_t s)
      : data(d), rows(r), cols(c), stride(s) {}

  // NOLINTNEXTLINE(google-explicit-constructor)
  operator MatrixView<const T>() const requires(!std::is_const_v<T>) {
    return {data, rows, cols, stride};
  }

  T* data;
  int64_t rows;
  int64_t cols;
  int64_t stride;
};

template <typename T>
using ConstMatrixView = MatrixView<const std::type_identity_t<T>>;

enum class Store { kOverwrite, kAccumulate };

// Matrix products, for T float and double.
//
// Results are a function of shapes and values alone: bitwise the same whatever
// the alignment of the operands, the thread and the order of calls.
//
// REQUIRES: fitting shapes; `out` overlaps neither operand and has at least two
// rows and two columns.

// out = a b
template <typename T>
void Multiply(ConstMatrixView<T> a, ConstMatrixView<T> b, MatrixView<T> out,
              Store store = Store::kOverwrite);

// out = a b^T
template <typename T>
void MultiplyByTransposed(ConstMatrixView<T> a, ConstMatrixView<T> b,
                          MatrixView<T> out, Store store = Store::kOverwrite);

// out = a^T b
template <typename T>
void MultiplyTransposed(ConstMatrixView<T> a, ConstMatrixView<T> b,
                        MatrixView<T> out, Store store = Store::kOverwrite);

}  // namespace char_lm

#endif  // CHAR_LM_MATMUL_H_

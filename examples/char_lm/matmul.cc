#include "char_lm/matmul.h"

#include <cassert>

// Eigen's blocked product copies its operands into packed, aligned panels, so
// its order of summation cannot depend on addresses. The coefficient-based
// product, which it prefers for small sizes, promises no such thing: never take
// it. This is the only file that includes Eigen, so no other one can bring in
// the same templates configured differently.
#define EIGEN_DONT_PARALLELIZE
#define EIGEN_GEMM_TO_COEFFBASED_THRESHOLD 0
#include <Eigen/Core>

namespace char_lm {
namespace {

template <typename T>
using RowMajor =
    Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

template <typename T>
auto Map(MatrixView<T> m) {
  return Eigen::Map<RowMajor<T>, Eigen::Unaligned, Eigen::OuterStride<>>(
      m.data, m.rows, m.cols, Eigen::OuterStride<>(m.stride));
}

template <typename T>
auto Map(MatrixView<const T> m) {
  return Eigen::Map<const RowMajor<T>, Eigen::Unaligned, Eigen::OuterStride<>>(
      m.data, m.rows, m.cols, Eigen::OuterStride<>(m.stride));
}

template <typename Left, typename Right, typename T>
void StoreProduct(const Left& left, const Right& right, MatrixView<T> out,
                  Store store) {
  assert(left.cols() == right.rows());
  assert(left.rows() == out.rows && right.cols() == out.cols);
  // A single row or column would go the way of matrix-vector products.
  assert(out.rows >= 2 && out.cols >= 2);
  auto result = Map(out);
  if (store == Store::kOverwrite) {
    result.noalias() = left * right;
  } else {
    result.noalias() += left * right;
  }
}

}  // namespace

template <typename T>
void Multiply(ConstMatrixView<T> a, ConstMatrixView<T> b, MatrixView<T> out,
              Store store) {
  StoreProduct(Map(a), Map(b), out, store);
}

template <typename T>
void MultiplyByTransposed(ConstMatrixView<T> a, ConstMatrixView<T> b,
                          MatrixView<T> out, Store store) {
  StoreProduct(Map(a), Map(b).transpose(), out, store);
}

template <typename T>
void MultiplyTransposed(ConstMatrixView<T> a, ConstMatrixView<T> b,
                        MatrixView<T> out, Store store) {
  StoreProduct(Map(a).transpose(), Map(b), out, store);
}

#define CHAR_LM_INSTANTIATE(T, Name)                                \
  template void Name<T>(ConstMatrixView<T> a, ConstMatrixView<T> b, \
                        MatrixView<T> out, Store store)
CHAR_LM_INSTANTIATE(float, Multiply);
CHAR_LM_INSTANTIATE(float, MultiplyByTransposed);
CHAR_LM_INSTANTIATE(float, MultiplyTransposed);
CHAR_LM_INSTANTIATE(double, Multiply);
CHAR_LM_INSTANTIATE(double, MultiplyByTransposed);
CHAR_LM_INSTANTIATE(double, MultiplyTransposed);
#undef CHAR_LM_INSTANTIATE

}  // namespace char_lm

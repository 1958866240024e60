#include "char_lm/matmul.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "char_lm/random.h"
#include "gtest/gtest.h"

namespace char_lm {
namespace {

enum class Form { kPlain, kRightTransposed, kLeftTransposed };

// out = a b, a: [rows, depth], b: [depth, cols].
struct Problem {
  Form form;
  Store store;
  int64_t rows, cols, depth;
};

// Every form, below and above the sizes at which Eigen changes its ways of
// multiplying.
std::vector<Problem> Problems() {
  std::vector<Problem> problems;
  for (const Form form :
       {Form::kPlain, Form::kRightTransposed, Form::kLeftTransposed}) {
    for (const Store store : {Store::kOverwrite, Store::kAccumulate}) {
      for (const int64_t rows : {2, 3, 5, 17, 64}) {
        for (const int64_t cols : {2, 4, 7, 33}) {
          for (const int64_t depth : {1, 2, 6, 16, 300}) {
            problems.push_back({form, store, rows, cols, depth});
          }
        }
      }
    }
  }
  return problems;
}

std::string ToString(const Problem& problem) {
  return absl::StrCat("form ", static_cast<int>(problem.form), " store ",
                      static_cast<int>(problem.store), " ", problem.rows, "x",
                      problem.cols, "x", problem.depth);
}

enum Name { kA, kB, kOut };

// The element at (i, j) of a random matrix.
float Element(Name name, int64_t i, int64_t j) {
  Random random({static_cast<uint64_t>(name), static_cast<uint64_t>(i),
                 static_cast<uint64_t>(j)});
  return static_cast<float>(random.Next() >> 40) / (1 << 23) - 1;
}

// A random matrix, or its transpose, on memory that starts `shift` elements
// past a 64-byte boundary and has `gap` elements between rows.
class Matrix {
 public:
  Matrix(Name name, bool transposed, int64_t rows, int64_t cols, int64_t shift,
         int64_t gap)
      : storage_((rows + gap) * (cols + gap) + shift + 16),
        view_(storage_.data() + ToBoundary() + shift, transposed ? cols : rows,
              transposed ? rows : cols, (transposed ? rows : cols) + gap) {
    for (int64_t i = 0; i < view_.rows; ++i) {
      for (int64_t j = 0; j < view_.cols; ++j) {
        view_.data[i * view_.stride + j] =
            transposed ? Element(name, j, i) : Element(name, i, j);
      }
    }
  }
  Matrix(const Matrix&) = delete;
  Matrix& operator=(const Matrix&) = delete;

  MatrixView<float> view() const { return view_; }

  std::vector<float> Values() const {
    std::vector<float> values;
    for (int64_t i = 0; i < view_.rows; ++i) {
      const float* row = view_.data + i * view_.stride;
      values.insert(values.end(), row, row + view_.cols);
    }
    return values;
  }

 private:
  int64_t ToBoundary() const {
    const uintptr_t address = reinterpret_cast<uintptr_t>(storage_.data());
    return (64 - address % 64) % 64 / sizeof(float);
  }

  std::vector<float> storage_;
  MatrixView<float> view_;
};

// Each matrix is at a shift of its own.
std::vector<float> Product(const Problem& p, int64_t shift, int64_t gap) {
  const Matrix a(kA, p.form == Form::kLeftTransposed, p.rows, p.depth, shift,
                 gap);
  const Matrix b(kB, p.form == Form::kRightTransposed, p.depth, p.cols,
                 3 * shift % 16, gap);
  const Matrix out(kOut, false, p.rows, p.cols, 5 * shift % 16, gap);
  switch (p.form) {
    case Form::kPlain:
      Multiply(a.view(), b.view(), out.view(), p.store);
      break;
    case Form::kRightTransposed:
      MultiplyByTransposed(a.view(), b.view(), out.view(), p.store);
      break;
    case Form::kLeftTransposed:
      MultiplyTransposed(a.view(), b.view(), out.view(), p.store);
      break;
  }
  return out.Values();
}

double ReferenceElement(const Problem& p, int64_t i, int64_t j) {
  double sum = p.store == Store::kAccumulate ? Element(kOut, i, j) : 0;
  for (int64_t k = 0; k < p.depth; ++k) {
    sum += static_cast<double>(Element(kA, i, k)) * Element(kB, k, j);
  }
  return sum;
}

TEST(Matmul, AgreesWithSumsOfProducts) {
  for (const Problem& p : Problems()) {
    const std::vector<float> product = Product(p, 0, 0);
    for (int64_t i = 0; i < p.rows; ++i) {
      for (int64_t j = 0; j < p.cols; ++j) {
        ASSERT_NEAR(product[i * p.cols + j], ReferenceElement(p, i, j), 1e-4)
            << ToString(p);
      }
    }
  }
}

// Shifts of 4 bytes: every place within a cache line.
TEST(Matmul, BitsDoNotDependOnAddressesAndStrides) {
  for (const Problem& p : Problems()) {
    const std::vector<float> want = Product(p, 0, 0);
    for (int64_t shift = 0; shift < 16; ++shift) {
      const int64_t gap = shift % 5;
      const std::vector<float> got = Product(p, shift, gap);
      ASSERT_EQ(
          std::memcmp(got.data(), want.data(), want.size() * sizeof(float)), 0)
          << ToString(p) << " shift " << shift << " gap " << gap;
    }
  }
}

}  // namespace
}  // namespace char_lm

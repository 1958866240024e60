#include "char_lm/muon.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include "char_lm/random.h"
#include "gtest/gtest.h"

namespace char_lm {
namespace {

std::vector<float> RandomMatrix(int64_t size, uint64_t seed) {
  Random random({seed});
  std::vector<float> values(size);
  for (float& value : values) {
    value = static_cast<float>(random.Next() % 2001) / 1000.0f - 1.0f;
  }
  return values;
}

// The polynomial that an iteration is on a singular value.
double Iterate(double s) {
  for (int k = 0; k < 5; ++k) {
    s = 3.4445 * s - 4.7750 * std::pow(s, 3) + 2.0315 * std::pow(s, 5);
  }
  return s;
}

// On a diagonal matrix, singular values are what is on the diagonal.
TEST(OrthogonalizeTest, IteratesThePolynomialOnSingularValues) {
  for (const auto& [rows, columns] :
       {std::pair<int64_t, int64_t>(3, 5), {5, 3}, {4, 4}}) {
    const std::vector<double> values = {3, 0.5, 0.125};
    std::vector<float> x(rows * columns, 0.0f);
    double squares = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      x[i * columns + i] = static_cast<float>(values[i]);
      squares += values[i] * values[i];
    }
    Orthogonalize(rows, columns, x.data());
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        const bool is_value = i == j && i < 3;
        const double wanted =
            is_value ? Iterate(values[i] / std::sqrt(squares)) : 0;
        EXPECT_NEAR(x[i * columns + j], wanted, 1e-4) << i << "," << j;
      }
    }
  }
}

// x x^T has the squares of singular values on its diagonal, on average.
TEST(OrthogonalizeTest, LeavesSingularValuesNearOne) {
  for (const auto& [rows, columns] :
       {std::pair<int64_t, int64_t>(8, 24), {24, 8}, {2, 2}}) {
    std::vector<float> x = RandomMatrix(rows * columns, rows);
    Orthogonalize(rows, columns, x.data());
    double squares = 0;
    for (float value : x) squares += value * value;
    const double mean = squares / std::min(rows, columns);
    EXPECT_GT(mean, 0.6 * 0.6);
    EXPECT_LT(mean, 1.25 * 1.25);
  }
}

TEST(OrthogonalizeTest, LeavesZerosAlone) {
  std::vector<float> x(6, 0.0f);
  Orthogonalize(2, 3, x.data());
  for (float value : x) EXPECT_EQ(value, 0.0f);
}

TEST(OrthogonalizeTest, CommutesWithTransposition) {
  const std::vector<float> wide = RandomMatrix(3 * 7, 1);
  std::vector<float> tall(wide.size());
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 7; ++j) tall[j * 3 + i] = wide[i * 7 + j];
  }
  std::vector<float> x = wide;
  Orthogonalize(3, 7, x.data());
  Orthogonalize(7, 3, tall.data());
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 7; ++j) EXPECT_EQ(tall[j * 3 + i], x[i * 7 + j]);
  }
}

TEST(UpdateByMuonTest, IsTheFormula) {
  const MuonUpdate update = {.learning_rate = 0.5, .momentum = 0.75};
  std::vector<float> weight = RandomMatrix(2 * 8, 1);
  std::vector<float> momentum(16, 0.0f);
  std::vector<float> wanted = weight;
  std::vector<float> m(16, 0.0f);
  for (uint64_t step : {2, 3}) {
    const std::vector<float> g = RandomMatrix(16, step);
    UpdateByMuon(update, 2, 8, g.data(), weight.data(), momentum.data());
    std::vector<float> u(16);
    for (int i = 0; i < 16; ++i) {
      m[i] = 0.75f * m[i] + g[i];
      u[i] = g[i] + 0.75f * m[i];
    }
    Orthogonalize(2, 8, u.data());
    for (int i = 0; i < 16; ++i) {
      wanted[i] -= 0.5f * 2 * u[i];  // sqrt(8 / 2) is 2
      EXPECT_EQ(momentum[i], m[i]);
      EXPECT_NEAR(weight[i], wanted[i], 1e-6);
    }
  }
}

}  // namespace
}  // namespace char_lm

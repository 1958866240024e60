#include "tessera/tensor/tensor_view.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

TensorMeta F32(std::vector<int64_t> extents) {
  return TensorMeta::Create(DType::kF32, extents).value();
}

std::vector<float> Iota(int n) {
  std::vector<float> values(n);
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

// The elements of a 2-d view by its strides.
std::vector<float> Elements(const TensorView& view) {
  std::vector<float> result;
  for (int64_t i = 0; i < view.shape().extent(0); ++i) {
    for (int64_t j = 0; j < view.shape().extent(1); ++j) {
      result.push_back(
          view.as<float>()[i * view.strides()[0] + j * view.strides()[1]]);
    }
  }
  return result;
}

TEST(TensorViewTest, IsDenseRowMajorUnlessStridesAreGiven) {
  std::vector<float> data = Iota(6);
  const TensorView view(data.data(), F32({2, 3}));
  EXPECT_THAT(view.strides(), ElementsAre(3, 1));
  EXPECT_TRUE(view.IsContiguous());
  EXPECT_EQ(view.SpanBytes(), 24);
  EXPECT_EQ(view.num_bytes(), 24);
  EXPECT_EQ(view.ToString(), "f32[2,3]");
  EXPECT_EQ(Elements(view), data);
}

TEST(TensorViewTest, FlatIsOneDim) {
  std::vector<float> data = Iota(6);
  const TensorView view = TensorView::Flat(data.data(), DType::kF32, 6);
  EXPECT_EQ(view.meta(), F32({6}));
  EXPECT_EQ(view.data(), data.data());
}

TEST(TensorViewTest, SlicesShareTheMemory) {
  std::vector<float> data = Iota(12);
  const TensorView whole(data.data(), F32({3, 4}));
  const TensorView rows = whole.Slice(0, {1, 3});
  EXPECT_THAT(Elements(rows), ElementsAre(4, 5, 6, 7, 8, 9, 10, 11));
  EXPECT_TRUE(rows.IsContiguous());
  const TensorView columns = whole.Slice(1, {1, 3});
  EXPECT_THAT(Elements(columns), ElementsAre(1, 2, 5, 6, 9, 10));
  EXPECT_FALSE(columns.IsContiguous());
  EXPECT_EQ(columns.SpanBytes(), (2 * 4 + 2) * 4);
  EXPECT_EQ(columns.ToString(), "f32[3,2] strides (4,1)");
  EXPECT_THAT(Elements(columns.Slice(0, {2, 3}).Slice(1, {1, 2})),
              ElementsAre(10));
}

TEST(TensorViewTest, FlattenedHasTheElementsInOrder) {
  std::vector<float> data = Iota(12);
  const TensorView view =
      TensorView(data.data(), F32({3, 4})).Slice(0, {1, 3}).Flattened();
  EXPECT_EQ(view.meta(), F32({8}));
  EXPECT_EQ(view.as<float>()[0], 4);
}

TEST(TensorViewTest, StridesOfExtentOneDoNotMatter) {
  ASSERT_OK_AND_ASSIGN(const TensorView view,
                       TensorView::Strided(nullptr, F32({1, 3}), {77, 1}));
  EXPECT_TRUE(view.IsContiguous());
  EXPECT_EQ(view.SpanBytes(), 12);
  ASSERT_OK_AND_ASSIGN(const TensorView gaps,
                       TensorView::Strided(nullptr, F32({3, 1}), {2, 1}));
  EXPECT_FALSE(gaps.IsContiguous());
}

TEST(TensorViewTest, ViewsWithoutElementsAreContiguousAndSpanNothing) {
  const TensorView view(nullptr, F32({0, 4}));
  EXPECT_TRUE(view.IsContiguous());
  EXPECT_EQ(view.SpanBytes(), 0);
  EXPECT_EQ(view.Slice(1, {2, 4}).data(), nullptr);
  // Of a simulated rank, say.
  EXPECT_EQ(TensorView(nullptr, F32({2, 4})).Slice(1, {2, 4}).data(), nullptr);
  EXPECT_EQ(view.Slice(1, {2, 4}).meta(), F32({0, 2}));
  std::vector<float> data = Iota(6);
  const TensorView none = TensorView(data.data(), F32({2, 3})).Slice(1, {3, 3});
  EXPECT_EQ(none.num_elements(), 0);
  EXPECT_TRUE(none.IsContiguous());
}

TEST(TensorViewTest, AScalarHasOneElement) {
  float value = 3;
  const TensorView view(&value, TensorMeta());
  EXPECT_TRUE(view.IsContiguous());
  EXPECT_EQ(view.SpanBytes(), 4);
  EXPECT_EQ(view.Flattened().meta(), F32({1}));
}

TEST(TensorViewTest, RepeatsElementsWithStrideZero) {
  float value = 3;
  ASSERT_OK_AND_ASSIGN(const TensorView view,
                       TensorView::Strided(&value, F32({2, 2}), {0, 0}));
  EXPECT_FALSE(view.IsContiguous());
  EXPECT_EQ(view.SpanBytes(), 4);
  EXPECT_THAT(Elements(view), ElementsAre(3, 3, 3, 3));
}

TEST(TensorViewTest, RejectsBadStrides) {
  EXPECT_THAT(TensorView::Strided(nullptr, F32({2, 3}), {1}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("one stride per dim of f32[2,3], found 1")));
  EXPECT_THAT(TensorView::Strided(nullptr, F32({2, 3}), {-3, 1}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("-3")));
  for (int64_t stride : {kMax, kMax - 1, kMax / 4}) {
    EXPECT_THAT(
        TensorView::Strided(nullptr, F32({2, 3}), {stride, 1}),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("int64")));
  }
}

}  // namespace
}  // namespace tessera

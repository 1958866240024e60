#include "tessera/tensor/shape.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/hash/hash_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/hostile_text.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::HostileTexts;
using ::tessera::testing::IsOkAndHolds;
using ::tessera::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

Shape Make(std::vector<int64_t> extents) {
  return Shape::Create(extents).value();
}

TEST(ShapeTest, DefaultsToZeroDimsAndOneElement) {
  EXPECT_EQ(Shape().num_dims(), 0);
  EXPECT_EQ(Shape().num_elements(), 1);
  EXPECT_EQ(Shape().ToString(), "[]");
  EXPECT_EQ(Shape(), Make({}));
}

TEST(ShapeTest, CountsElements) {
  EXPECT_EQ(Make({3, 4, 5}).num_elements(), 60);
  EXPECT_EQ(Make({3, 0, 5}).num_elements(), 0);
  EXPECT_EQ(Make({kMax}).num_elements(), kMax);
  EXPECT_EQ(Make({kMax, 0}).num_elements(), 0);
}

TEST(ShapeTest, RejectsNegativeExtents) {
  EXPECT_THAT(Shape::Create({4, -2}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "tensor: want extents of at least 0, found -2 in "
                       "[4,-2]"));
}

TEST(ShapeTest, RejectsProductsBeyondInt64) {
  for (const std::vector<int64_t>& extents : std::vector<std::vector<int64_t>>{
           {kMax, 2}, {kMax, 0, 2}, {0, int64_t{1} << 32, int64_t{1} << 31}}) {
    EXPECT_THAT(
        Shape::Create(extents),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("int64")));
  }
}

TEST(ShapeTest, CountsNegativeDimsFromTheEnd) {
  const Shape shape = Make({4, 8, 2});
  EXPECT_THAT(shape.NormalizeDim(0), IsOkAndHolds(0));
  EXPECT_THAT(shape.NormalizeDim(2), IsOkAndHolds(2));
  EXPECT_THAT(shape.NormalizeDim(-1), IsOkAndHolds(2));
  EXPECT_THAT(shape.NormalizeDim(-3), IsOkAndHolds(0));
}

TEST(ShapeTest, RejectsDimsOutOfRange) {
  const int64_t outside[] = {3, -4, kMax, std::numeric_limits<int64_t>::min()};
  for (int64_t dim : outside) {
    EXPECT_THAT(Make({4, 8, 2}).NormalizeDim(dim),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("out of range for rank-3 tensor [4,8,2]")));
  }
  EXPECT_THAT(Shape().NormalizeDim(0),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(ShapeTest, StridesAreRowMajorWithZeroExtentsAsOne) {
  EXPECT_THAT(Shape().RowMajorStrides(), IsEmpty());
  EXPECT_THAT(Make({4, 8, 2}).RowMajorStrides(), ElementsAre(16, 2, 1));
  EXPECT_THAT(Make({4, 0, 2}).RowMajorStrides(), ElementsAre(2, 2, 1));
  EXPECT_THAT(Make({2, kMax / 2, 0}).RowMajorStrides(),
              ElementsAre(kMax / 2, 1, 1));
}

TEST(ShapeTest, TextParsesBack) {
  for (const Shape& shape : {Shape(), Make({0}), Make({1}), Make({4096, 14336}),
                             Make({kMax}), Make({1, 2, 3, 4, 5, 6, 7, 8, 9})}) {
    EXPECT_THAT(Shape::Parse(shape.ToString()), IsOkAndHolds(shape));
  }
  EXPECT_THAT(Shape::Parse(" [ 4 , 5\t]\n"), IsOkAndHolds(Make({4, 5})));
}

TEST(ShapeTest, ParseErrorsQuoteWhatDoesNotParse) {
  EXPECT_THAT(Shape::Parse("[4,x]"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "tensor: want an int64 extent, found 'x]' in '[4,x]'"));
  EXPECT_THAT(Shape::Parse("[9223372036854775808]"),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Shape::Parse("[-1]"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("-1")));
}

TEST(ShapeTest, SurvivesHostileText) {
  constexpr uint32_t kSeed = 1;
  SCOPED_TRACE(kSeed);
  for (const std::string& text : HostileTexts({"[4096,14336]"}, kSeed, 3000)) {
    const absl::StatusOr<Shape> shape = Shape::Parse(text);
    if (shape.ok()) {
      EXPECT_THAT(Shape::Parse(shape->ToString()), IsOkAndHolds(*shape));
    } else {
      EXPECT_THAT(shape, StatusIs(absl::StatusCode::kInvalidArgument));
    }
  }
}

TEST(ShapeTest, HashesAsItCompares) {
  EXPECT_TRUE(absl::VerifyTypeImplementsAbslHashCorrectly(
      {Shape(), Make({0}), Make({1}), Make({1, 1}), Make({2, 3}),
       Make({3, 2})}));
}

}  // namespace
}  // namespace tessera

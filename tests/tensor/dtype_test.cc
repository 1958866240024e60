#include "tessera/tensor/dtype.h"

#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/tensor/reduce_op.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::IsOkAndHolds;
using ::tessera::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(DTypeTest, NamesParseBack) {
  for (DType dtype : kAllDTypes) {
    EXPECT_THAT(ParseDType(DTypeName(dtype)), IsOkAndHolds(dtype));
    std::ostringstream stream;
    stream << dtype;
    EXPECT_EQ(stream.str(), DTypeName(dtype));
  }
}

TEST(DTypeTest, RejectsOtherNamesAndListsThese) {
  for (const char* name : {"", "f", "f8", "F32", "f32 ", "float", "\xff"}) {
    absl::StatusOr<DType> dtype = ParseDType(name);
    ASSERT_THAT(dtype, StatusIs(absl::StatusCode::kInvalidArgument)) << name;
    for (DType known : kAllDTypes) {
      EXPECT_THAT(std::string(dtype.status().message()),
                  HasSubstr(std::string(DTypeName(known))));
    }
  }
}

TEST(DTypeTest, VisitCallsWithTheTypeOfThatDType) {
  for (DType dtype : kAllDTypes) {
    const DType visited =
        VisitDType(dtype, []<typename T>() { return DTypeOf<T>; });
    EXPECT_EQ(visited, dtype);
    const auto size = VisitDType(
        dtype, []<typename T>() { return static_cast<int64_t>(sizeof(T)); });
    EXPECT_EQ(SizeOf(dtype), size) << dtype;
  }
}

TEST(DTypeTest, TellsFloatingFromInteger) {
  EXPECT_TRUE(IsFloating(DType::kF32));
  EXPECT_TRUE(IsFloating(DType::kF64));
  EXPECT_TRUE(IsFloating(DType::kBF16));
  EXPECT_TRUE(IsFloating(DType::kF16));
  EXPECT_FALSE(IsFloating(DType::kI32));
  EXPECT_FALSE(IsFloating(DType::kI64));
}

TEST(ReduceOpTest, NamesParseBack) {
  for (ReduceOp op : kAllReduceOps) {
    EXPECT_EQ(ParseReduceOp(ReduceOpName(op)), op);
  }
  EXPECT_EQ(ParseReduceOp(""), std::nullopt);
  EXPECT_EQ(ParseReduceOp("mean"), std::nullopt);
}

}  // namespace
}  // namespace tessera

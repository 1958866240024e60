#include "tessera/base/status_macros.h"

#include <memory>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::IsOkAndHolds;
using ::tessera::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::Pointee;

absl::Status FailFor(int value) {
  if (value >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError("value is negative");
}

absl::StatusOr<std::unique_ptr<int>> Box(int value) {
  TESSERA_RETURN_IF_ERROR(FailFor(value));
  return std::make_unique<int>(value);
}

absl::StatusOr<std::unique_ptr<int>> BoxSum(int a, int b) {
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<int> boxed_a, Box(a));
  std::unique_ptr<int> boxed_b;
  TESSERA_ASSIGN_OR_RETURN(boxed_b, Box(b));
  return std::make_unique<int>(*boxed_a + *boxed_b);
}

TEST(StatusMacrosTest, AssignMovesTheValue) {
  EXPECT_THAT(BoxSum(2, 3), IsOkAndHolds(Pointee(5)));
}

TEST(StatusMacrosTest, ErrorsReturnAtOnce) {
  EXPECT_THAT(BoxSum(-1, 3), StatusIs(absl::StatusCode::kInvalidArgument,
                                      HasSubstr("negative")));
  EXPECT_THAT(BoxSum(1, -3), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(StatusMacrosTest, WorkInABranchWithoutBraces) {
  const auto fail_if = [](bool fail) -> absl::Status {
    if (fail)
      TESSERA_RETURN_IF_ERROR(absl::AbortedError("failed"));
    else
      return absl::OkStatus();
    return absl::InternalError("not reached");
  };
  EXPECT_OK(fail_if(false));
  EXPECT_THAT(fail_if(true), StatusIs(absl::StatusCode::kAborted, "failed"));
}

TEST(StatusMatchersTest, TellErrorsApart) {
  const absl::StatusOr<int> three = 3;
  const absl::StatusOr<int> none = absl::NotFoundError("no number");
  EXPECT_OK(three);
  EXPECT_THAT(three, IsOkAndHolds(3));
  EXPECT_THAT(three, ::testing::Not(IsOkAndHolds(4)));
  EXPECT_THAT(none, ::testing::Not(testing::IsOk()));
  EXPECT_THAT(none, ::testing::Not(IsOkAndHolds(3)));
  EXPECT_THAT(none, StatusIs(absl::StatusCode::kNotFound, "no number"));
  EXPECT_THAT(none, ::testing::Not(StatusIs(absl::StatusCode::kNotFound, "")));
  EXPECT_THAT(none, ::testing::Not(StatusIs(absl::StatusCode::kAborted)));
  ASSERT_OK_AND_ASSIGN(const int value, three);
  EXPECT_EQ(value, 3);
}

}  // namespace
}  // namespace tessera

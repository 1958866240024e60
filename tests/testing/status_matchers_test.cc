#include "tessera/testing/status_matchers.h"

#include <string>

#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest-spi.h"
#include "gtest/gtest.h"

namespace tessera::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Lt;
using ::testing::Not;

const absl::Status& NotThere() {
  static const auto& status = *new absl::Status(absl::NotFoundError("no tp"));
  return status;
}

TEST(StatusMatchersTest, TellStatusesApart) {
  EXPECT_THAT(absl::OkStatus(), IsOk());
  EXPECT_THAT(NotThere(), Not(IsOk()));
  EXPECT_THAT(NotThere(), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(NotThere(), Not(StatusIs(absl::StatusCode::kAborted)));
  EXPECT_THAT(NotThere(), StatusIs(absl::StatusCode::kNotFound, "no tp"));
  EXPECT_THAT(NotThere(),
              Not(StatusIs(absl::StatusCode::kNotFound, HasSubstr("dp"))));
}

TEST(StatusMatchersTest, LookIntoResults) {
  const absl::StatusOr<int> three = 3;
  const absl::StatusOr<int> none = NotThere();
  EXPECT_THAT(three, IsOk());
  EXPECT_THAT(three, IsOkAndHolds(3));
  EXPECT_THAT(three, Not(IsOkAndHolds(Lt(3))));
  EXPECT_THAT(none, Not(IsOkAndHolds(3)));
  EXPECT_THAT(none, StatusIs(absl::StatusCode::kNotFound));
}

TEST(StatusMatchersTest, FailuresShowWhatIsHeld) {
  EXPECT_NONFATAL_FAILURE(
      EXPECT_THAT(absl::StatusOr<int>(7), IsOkAndHolds(Lt(3))),
      "Expected: is OK and holds what is < 3");
  EXPECT_NONFATAL_FAILURE(
      EXPECT_THAT(absl::StatusOr<int>(7), IsOkAndHolds(Lt(3))),
      "which holds 7");
  EXPECT_NONFATAL_FAILURE(
      EXPECT_THAT(absl::StatusOr<int>(NotThere()), IsOkAndHolds(3)),
      "whose status is NOT_FOUND: no tp");
}

TEST(StatusMatchersTest, MacrosFailWithTheStatus) {
  EXPECT_NONFATAL_FAILURE(TESSERA_EXPECT_OK(NotThere()), "NOT_FOUND: no tp");
  EXPECT_FATAL_FAILURE(TESSERA_ASSERT_OK(NotThere()), "NOT_FOUND: no tp");
  EXPECT_FATAL_FAILURE(
      {
        TESSERA_ASSERT_OK_AND_ASSIGN(const int value,
                                     absl::StatusOr<int>(NotThere()));
        FAIL() << "went on with " << value;
      },
      "NOT_FOUND: no tp");
  TESSERA_ASSERT_OK_AND_ASSIGN(const int value, absl::StatusOr<int>(3));
  EXPECT_EQ(value, 3);
}

}  // namespace
}  // namespace tessera::testing

#ifndef TESSERA_TESTING_STATUS_MATCHERS_H_
#define TESSERA_TESTING_STATUS_MATCHERS_H_

#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"

// Matchers for absl::Status and absl::StatusOr. Link GoogleTest beside
// tessera::testing.
//
//   TESSERA_EXPECT_OK(mesh.status());
//   TESSERA_ASSERT_OK_AND_ASSIGN(DeviceMesh mesh, DeviceMesh::Parse("dp=2"));
//   EXPECT_THAT(mesh.FindAxis("dp"), IsOkAndHolds(0));
//   EXPECT_THAT(mesh.FindAxis("tp"), StatusIs(absl::StatusCode::kNotFound,
//                                             HasSubstr("tp")));

namespace tessera::testing {

inline const absl::Status& StatusOf(const absl::Status& status) {
  return status;
}
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}

MATCHER(IsOk, negation ? "is an error" : "is OK") {
  *result_listener << "whose status is " << StatusOf(arg).ToString();
  return StatusOf(arg).ok();
}

MATCHER_P(StatusIs, code,
          "has a status code that " +
              ::testing::DescribeMatcher<absl::StatusCode>(code, negation)) {
  *result_listener << "whose status is " << StatusOf(arg).ToString();
  return ::testing::Matches(code)(StatusOf(arg).code());
}

// `message` is a string or a matcher of strings.
MATCHER_P2(StatusIs, code, message,
           "has a status code that " +
               ::testing::DescribeMatcher<absl::StatusCode>(code, negation) +
               (negation ? " or" : " and") + " a message that " +
               ::testing::DescribeMatcher<std::string>(message, negation)) {
  const absl::Status& status = StatusOf(arg);
  *result_listener << "whose status is " << status.ToString();
  return ::testing::Matches(code)(status.code()) &&
         ::testing::Matches(message)(std::string(status.message()));
}

// `value` is a value or a matcher.
MATCHER_P(
    IsOkAndHolds, value,
    (negation ? "is an error or holds what " : "is OK and holds what ") +
        ::testing::DescribeMatcher<typename std::decay_t<arg_type>::value_type>(
            value, negation)) {
  if (!arg.ok()) {
    *result_listener << "whose status is " << arg.status().ToString();
    return false;
  }
  *result_listener << "which holds " << ::testing::PrintToString(*arg) << ", ";
  return ::testing::ExplainMatchResult(value, *arg, result_listener);
}

}  // namespace tessera::testing

#define TESSERA_EXPECT_OK(expr) EXPECT_THAT(expr, ::tessera::testing::IsOk())
#define TESSERA_ASSERT_OK(expr) ASSERT_THAT(expr, ::tessera::testing::IsOk())

// `lhs` may be a declaration.
#define TESSERA_ASSERT_OK_AND_ASSIGN(lhs, expr) \
  TESSERA_ASSERT_OK_AND_ASSIGN_IMPL_(           \
      TESSERA_CONCAT_(tessera_statusor_, __LINE__), lhs, expr)
#define TESSERA_ASSERT_OK_AND_ASSIGN_IMPL_(result, lhs, expr) \
  auto result = (expr);                                       \
  TESSERA_ASSERT_OK(result);                                  \
  lhs = *std::move(result)

#endif  // TESSERA_TESTING_STATUS_MATCHERS_H_

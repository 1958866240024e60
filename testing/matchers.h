#ifndef TESSERA_TESTING_MATCHERS_H_
#define TESSERA_TESTING_MATCHERS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "tessera/redistribute/plan.h"
#include "tessera/testing/golden_plans.h"
#include "tessera/testing/plan_checks.h"
#include "tessera/testing/status_matchers.h"

// Matchers for plans, whose failures print the plan; and, as included here,
// for statuses. Link GoogleTest beside tessera::testing.
//
//   TESSERA_ASSERT_OK_AND_ASSIGN(Plan plan, MakePlan(from, to, topology));
//   EXPECT_THAT(plan, IsVerified());
//   EXPECT_THAT(plan, StepsAre("RS(dp) AG(tp)"));
//   EXPECT_THAT(plan, Sends(AtMost(64 << 20)));
//   EXPECT_THAT(plan, AllOf(PeaksBelow(1 << 30), Launches(AtMost(3)),
//                           NeverGathers("tp")));
//   EXPECT_THAT(plan, MatchesGolden("plans.json"));

namespace tessera::testing {
namespace internal {

// Explains an error as such texts stand behind "Actual: ...,".
inline bool ExplainStatus(const absl::Status& status,
                          ::testing::MatchResultListener* listener) {
  if (!status.ok()) *listener << "which is wrong: " << status.message();
  return status.ok();
}

// Matches one figure of a plan, and shows the plan where that does not match.
template <typename Matcher>
bool ExplainFigure(const Matcher& matcher, const Plan& plan, int64_t figure,
                   ::testing::MatchResultListener* listener) {
  if (::testing::Value(figure, matcher)) return true;
  *listener << "which is " << figure << " in\n" << DescribePlan(plan);
  return false;
}

template <typename Matcher>
std::string DescribeFigure(absl::string_view figure, const Matcher& matcher,
                           bool negation) {
  return absl::StrCat(figure, " ",
                      ::testing::DescribeMatcher<int64_t>(matcher, negation));
}

}  // namespace internal

// A number that is at most this. Unlike ::testing::AtMost, which counts calls
// of mocks, a matcher, and of 64 bits.
inline auto AtMost(int64_t most) { return ::testing::Le(most); }

// Verify(plan) is OK.
MATCHER(IsVerified, negation ? "is wrong" : "is proved right") {
  return internal::ExplainStatus(CheckVerified(arg), result_listener);
}

// The steps by name and axes, e.g. "RS(dp) AG(tp)"; "" for none.
MATCHER_P(StepsAre, line,
          absl::StrCat(negation ? "has other steps than \"" : "has steps \"",
                       line, "\"")) {
  return internal::ExplainStatus(CheckSteps(arg, line), result_listener);
}

// The bytes that a rank sends or receives at most; `bytes` is a number or a
// matcher.
MATCHER_P(Sends, bytes,
          internal::DescribeFigure("sends bytes, whose number", bytes,
                                   negation)) {
  return internal::ExplainFigure(bytes, arg, arg.bytes_received(),
                                 result_listener);
}

// Communicating steps; `launches` is a number or a matcher.
MATCHER_P(Launches, launches,
          internal::DescribeFigure("launches steps, whose number", launches,
                                   negation)) {
  return internal::ExplainFigure(launches, arg, arg.launches(),
                                 result_listener);
}

// Source, target and workspace of a rank together.
MATCHER_P(PeaksBelow, bytes,
          absl::StrCat(negation ? "peaks at or above " : "peaks below ", bytes,
                       " bytes")) {
  return internal::ExplainStatus(CheckPeakBelow(arg, bytes), result_listener);
}

// See CheckNeverGathers.
MATCHER_P(NeverGathers, axis,
          absl::StrCat(negation ? "gathers along '" : "never gathers along '",
                       axis, "'")) {
  return internal::ExplainStatus(CheckNeverGathers(arg, axis), result_listener);
}

// See CheckMatchesGolden: the plan is one of those in this file.
MATCHER_P(MatchesGolden, path,
          absl::StrCat(negation ? "is not" : "is", " as ", path, " has it")) {
  return internal::ExplainStatus(CheckMatchesGolden(arg, path),
                                 result_listener);
}

}  // namespace tessera::testing

#endif  // TESSERA_TESTING_MATCHERS_H_

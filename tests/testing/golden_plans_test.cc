#include "tessera/testing/golden_plans.h"

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/mesh/topology.h"
#include "tessera/redistribute/planner.h"
#include "tessera/testing/matchers.h"
#include "tests/hostile_text.h"
#include "tests/status_matchers.h"
#include "tests/temporary_folder.h"

namespace tessera::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kGolden[] = R"({
  "version": 1,
  "plans": [
    {
      "name": "gradient",
      "mesh": "dp=2,tp=4",
      "dtype": "bf16",
      "shape": [4096,14336],
      "from": "[P(sum), S(0)]",
      "to": "[R, S(0)]",
      "max_workspace_bytes": 67108864,
      "plan": "[P(sum), S(0)] -AR(dp)-> [R, S(0)]",
      "limits": {"bytes_received":29360128,"launches":1,"peak_bytes":58720256}
    },
    {
      "mesh": "dp=2,tp=4",
      "dtype": "f32",
      "shape": [],
      "from": "[R, R]",
      "to_mesh": "tp=4@8",
      "to": "[R]"
    }
  ]
}
)";

GoldenPlan Gradient() {
  GoldenPlan golden;
  golden.name = "gradient";
  golden.from = Layout::Parse("bf16[4096,14336] [P(sum), S(0)]",
                              DeviceMesh::Parse("dp=2,tp=4").value())
                    .value();
  golden.to = golden.from.With("[R, S(0)]").value();
  golden.max_workspace_bytes = 64 << 20;
  golden.plan = "[P(sum), S(0)] -AR(dp)-> [R, S(0)]";
  golden.limits.bytes_received = 29'360'128;
  golden.limits.launches = 1;
  golden.limits.peak_bytes = 58'720'256;
  return golden;
}

GoldenPlan Crossing() {
  GoldenPlan golden;
  golden.from =
      Layout::Parse("f32[] [R, R]", DeviceMesh::Parse("dp=2,tp=4").value())
          .value();
  golden.to =
      Layout::Parse("f32[] [R]", DeviceMesh::Parse("tp=4@8").value()).value();
  return golden;
}

Plan GradientPlan() {
  return MakeGoldenPlan(Gradient(), Topology::Unit()).value();
}

TEST(GoldenPlansTest, WritesAndReadsTheFormat) {
  EXPECT_EQ(GoldenPlansToJson({Gradient(), Crossing()}), kGolden);
  EXPECT_THAT(GoldenPlansFromJson(kGolden),
              IsOkAndHolds(ElementsAre(Gradient(), Crossing())));
  EXPECT_EQ(GoldenPlansToJson({}),
            "{\n  \"version\": 1,\n  \"plans\": []\n}\n");
  EXPECT_THAT(GoldenPlansFromJson(GoldenPlansToJson({})),
              IsOkAndHolds(ElementsAre()));
}

TEST(GoldenPlansTest, PrintsTheQuestion) {
  EXPECT_EQ(Gradient().ToString(),
            "gradient: bf16[4096,14336] [P(sum), S(0)] to [R, S(0)] on "
            "'dp=2,tp=4' in 67108864 bytes");
  EXPECT_EQ(Crossing().ToString(),
            "f32[] [R, R] to [R] on 'dp=2,tp=4' and 'tp=4@8'");
}

TEST(GoldenPlansTest, NamesWhatIsWrong) {
  const auto expect_error = [](const std::string& from, const std::string& to,
                               const std::string& message) {
    const std::string text = absl::StrReplaceAll(kGolden, {{from, to}});
    ASSERT_NE(text, kGolden) << from;
    EXPECT_THAT(GoldenPlansFromJson(text),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(StartsWith("golden: "), HasSubstr(message))))
        << text;
  };
  expect_error("}\n  ]", "}", "want JSON");
  expect_error(R"("version": 1,)", "", "want a key 'version', found none");
  expect_error(R"("version": 1)", R"("version": 2)",
               "want an integer from 1 to 1 as 'version', found 2");
  expect_error(R"("plans")", R"("goldens")", "want no key 'goldens'");
  expect_error(R"("mesh": "dp=2,tp=4",)", "", "want a key 'plans[0].mesh'");
  expect_error("gradient\"", "gradient\", \"colour\": 1",
               "want no key 'plans[0].colour', found one");
  expect_error(R"("gradient")", "7", "want a text as 'plans[0].name', found 7");
  expect_error("tp=4@8", "tp", "'plans[1].to_mesh': mesh: want '='");
  expect_error("\"bf16\"", "\"b16\"", "'plans[0].dtype': ");
  expect_error("[4096,14336]", "\"4096\"", "want a list as 'plans[0].shape'");
  expect_error("14336]", "-1]", "as 'plans[0].shape[1]', found -1");
  expect_error("14336]", "9223372036854775807]", "'plans[0].shape': ");
  expect_error("\"[P(sum), S(0)]\"", "\"[P(sum)]\"", "'plans[0].from': layout");
  expect_error("\"[R, S(0)]\"", "\"[R, S(2)]\"", "'plans[0].to': layout");
  expect_error("\"[R]\"", "[]", "want a text as 'plans[1].to', found a list");
  expect_error("67108864", "0.5", "as 'plans[0].max_workspace_bytes', found");
  expect_error("\"launches\":1", "\"launches\":-1",
               "as 'plans[0].limits.launches', found -1");
  expect_error("launches", "cost_us", "no key 'plans[0].limits.cost_us'");
}

TEST(GoldenPlansTest, WantsEveryQuestionOnce) {
  GoldenPlan other = Gradient();
  other.name = "another name";
  other.plan.reset();
  EXPECT_THAT(
      GoldenPlansFromJson(GoldenPlansToJson({Gradient(), Crossing(), other})),
      StatusIs(absl::StatusCode::kInvalidArgument,
               "golden: want other layouts or another workspace than in "
               "plans[0] as 'plans[2]', found an object"));
  other.max_workspace_bytes.reset();
  EXPECT_OK(GoldenPlansFromJson(GoldenPlansToJson({Gradient(), other})));
}

TEST(GoldenPlansTest, SurvivesHostileTexts) {
  const uint32_t seed = ::testing::UnitTest::GetInstance()->random_seed();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  for (const std::string& text : HostileTexts({kGolden}, seed, 2000)) {
    const auto plans = GoldenPlansFromJson(text);
    if (plans.ok()) {
      EXPECT_THAT(GoldenPlansFromJson(GoldenPlansToJson(*plans)),
                  IsOkAndHolds(*plans));
    } else {
      EXPECT_THAT(plans, StatusIs(absl::StatusCode::kInvalidArgument));
    }
  }
}

TEST(DiffGoldenPlanTest, IsEmptyWhereThePlanIsAsExpected) {
  EXPECT_EQ(DiffGoldenPlan(Gradient(), GradientPlan()), "");
  GoldenPlan limits_only = Gradient();
  limits_only.plan.reset();
  EXPECT_EQ(DiffGoldenPlan(limits_only, GradientPlan()), "");
  GoldenPlan line_only = Gradient();
  line_only.limits = {};
  EXPECT_EQ(DiffGoldenPlan(line_only, GradientPlan()), "");
}

TEST(DiffGoldenPlanTest, ShowsWhatDiffers) {
  GoldenPlan golden = Gradient();
  golden.plan = "[P(sum), S(0)] -RS(dp)-> ...";
  golden.limits.bytes_received = 5;
  golden.limits.launches = 0;
  golden.limits.peak_bytes = 6;
  EXPECT_EQ(DiffGoldenPlan(golden, GradientPlan()),
            "- [P(sum), S(0)] -RS(dp)-> ...\n"
            "+ [P(sum), S(0)] -AR(dp)-> [R, S(0)]\n"
            "- at most 5 bytes received\n"
            "+ 29360128 bytes received\n"
            "- at most 0 launches\n"
            "+ 1 launches\n"
            "- at most 6 bytes at the peak\n"
            "+ 58720256 bytes at the peak\n");
}

// What expects nothing could not fail.
TEST(DiffGoldenPlanTest, WantsAnExpectation) {
  GoldenPlan golden = Gradient();
  golden.plan.reset();
  golden.limits = {};
  EXPECT_EQ(DiffGoldenPlan(golden, GradientPlan()),
            "+ [P(sum), S(0)] -AR(dp)-> [R, S(0)]\n");
}

class GoldenFileTest : public ::testing::Test {
 protected:
  std::string Write(absl::Span<const GoldenPlan> plans) const {
    std::ofstream(path()) << GoldenPlansToJson(plans);
    return path();
  }
  std::string path() const { return folder_.File("plans.json"); }

 private:
  const TemporaryFolder folder_;
};

TEST_F(GoldenFileTest, MatchesItsPlans) {
  const std::string path = Write({Crossing(), Gradient()});
  EXPECT_OK(CheckMatchesGolden(GradientPlan(), path));
  EXPECT_THAT(GradientPlan(), MatchesGolden(path));
}

TEST_F(GoldenFileTest, MatchesOneOfSeveralBetweenTheSameEnds) {
  GoldenPlan other = Gradient();
  other.max_workspace_bytes = 0;
  other.plan = "something else";
  EXPECT_THAT(GradientPlan(), MatchesGolden(Write({other, Gradient()})));
  EXPECT_THAT(GradientPlan(), Not(MatchesGolden(Write({other}))));
}

TEST_F(GoldenFileTest, DiffersFromOtherPlans) {
  GoldenPlan golden = Gradient();
  golden.plan = "[P(sum), S(0)] -AR(tp)-> [R, S(0)]";
  const std::string path = Write({golden});
  EXPECT_THAT(GradientPlan(), Not(MatchesGolden(path)));
  EXPECT_THAT(CheckMatchesGolden(GradientPlan(), path),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr(path),
                             HasSubstr("\n- [P(sum), S(0)] "
                                       "-AR(tp)-> [R, S(0)]\n"
                                       "+ [P(sum), S(0)] "
                                       "-AR(dp)-> "),
                             HasSubstr("\n  all_reduce "))));
}

TEST_F(GoldenFileTest, MatchesNothingThatItDoesNotHave) {
  const std::string path = Write({Crossing()});
  EXPECT_THAT(GradientPlan(), Not(MatchesGolden(path)));
  EXPECT_THAT(
      CheckMatchesGolden(GradientPlan(), path),
      StatusIs(absl::StatusCode::kNotFound,
               HasSubstr("want a plan from bf16[4096,14336] [P(sum), S(0)] to "
                         "[R, S(0)] on 'dp=2,tp=4', found none")));
}

TEST_F(GoldenFileTest, NamesFilesThatAreWrong) {
  EXPECT_THAT(ReadGoldenPlans(path()),
              StatusIs(absl::StatusCode::kNotFound,
                       path() + ": want a file to read, found: No such file "
                                "or directory"));
  EXPECT_THAT(GradientPlan(), Not(MatchesGolden(path())));
  EXPECT_THAT(ReadGoldenPlans(::testing::TempDir()), Not(IsOk()));
  std::ofstream(path()) << "{}";
  EXPECT_THAT(ReadGoldenPlans(path()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       path() + ": golden: want a key 'version', found none"));
}

}  // namespace
}  // namespace tessera::testing

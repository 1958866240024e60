// `tessera check` as users run it.

#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/file.h"
#include "tests/status_matchers.h"
#include "tests/temporary_folder.h"
#include "tests/tools/json_schema.h"
#include "tests/tools/run_tessera.h"

namespace tessera::testing {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kRight[] = R"({
  "version": 1,
  "plans": [
    {
      "name": "gradient",
      "mesh": "dp=2,tp=2",
      "dtype": "f32",
      "shape": [8,8],
      "from": "[P(sum), S(0)]",
      "to": "[R, S(0)]",
      "plan": "[P(sum), S(0)] -AR(dp)-> [R, S(0)]"
    },
    {
      "mesh": "dp=2,tp=2",
      "dtype": "f32",
      "shape": [8,8],
      "from": "[S(0), S(1)]",
      "to": "[R, S(1)]",
      "limits": {"bytes_received":64,"launches":1}
    }
  ]
}
)";

class CheckCommandTest : public ::testing::Test {
 protected:
  // Writes kRight with edits, and runs `check` on it.
  ProgramResult Check(std::initializer_list<
                          std::pair<const absl::string_view, absl::string_view>>
                          edits,
                      const std::string& flags = "") {
    written_ = absl::StrReplaceAll(kRight, edits);
    EXPECT_OK(internal::WriteFile(path_, written_));
    return CheckAgain(flags);
  }
  ProgramResult CheckAgain(const std::string& flags = "") {
    return RunTessera(absl::StrCat("check '", path_, "' ", flags));
  }
  std::string Content() { return internal::ReadFile(path_).value(); }

  const TemporaryFolder folder_;
  const std::string path_ = folder_.File("plans.json");
  std::string written_;
};

TEST_F(CheckCommandTest, PassesWhatIsAsExpected) {
  const ProgramResult result = Check({});
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_EQ(result.output,
            path_ + ": 2 of 2 plans on 'unit' are as expected\n");
}

TEST_F(CheckCommandTest, ShowsWhatDiffersAndExitsWithOne) {
  const ProgramResult result =
      Check({{"-AR(dp)->", "-AR(tp)->"}, {"\"launches\":1", "\"launches\":0"}});
  EXPECT_EQ(result.exit_status, 1);
  EXPECT_EQ(result.output,
            absl::StrReplaceAll(
                "FILE: gradient: f32[8,8] [P(sum), S(0)] to [R, S(0)] on "
                "'dp=2,tp=2'\n"
                "- [P(sum), S(0)] -AR(tp)-> [R, S(0)]\n"
                "+ [P(sum), S(0)] -AR(dp)-> [R, S(0)]\n"
                "FILE: f32[8,8] [S(0), S(1)] to [R, S(1)] on 'dp=2,tp=2'\n"
                "- at most 0 launches\n"
                "+ 1 launches\n"
                "FILE: 0 of 2 plans on 'unit' are as expected\n",
                {{"FILE", path_}}));
  EXPECT_EQ(Content(), written_);
}

TEST_F(CheckCommandTest, UpdatesLines) {
  const ProgramResult result = Check({{"-AR(dp)->", "-AR(tp)->"}}, "--update");
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("- [P(sum), S(0)] -AR(tp)->"),
                    HasSubstr("1 of 2 plans on 'unit' are as expected, 1 "
                              "updated\n")));
  EXPECT_EQ(Content(), kRight);
  EXPECT_EQ(CheckAgain().exit_status, 0);
}

TEST_F(CheckCommandTest, UpdatesWritePlansThatAreNotThereYet) {
  const char kLine[] =
      ",\n      \"plan\": \"[P(sum), S(0)] -AR(dp)-> [R, S(0)]\"";
  const ProgramResult missing = Check({{kLine, ""}});
  EXPECT_EQ(missing.exit_status, 1);
  EXPECT_THAT(missing.output,
              HasSubstr("\n+ [P(sum), S(0)] -AR(dp)-> [R, S(0)]\n"));
  EXPECT_EQ(CheckAgain("--update").exit_status, 0);
  EXPECT_EQ(Content(), kRight);
}

// A limit is a decision, not a record.
TEST_F(CheckCommandTest, UpdatesLeaveLimits) {
  const ProgramResult result =
      Check({{"\"launches\":1", "\"launches\":0"}}, "--update");
  EXPECT_EQ(result.exit_status, 1);
  EXPECT_EQ(Content(), written_);
}

TEST_F(CheckCommandTest, DoesNotTouchAFileThatIsAsExpected) {
  EXPECT_EQ(Check({{"[8,8]", "[8, 8]"}}, "--update").exit_status, 0);
  EXPECT_EQ(Content(), written_);
}

TEST_F(CheckCommandTest, ReportsPlansThatCannotBeMade) {
  const ProgramResult result =
      Check({{"\"plan\":", "\"max_workspace_bytes\": 0, \"plan\":"},
             {"[R, S(0)]", "[S(1), R]"}},
            "--update");
  EXPECT_EQ(result.exit_status, 1);
  EXPECT_THAT(result.output, HasSubstr("\n+ redistribute: from f32[8,8]"));
}

TEST_F(CheckCommandTest, PlansOnTheTopologyGiven) {
  const ProgramResult result = Check({}, "--topology ethernet-100g");
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_THAT(result.output, HasSubstr("on 'ethernet-100g'"));
}

TEST_F(CheckCommandTest, ExitsWithTwoForFilesThatItCannotRead) {
  const ProgramResult wrong = Check({{"\"shape\"", "\"form\""}});
  EXPECT_EQ(wrong.exit_status, 2);
  EXPECT_EQ(wrong.output, "tessera check: " + path_ +
                              ": golden: want no key 'plans[0].form', found "
                              "one\n");
  const ProgramResult none = RunTessera("check no_such.json");
  EXPECT_EQ(none.exit_status, 2);
  EXPECT_EQ(none.output,
            "tessera check: no_such.json: want a file to read, found: No such "
            "file or directory\n");
}

TEST_F(CheckCommandTest, WritesNothingWhereItCannotReadAll) {
  const ProgramResult result =
      Check({{"[P(sum), S(0)] -AR(dp)-> [R, S(0)]", "another"}},
            "no_such.json --update");
  EXPECT_EQ(result.exit_status, 2);
  EXPECT_THAT(result.output, HasSubstr("no_such.json: want a file to read"));
  EXPECT_EQ(internal::ReadFile(path_).value(), written_);
}

TEST_F(CheckCommandTest, TheSchemaDescribesTheFormat) {
  const JsonSchema schema(Json::parse(
      internal::ReadFile(DOCS "/golden_plans.schema.json").value()));
  EXPECT_EQ(schema.FaultOf(Json::parse(kRight)), "");
  for (const auto& [from, to] :
       {std::pair("\"shape\"", "\"form\""), std::pair("8,8", "8,-8"),
        std::pair("\"version\": 1", "\"version\": 2"),
        std::pair("launches", "cost_us")}) {
    EXPECT_NE(
        schema.FaultOf(Json::parse(absl::StrReplaceAll(kRight, {{from, to}}))),
        "")
        << to;
  }
}

}  // namespace
}  // namespace tessera::testing

// `tessera plan` as users run it.

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/file.h"
#include "tessera/mesh/topology.h"
#include "tessera/redistribute/plan_json.h"
#include "tessera/redistribute/planner.h"
#include "tests/status_matchers.h"
#include "tests/temporary_folder.h"
#include "tests/tools/json_schema.h"
#include "tests/tools/run_tessera.h"

namespace tessera::testing {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kExample[] =
    "plan --mesh dp=2,tp=4 --shape 4096,14336 --dtype bf16 "
    "--from '[P(sum), S(0)]' --to '[R, S(1)]' --topology h100-ib";

Plan ExamplePlan(const PlanOptions& options = {}) {
  const Layout from = Layout::Parse("bf16[4096,14336] [P(sum), S(0)]",
                                    DeviceMesh::Parse("dp=2,tp=4").value())
                          .value();
  return MakePlan(from, from.With("[R, S(1)]").value(),
                  Topology::Preset("h100-ib").value(), options)
      .value();
}

JsonSchema PlanSchema() {
  return JsonSchema(
      Json::parse(internal::ReadFile(DOCS "/plan.schema.json").value()));
}

TEST(PlanCommandTest, PrintsThePlan) {
  const ProgramResult result = RunTessera(kExample);
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("bf16[4096,14336] on mesh 'dp=2,tp=4'\n"),
                    HasSubstr(ExamplePlan().ToString() + "\n"),
                    HasSubstr(ExamplePlan().ToTable()),
                    HasSubstr("launches 2, peak 73400320 bytes (70.0 MiB), "
                              "fingerprint ")));
}

TEST(PlanCommandTest, PrintsJsonThatTheLibraryReads) {
  const ProgramResult result = RunTessera(std::string(kExample) + " --json");
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_THAT(PlanFromJson(result.output), IsOkAndHolds(ExamplePlan()));
}

TEST(PlanCommandTest, KeepsToAWorkspace) {
  const ProgramResult result =
      RunTessera(std::string(kExample) + " --json --max-workspace 14MiB");
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_THAT(PlanFromJson(result.output),
              IsOkAndHolds(ExamplePlan({.max_workspace_bytes = 14 << 20})));
  const ProgramResult impossible = RunTessera(
      "plan --mesh dp=2,tp=2 --shape 8,8 --dtype f32 --from '[P, S(0)]' "
      "--to '[S(1), R]' --max-workspace 0");
  EXPECT_EQ(impossible.exit_status, 2);
  EXPECT_THAT(impossible.output,
              HasSubstr("tessera plan: redistribute: from f32[8,8] [P(sum), "
                        "S(0)] to [S(1), R] on mesh 'dp=2,tp=2' want a "
                        "workspace of at least "));
}

TEST(PlanCommandTest, PrintsAlternatives) {
  const ProgramResult text =
      RunTessera(std::string(kExample) + " --alternatives 2");
  EXPECT_THAT(text.output,
              AllOf(HasSubstr("\nalternative 1: "),
                    HasSubstr("\nalternative 2: "), HasSubstr(" us more (+")));
  const ProgramResult json =
      RunTessera(std::string(kExample) + " --alternatives 2 --json");
  Json document = Json::parse(json.output);
  ASSERT_EQ(document["alternatives"].size(), 2u);
  for (const Json& alternative : document["alternatives"]) {
    EXPECT_OK(PlanFromJson(alternative.dump()));
    EXPECT_GT(alternative["cost_us"], document["cost_us"]);
  }
}

TEST(PlanCommandTest, JsonIsAsTheSchemaSays) {
  const JsonSchema schema = PlanSchema();
  for (const char* arguments :
       {kExample,
        "plan --mesh dp=2,tp=4 --shape 4096,14336 --from '[P(sum), S(0)]' "
        "--to '[R, S(1)]' --alternatives 3",
        "plan --mesh x=2 --shape 5 --from '[R]' --to '[R]'",
        "plan --mesh x=2 --shape '' --from '[P]' --to '[R]' --dtype i64",
        "plan --mesh x=4 --shape 5,3 --from '[S(0)]' --to '[S(1)]' "
        "--to-mesh y=2@4 --topology unit",
        "plan --mesh x=4 --shape 5,3 --from '[Ragged(0,1,2,3,15)]' --to "
        "'[R]'"}) {
    SCOPED_TRACE(arguments);
    const ProgramResult result = RunTessera(std::string(arguments) + " --json");
    EXPECT_EQ(result.exit_status, 0) << result.output;
    EXPECT_EQ(schema.FaultOf(Json::parse(result.output)), "");
  }
}

// The schema tells documents that are wrong.
TEST(PlanCommandTest, TheSchemaRejectsOtherDocuments) {
  const JsonSchema schema = PlanSchema();
  const Json right = Json::parse(PlanToJson(ExamplePlan()));
  EXPECT_EQ(schema.FaultOf(right), "");
  EXPECT_THAT(UncheckedKeys(schema, right,
                            {"/mesh", "/steps", "/fingerprint", "/peak_bytes",
                             "/steps/0/bytes_sent", "/steps/0/kind"}),
              ::testing::IsEmpty());
  Json unknown = right;
  unknown["steps"][1]["colour"] = "red";
  EXPECT_NE(schema.FaultOf(unknown), "");
}

TEST(PlanCommandTest, DrawsAPicture) {
  const TemporaryFolder folder;
  const std::string path = folder.File("plan.svg");
  const ProgramResult result =
      RunTessera(std::string(kExample) + " --svg '" + path + "'");
  EXPECT_EQ(result.exit_status, 0) << result.output;
  EXPECT_THAT(internal::ReadFile(path), IsOkAndHolds(HasSubstr(">RS(dp)<")));
}

}  // namespace
}  // namespace tessera::testing

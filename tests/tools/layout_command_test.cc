// `tessera layout` as users run it.

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
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
using ::testing::Not;

constexpr char kTiny[] = R"({
  "model": "tiny", "dtype": "f32", "units": [
    {"name": "embed", "params": [{"name": "wte", "shape": [5, 48]}]},
    {"name": "layer", "repeat": 10, "params": [
      {"name": "w", "shape": [8, 28]}, {"name": "b", "shape": [32]}
    ]}
  ]
})";

class LayoutCommandTest : public ::testing::Test {
 protected:
  // Runs it on a model of this text.
  ProgramResult Run(const std::string& json, const std::string& arguments) {
    const std::string path = folder_.File("model.json");
    EXPECT_OK(internal::WriteFile(path, json));
    return RunTessera(absl::StrCat("layout --model '", path, "' ", arguments));
  }

  const TemporaryFolder folder_;
};

// Two parts of 128 elements for 240 and for 256. Between rows of 48 a part has
// at least three of them; parts are a multiple of 32, too.
TEST_F(LayoutCommandTest, PrintsATable) {
  const ProgramResult result = Run(kTiny, "--ranks 2");
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_EQ(result.output,
            "tiny: f32 on 2 ranks, cut by element\n"
            "\n"
            "unit   repeat  elements  per rank  padding %  bound %\n"
            "embed       1       240       128       6.67     6.67\n"
            "layer      10       256       128       0.00     0.00\n"
            "all                2800                 0.57     0.57\n");
  const ProgramResult rows = Run(kTiny, "--ranks 2 --granularity row");
  EXPECT_THAT(rows.output,
              AllOf(HasSubstr("on 2 ranks, cut by row\n"),
                    HasSubstr("embed       1       240       160      33.33")));
}

// FSDP2: six rows of 48, nothing for 28; Megatron-FSDP: cells of 48 and of 28,
// ten for the layer, of which each rank has five.
TEST_F(LayoutCommandTest, ComparesWithOtherRules) {
  const ProgramResult result = Run(kTiny, "--ranks 2 --compare");
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("bound %  Megatron-FSDP %  FSDP2 %\n"),
                    HasSubstr("6.67     6.67            20.00    20.00\n"),
                    HasSubstr("0.00     0.00             9.38     0.00\n"),
                    HasSubstr("0.57     0.57            10.29     1.71\n")));
  const Json json =
      Json::parse(Run(kTiny, "--ranks 2 --compare --json").output);
  EXPECT_EQ(json["units"][1]["compare"],
            Json({{"megatron_fsdp_padding_elements", 24},
                  {"fsdp2_padding_elements", 0}}));
  EXPECT_DOUBLE_EQ(json["compare"]["megatron_fsdp_padding_percent"],
                   100.0 * (48 + 10 * 24) / 2800);
  EXPECT_DOUBLE_EQ(json["compare"]["fsdp2_padding_percent"], 100.0 * 48 / 2800);
}

TEST_F(LayoutCommandTest, ComparesBuiltInModels) {
  const ProgramResult result = RunTessera(
      "layout --model llama-3.1-8b --ranks 1024 --granularity row --compare "
      "--json");
  const Json json = Json::parse(result.output);
  EXPECT_EQ(json["elements"], 8030261248);
  const Json& others = json["compare"];
  EXPECT_EQ(absl::StrFormat(
                "%.2f", others["megatron_fsdp_padding_percent"].get<double>()),
            "6.76");
  EXPECT_EQ(
      absl::StrFormat("%.2f", others["fsdp2_padding_percent"].get<double>()),
      "0.08");
}

TEST_F(LayoutCommandTest, PrintsJson) {
  const ProgramResult result = Run(kTiny, "--ranks 2 --json");
  EXPECT_EQ(result.exit_status, 0);
  const Json json = Json::parse(result.output);
  EXPECT_EQ(json["model"], "tiny");
  EXPECT_EQ(json["dtype"], "f32");
  EXPECT_EQ(json["ranks"], 2);
  EXPECT_EQ(json["granularity"], "element");
  EXPECT_EQ(json["elements"], 2800);
  EXPECT_EQ(json["units"][0], Json({{"name", "embed"},
                                    {"repeat", 1},
                                    {"elements", 240},
                                    {"per_rank_elements", 128},
                                    {"padding_elements", 16},
                                    {"lower_bound_elements", 16}}));
  EXPECT_EQ(json["units"][1]["repeat"], 10);
  EXPECT_EQ(json["units"].size(), 2u);
  EXPECT_DOUBLE_EQ(json["padding_percent"], 1600.0 / 2800);
  EXPECT_DOUBLE_EQ(json["lower_bound_percent"], 1600.0 / 2800);
  EXPECT_FALSE(json.contains("compare"));
}

// Parts of 128 bytes have 16 elements of eight bytes.
TEST_F(LayoutCommandTest, AlignsForAnotherDType) {
  const Json json =
      Json::parse(Run(kTiny, "--ranks 2 --dtype f64 --json").output);
  EXPECT_EQ(json["dtype"], "f64");
  EXPECT_EQ(json["units"][0]["per_rank_elements"], 128);
  EXPECT_EQ(Json::parse(Run(kTiny, "--ranks 3 --dtype f64 --json")
                            .output)["units"][0]["per_rank_elements"],
            80);
  EXPECT_EQ(Json::parse(Run(kTiny, "--ranks 3 --json")
                            .output)["units"][0]["per_rank_elements"],
            96);
}

TEST_F(LayoutCommandTest, JsonIsAsTheSchemaSays) {
  const JsonSchema schema(
      Json::parse(internal::ReadFile(DOCS "/layout.schema.json").value()));
  for (const char* granularity :
       {"element", "inner-row", "row", "rows:1", "rows:128"}) {
    for (const char* compare : {"", " --compare"}) {
      const std::string arguments =
          absl::StrCat("layout --model gpt2-124m --ranks 12 --json ",
                       "--granularity ", granularity, compare);
      SCOPED_TRACE(arguments);
      const ProgramResult result = RunTessera(arguments);
      EXPECT_EQ(result.exit_status, 0) << result.output;
      EXPECT_EQ(schema.FaultOf(Json::parse(result.output)), "");
    }
  }
  // The schema tells documents that are wrong.
  const Json right =
      Json::parse(Run(kTiny, "--ranks 2 --compare --json").output);
  EXPECT_EQ(schema.FaultOf(right), "");
  EXPECT_THAT(
      UncheckedKeys(
          schema, right,
          {"/model", "/ranks", "/granularity", "/units", "/padding_percent",
           "/lower_bound_percent", "/compare/fsdp2_padding_percent",
           "/units/0/name", "/units/1/elements", "/units/1/per_rank_elements",
           "/units/1/padding_elements", "/units/1/lower_bound_elements",
           "/units/1/compare/megatron_fsdp_padding_elements"}),
      ::testing::IsEmpty());
  Json unknown = right;
  unknown["units"][0]["colour"] = "red";
  EXPECT_NE(schema.FaultOf(unknown), "");
}

TEST_F(LayoutCommandTest, DrawsTheLargestUnitOrTheOneWanted) {
  const std::string path = folder_.File("layout.svg");
  EXPECT_EQ(Run(kTiny, "--ranks 2 --svg '" + path + "'").exit_status, 0);
  EXPECT_THAT(
      internal::ReadFile(path),
      IsOkAndHolds(HasSubstr(
          ">tiny, layer (one of 10): f32 on 2 ranks, cut by element<")));
  EXPECT_EQ(
      Run(kTiny, "--ranks 2 --unit embed --svg '" + path + "'").exit_status, 0);
  EXPECT_THAT(
      internal::ReadFile(path),
      IsOkAndHolds(HasSubstr(">tiny, embed: f32 on 2 ranks, cut by element<")));
}

TEST_F(LayoutCommandTest, RefusesFilesInOneLineThatSaysWhere) {
  const std::string path = folder_.File("model.json");
  const struct {
    const char* json;
    const char* message;
  } cases[] = {
      {"{", "model: want JSON, found "},
      {R"({"model": "m", "dtype": "f32", "units": [{"name": "u"}]})",
       "model: want a key 'units[0].params', found none"},
      {R"({"model": "m", "dtype": "f32", "units": [
          {"name": "u", "params": []}]})",
       "model: 'units[0].params': want at least one, found none"},
      {R"({"model": "m", "dtype": "f32", "units": [
          {"name": "u", "params": [{"name": "gone", "shape": [3, 0]}]}]})",
       "model: 'units[0].params[0].shape': tensor 'gone' [3,0] has no "
       "elements, want at least one"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.json);
    const ProgramResult result = Run(c.json, "--ranks 2");
    EXPECT_EQ(result.exit_status, 2);
    EXPECT_THAT(result.output,
                HasSubstr(absl::StrCat("tessera layout: --model: ", path, ": ",
                                       c.message)));
    EXPECT_EQ(std::count(result.output.begin(), result.output.end(), '\n'), 1);
  }
}

TEST_F(LayoutCommandTest, NamesTheUnitThatIsTooLarge) {
  const ProgramResult result = Run(R"({"model": "m", "dtype": "f32", "units": [
          {"name": "small", "params": [{"name": "w", "shape": [8]}]},
          {"name": "huge", "params": [
            {"name": "w", "shape": [4611686018427387904]}]}]})",
                                   "--ranks 2");
  EXPECT_EQ(result.exit_status, 2);
  EXPECT_THAT(
      result.output,
      AllOf(HasSubstr("tessera layout: unit 'huge': dbuffer: "),
            HasSubstr("larger than int64 can count"), Not(HasSubstr("small"))));
}

}  // namespace
}  // namespace tessera::testing

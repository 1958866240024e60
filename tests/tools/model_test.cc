#include "tools/models/model.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/status_matchers.h"
#include "tools/models/built_in.h"
#include "tools/models/padding_rules.h"

namespace tessera::tools {
namespace {

using ::tessera::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

Shape ShapeOf(absl::string_view text) { return Shape::Parse(text).value(); }

constexpr char kTiny[] = R"({
  "model": "tiny", "dtype": "f32", "total_elements": 1152,
  "units": [
    {"name": "embed", "params": [{"name": "wte", "shape": [64, 8]}]},
    {"name": "layer", "repeat": 10, "params": [
      {"name": "w", "shape": [8, 7]}, {"name": "b", "shape": [8]}
    ]}
  ]
})";

TEST(ModelTest, IsReadFromJson) {
  const Model tiny = {
      .name = "tiny",
      .dtype = DType::kF32,
      .units = {{.name = "embed", .params = {{"wte", ShapeOf("[64,8]")}}},
                {.name = "layer",
                 .repeat = 10,
                 .params = {{"w", ShapeOf("[8,7]")}, {"b", ShapeOf("[8]")}}}}};
  ASSERT_OK_AND_ASSIGN(const Model model, ParseModel(kTiny));
  EXPECT_EQ(model, tiny);
  EXPECT_EQ(model.units[1].num_elements(), 64);
  EXPECT_EQ(model.num_elements(), 1152);
  const std::string without_total =
      absl::StrReplaceAll(kTiny, {{"\"total_elements\": 1152,", ""}});
  EXPECT_EQ(ParseModel(without_total).value(), tiny);
}

TEST(ModelTest, MayHaveScalars) {
  ASSERT_OK_AND_ASSIGN(const Model model,
                       ParseModel(absl::StrReplaceAll(
                           kTiny, {{"[8]", "[]"}, {"1152", "1082"}})));
  EXPECT_EQ(model.units[1].params[1].shape, Shape());
}

TEST(ModelTest, SaysWhereAFileIsWrong) {
  const struct {
    const char* text;
    const char* instead;
    const char* message;
  } cases[] = {
      {"{", "", "model: want JSON"},
      {"\"model\": \"tiny\",", "", "model: want a key 'model', found none"},
      {"\"tiny\"", "7", "model: want a text as 'model', found 7"},
      {"\"tiny\"", "\"a model\"",
       "model: want a name of printable ASCII without spaces as 'model'"},
      {"f32", "f8", "model: 'dtype': "},
      {"1152", "1153",
       "model: want the sum over all units, 1152, as 'total_elements', found "
       "1153"},
      {"\"repeat\"", "\"times\"", "model: want no key 'units[1].times'"},
      {"10", "0", "model: want an integer from 1 to "},
      {"10", "922337203685477580",
       "model: 'tiny' has more elements than int64 can count"},
      {"\"layer\"", "\"embed\"",
       "model: want a name that is not used before as 'units[1].name'"},
      {"\"b\"", "\"w\"", "'units[1].params[1].name', found \"w\""},
      {"\"b\"", "\"\"", "'units[1].params[1].name'"},
      {"{\"name\": \"wte\", \"shape\": [64, 8]}", "",
       "model: 'units[0].params': want at least one, found none"},
      {"[64, 8]", "[64, 0]",
       "model: 'units[0].params[0].shape': tensor 'wte' [64,0] has no "
       "elements, want at least one"},
      {"[64, 8]", "[64, -8]", "'units[0].params[0].shape[1]', found -8"},
      {"[64, 8]", "64", "model: want a list as 'units[0].params[0].shape'"},
      {"[64, 8]", "[64, 8], \"dtype\": \"f32\"",
       "model: want no key 'units[0].params[0].dtype', found one"},
      {"[64, 8]", "[4294967296, 4294967296]",
       "model: 'units[0].params[0].shape': "},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(absl::StrCat(c.text, " -> ", c.instead));
    std::string json = kTiny;
    json.replace(json.find(c.text), std::string(c.text).size(), c.instead);
    EXPECT_THAT(ParseModel(json), StatusIs(absl::StatusCode::kInvalidArgument,
                                           HasSubstr(c.message)));
  }
  EXPECT_THAT(ParseModel(R"({"model": "none", "dtype": "f32", "units": []})"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "model: 'units': want at least one, found none"));
}

// All are read, with the totals that their files state.
TEST(ModelTest, HasBuiltInOnes) {
  const std::vector<std::string> names = BuiltInModelNames();
  EXPECT_EQ(names.size(), 8u);
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    ASSERT_OK_AND_ASSIGN(const Model model, BuiltInModel(name));
    EXPECT_EQ(model.name, name);
    EXPECT_GT(model.num_elements(), 100'000'000);
  }
  EXPECT_EQ(BuiltInModel("gpt2-124m")->num_elements(), 124'439'808);
  EXPECT_EQ(BuiltInModel("gpt2-124m")->dtype, DType::kF32);
  EXPECT_THAT(BuiltInModel("gpt5"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("no built-in model 'gpt5'"),
                             HasSubstr("llama-3.1-8b"))));
}

Model::Unit UnitOf(const std::vector<std::string>& shapes) {
  Model::Unit unit = {.name = "unit"};
  for (const std::string& shape : shapes) {
    unit.params.push_back(
        {absl::StrCat("p", unit.params.size()), ShapeOf(shape)});
  }
  return unit;
}

TEST(PaddingRulesTest, Fsdp2CutsEveryParameterByRows) {
  // 3 rows of 10 for each of 3 ranks, and 2 single elements.
  EXPECT_EQ(*Fsdp2Padding(UnitOf({"[7,10]", "[4]"}), 3), 20 + 2);
  EXPECT_EQ(*Fsdp2Padding(UnitOf({"[6,10]", "[3]", "[3,1,5]"}), 3), 0);
  EXPECT_EQ(*Fsdp2Padding(UnitOf({"[]"}), 4), 3);
}

TEST(PaddingRulesTest, MegatronFillsCellsOfTheLeastCommonMultiple) {
  // Cells of 12: 18 elements leave 6 of two cells, where the last 4 of 28 go,
  // and 2. The 5 begin a cell of their own.
  const Model::Unit unit = UnitOf({"[3,6]", "[2]", "[7,4]", "[5]"});
  EXPECT_EQ(*MegatronPadding(unit, 1), 5 * 12 - 53);
  EXPECT_EQ(*MegatronPadding(unit, 2), 6 * 12 - 53);
  EXPECT_EQ(*MegatronPadding(unit, 2, Granularity::Element()), 1);
  EXPECT_EQ(*MegatronPadding(unit, 1, Granularity::Element(), 16), 11);
  EXPECT_EQ(*MegatronPadding(UnitOf({"[8,4]", "[4,8]"}), 4), 0);
}

TEST(PaddingRulesTest, RejectWhatInt64CannotCount) {
  const Model::Unit unit =
      UnitOf({"[2,4611686018427387903]", "[2,4611686018427387901]"});
  EXPECT_THAT(
      MegatronPadding(
          UnitOf({"[2,2147483647]", "[2,2147483629]", "[2,2147483587]"}), 2),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("unit 'unit' over 2 ranks is larger")));
  EXPECT_THAT(Fsdp2Padding(unit, 1000),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("unit 'unit' over 1000 ranks is larger")));
}

}  // namespace
}  // namespace tessera::tools

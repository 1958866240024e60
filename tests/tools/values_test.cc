#include "tools/tessera/values.h"

#include <cstdint>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/file.h"
#include "tests/status_matchers.h"
#include "tests/temporary_folder.h"
#include "tools/models/built_in.h"

namespace tessera::tools {
namespace {

using ::tessera::testing::IsOkAndHolds;
using ::tessera::testing::StatusIs;
using ::tessera::testing::TemporaryFolder;
using ::testing::HasSubstr;

TEST(ValuesTest, ReadBytesWithAndWithoutUnits) {
  EXPECT_THAT(ParseBytes("--b", "0"), IsOkAndHolds(0));
  EXPECT_THAT(ParseBytes("--b", "1000"), IsOkAndHolds(1000));
  EXPECT_THAT(ParseBytes("--b", "512KiB"), IsOkAndHolds(512 << 10));
  EXPECT_THAT(ParseBytes("--b", "64MiB"), IsOkAndHolds(64 << 20));
  EXPECT_THAT(ParseBytes("--b", "3GiB"), IsOkAndHolds(int64_t{3} << 30));
  EXPECT_THAT(ParseBytes("--b", "2TiB"), IsOkAndHolds(int64_t{2} << 40));
  for (const char* text : {"", "MiB", "-1", "1.5MiB", "64MB", "64 Mi", "x",
                           "8388608TiB", "9223372036854775808"}) {
    EXPECT_THAT(ParseBytes("--b", text),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("--b: want bytes, as 1000, 512KiB, 64MiB or "
                                   "2GiB, below 2^63, found '")))
        << text;
  }
}

TEST(ValuesTest, FormatBytesInTheLargestUnit) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1024), "1.0 KiB");
  EXPECT_EQ(FormatBytes((3 << 20) / 2), "1.5 MiB");
  EXPECT_EQ(FormatBytes(int64_t{5} << 40), "5.0 TiB");
}

TEST(ValuesTest, FormatPercentWithTwoDigits) {
  EXPECT_EQ(FormatPercent(1, 8), "12.50");
  EXPECT_EQ(FormatPercent(2, 3), "66.67");
  EXPECT_EQ(FormatPercent(0, 3), "0.00");
  EXPECT_EQ(FormatPercent(3, 1), "300.00");
}

TEST(ValuesTest, ReadShapesWithAndWithoutBrackets) {
  EXPECT_EQ(ParseTensor("bf16", "4096,14336")->ToString(), "bf16[4096,14336]");
  EXPECT_EQ(ParseTensor("f32", "[7]")->ToString(), "f32[7]");
  EXPECT_EQ(ParseTensor("f32", "")->ToString(), "f32[]");
  EXPECT_THAT(
      ParseTensor("f8", "7"),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--dtype: ")));
  for (const char* shape : {"7,", "-1", "x", "[7", "4x4"}) {
    EXPECT_THAT(
        ParseTensor("f32", shape),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--shape: ")))
        << shape;
  }
}

TEST(ValuesTest, ReadStrategiesAndThePlacementsThatTheyStandFor) {
  for (absl::string_view name : StrategyNames()) {
    const UnitPlacements placements =
        ParseStrategy(std::string(name), /*num_axes=*/2).value();
    EXPECT_THAT(ParsePlacements(placements.ToString()),
                IsOkAndHolds(placements));
  }
  EXPECT_THAT(ParsePlacements(" param=[R,Flat]grad=[P,Flat]  optim=[R,Flat] "),
              IsOkAndHolds(*PlacementsFor("hsdp", 2)));
  EXPECT_THAT(ParseStrategy("zero4", 1),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("--strategy: fsdp: unknown strategy")));
  for (const char* text :
       {"", "param=[R]", "grad=[P] param=[R] optim=[R]",
        "param=[R grad=[P] optim=[R]", "param=[R] grad=[P] optim=[R] lr=[1]",
        "param=[S(0)] grad=[P] optim=[R]"}) {
    EXPECT_THAT(ParsePlacements(text),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("--placements: ")))
        << text;
  }
}

TEST(ValuesTest, ReadTopologiesByNameAndFromFiles) {
  EXPECT_THAT(ParseTopology("unit"), IsOkAndHolds(Topology::Unit()));
  EXPECT_THAT(ParseTopology("moon"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("--topology: "), HasSubstr("moon"),
                             HasSubstr("h100-ib"))));
  const TemporaryFolder folder;
  const std::string path = folder.File("topology.json");
  const Topology topology = Topology::Preset("a100-hdr").value();
  ASSERT_OK(internal::WriteFile(path, topology.ToJson()));
  EXPECT_THAT(ParseTopology(path), IsOkAndHolds(topology));
  ASSERT_OK(internal::WriteFile(path, "{}"));
  EXPECT_THAT(ParseTopology(path),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("--topology: " + path + ": topology: want")));
  EXPECT_THAT(ParseTopology("none.json"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("--topology: none.json: want a file")));
}

TEST(ValuesTest, ReadModelsByNameAndFromFiles) {
  EXPECT_THAT(LoadModel("gpt2-124m"), IsOkAndHolds(*BuiltInModel("gpt2-124m")));
  EXPECT_THAT(LoadModel("moon"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("--model: "), HasSubstr("moon"),
                             HasSubstr("llama-3.1-8b"))));
  const TemporaryFolder folder;
  const std::string path = folder.File("model.json");
  ASSERT_OK(internal::WriteFile(path,
                                R"({"model": "m", "dtype": "f32", "units": [
          {"name": "u", "params": [{"name": "w", "shape": [3]}]}]})"));
  ASSERT_OK_AND_ASSIGN(const Model model, LoadModel(path));
  EXPECT_EQ(model.num_elements(), 3);
  ASSERT_OK(internal::WriteFile(path, "{}"));
  EXPECT_THAT(LoadModel(path),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("--model: " + path + ": model: want")));
  EXPECT_THAT(ModelChoices(),
              AllOf(HasSubstr("gpt2-124m, "), HasSubstr(" or FILE.json")));
}

TEST(ValuesTest, ReadGranularities) {
  EXPECT_THAT(ParseGranularity("rows:16"),
              IsOkAndHolds(*Granularity::Rows(16)));
  EXPECT_THAT(ParseGranularity("half"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("--granularity: ")));
}

}  // namespace
}  // namespace tessera::tools

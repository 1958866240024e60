#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/mesh/topology.h"
#include "tests/hostile_text.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::HostileTexts;
using ::tessera::testing::IsOkAndHolds;
using ::tessera::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kTwoTiers[] = R"({
  "version": 1,
  "name": "two-tiers",
  "launch_ps": 5,
  "memory_bytes_per_second": 1000,
  "link": {
    "latency_ps": 10,
    "bytes_per_second": 100
  },
  "inter_mesh_link": {
    "latency_ps": 30,
    "bytes_per_second": 9223372036854775807
  },
  "domains": [
    {
      "ranks": 2,
      "link": {
        "latency_ps": 0,
        "bytes_per_second": 1800
      }
    },
    {
      "ranks": 8,
      "link": {
        "latency_ps": 1,
        "bytes_per_second": 900
      }
    }
  ],
  "axis_links": {
    "dp": {
      "latency_ps": 7,
      "bytes_per_second": 70
    },
    "tp": {
      "latency_ps": 8,
      "bytes_per_second": 80
    }
  }
})";

Topology TwoTiers() {
  Topology topology = Topology::Create("two-tiers", {10, 100}, 5, 1000).value();
  topology = topology.WithInterMeshLink({30, 9223372036854775807}).value();
  topology = topology.WithDomain(8, {1, 900}).value();
  topology = topology.WithDomain(2, {0, 1800}).value();
  topology = topology.WithLink("tp", {8, 80}).value();
  return topology.WithLink("dp", {7, 70}).value();
}

// kTwoTiers with the only occurrence of `from` replaced.
std::string Edited(const std::string& from, const std::string& to) {
  std::string text = kTwoTiers;
  EXPECT_EQ(absl::StrReplaceAll({{from, to}}, &text), 1) << from;
  return text;
}

TEST(TopologyJsonTest, WritesEveryFigure) {
  EXPECT_EQ(TwoTiers().ToJson(), kTwoTiers);
}

TEST(TopologyJsonTest, WritesUnitAsEver) {
  EXPECT_EQ(Topology::Unit().ToJson(), R"({
  "version": 1,
  "name": "unit",
  "launch_ps": 0,
  "memory_bytes_per_second": 1000000000000000,
  "link": {
    "latency_ps": 0,
    "bytes_per_second": 1000000000000
  },
  "inter_mesh_link": {
    "latency_ps": 0,
    "bytes_per_second": 1000000000000
  },
  "domains": [],
  "axis_links": {}
})");
}

TEST(TopologyJsonTest, ReadsWhatItWrites) {
  EXPECT_THAT(Topology::FromJson(kTwoTiers), IsOkAndHolds(TwoTiers()));
  for (absl::string_view name : Topology::PresetNames()) {
    const Topology preset = Topology::Preset(name).value();
    EXPECT_THAT(Topology::FromJson(preset.ToJson()), IsOkAndHolds(preset));
  }
}

TEST(TopologyJsonTest, TakesKeysInAnyOrderAndDefaultsForTheLastThree) {
  EXPECT_THAT(
      Topology::FromJson(
          R"({"link": {"bytes_per_second": 100, "latency_ps": 10},
                      "memory_bytes_per_second": 1000, "launch_ps": 5,
                      "name": "plain", "version": 1})"),
      IsOkAndHolds(Topology::Create("plain", {10, 100}, 5, 1000).value()));
}

TEST(TopologyJsonTest, RejectsWhatIsWrongNamingTheKey) {
  const auto expect_error = [](const std::string& text,
                               const std::string& message) {
    EXPECT_THAT(Topology::FromJson(text),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(StartsWith("topology: "), HasSubstr(message))))
        << text;
  };
  // Keys.
  expect_error(Edited(R"("version": 1,)", ""),
               "want a key 'version', found none");
  expect_error(Edited(R"("name": "two-tiers",)", ""), "want a key 'name'");
  expect_error(Edited(R"("launch_ps": 5,)", ""), "want a key 'launch_ps'");
  expect_error(Edited(R"("launch_ps")", R"("launch_us")"),
               "want no key 'launch_us', found one");
  expect_error(Edited(R"("latency_ps": 10,)", ""),
               "want a key 'link.latency_ps', found none");
  expect_error(Edited(R"("latency_ps": 10)", R"("latency": 10)"),
               "want no key 'link.latency', found one");
  expect_error(Edited(R"("ranks": 8)", R"("size": 8)"),
               "want no key 'domains[1].size', found one");
  expect_error(Edited(R"("latency_ps": 7)", R"("hops": 7)"),
               "want no key 'axis_links.dp.hops', found one");
  expect_error(Edited(R"("launch_ps": 5)", R"("launch_ps": 5, "launch_ps": 5)"),
               "want every key once, found 'launch_ps' twice");
  expect_error(Edited(R"("tp")", R"("dp")"), "found 'dp' twice");
  expect_error(Edited(R"("tp")", R"("t p")"), "axis name");
  expect_error(Edited(R"("tp")", R"("")"), "axis name");
  // Numbers.
  expect_error(Edited(R"("version": 1)", R"("version": 2)"),
               "as 'version', found 2");
  expect_error(Edited(R"("launch_ps": 5)", R"("launch_ps": -5)"),
               "want an integer from 0 to 9223372036854775807 as "
               "'launch_ps', found -5");
  expect_error(Edited(R"("launch_ps": 5)", R"("launch_ps": 5.0)"),
               "as 'launch_ps', found 5.0");
  expect_error(Edited(R"("launch_ps": 5)", R"("launch_ps": "5")"),
               R"(as 'launch_ps', found "5")");
  expect_error(Edited(R"("launch_ps": 5)", R"("launch_ps": true)"),
               "as 'launch_ps', found true");
  expect_error(Edited(R"("launch_ps": 5)", R"("launch_ps": null)"),
               "as 'launch_ps', found null");
  expect_error(Edited(R"("launch_ps": 5)", R"("launch_ps": [5])"),
               "as 'launch_ps', found a list");
  expect_error(
      Edited(R"("launch_ps": 5)", R"("launch_ps": 9223372036854775808)"),
      "as 'launch_ps', found 9223372036854775808");
  expect_error(
      Edited(R"("launch_ps": 5)", R"("launch_ps": 99999999999999999999)"),
      "as 'launch_ps', found 1e+20");
  expect_error(Edited(R"("launch_ps": 5)", R"("launch_ps": 1e999)"),
               "want JSON");
  expect_error(Edited("1000,", "0,"),
               "want an integer from 1 to 9223372036854775807 as "
               "'memory_bytes_per_second', found 0");
  expect_error(Edited(R"("latency_ps": 10)", R"("latency_ps": -1)"),
               "as 'link.latency_ps', found -1");
  expect_error(
      Edited(R"("bytes_per_second": 1800)", R"("bytes_per_second": 0)"),
      "as 'domains[0].link.bytes_per_second', found 0");
  expect_error(Edited(R"("latency_ps": 30)", R"("latency_ps": -30)"),
               "as 'inter_mesh_link.latency_ps', found -30");
  expect_error(Edited(R"("bytes_per_second": 80)", R"("bytes_per_second": -8)"),
               "as 'axis_links.tp.bytes_per_second', found -8");
  expect_error(Edited(R"("ranks": 2)", R"("ranks": 0)"),
               "from 1 to 2147483647 as 'domains[0].ranks', found 0");
  expect_error(Edited(R"("ranks": 8)", R"("ranks": 2)"),
               "from 3 to 2147483647 as 'domains[1].ranks', found 2");
  expect_error(Edited(R"("ranks": 8)", R"("ranks": 2147483648)"),
               "as 'domains[1].ranks', found 2147483648");
  // Types.
  expect_error("[]", "want an object as the document, found a list");
  expect_error("1", "want an object as the document, found 1");
  expect_error(Edited(R"("two-tiers")", "7"), "as 'name', found 7");
  expect_error(Edited(R"("two-tiers")", R"("two tiers")"), "'two tiers'");
  const std::string plain = R"({"version": 1, "name": "p", "launch_ps": 0,)"
                            R"( "memory_bytes_per_second": 1, "link": )";
  const std::string link = R"({"latency_ps": 0, "bytes_per_second": 1})";
  EXPECT_OK(Topology::FromJson(plain + link + "}"));
  expect_error(plain + "3}", "want an object as 'link', found 3");
  expect_error(plain + link + R"(, "domains": {}})",
               "want a list as 'domains', found an object");
  expect_error(plain + link + R"(, "domains": [3]})",
               "want an object as 'domains[0]', found 3");
  expect_error(plain + link + R"(, "axis_links": []})",
               "want an object as 'axis_links', found a list");
  expect_error(plain + link + R"(, "inter_mesh_link": null})",
               "want an object as 'inter_mesh_link', found null");
  // Texts.
  expect_error("", "want JSON");
  expect_error(kTwoTiers + std::string("}"), "want JSON");
  expect_error(Edited("two-tiers", "\xff"), "want JSON");
}

TEST(TopologyJsonTest, ErrorsStayShortWhateverTheText) {
  const std::string deep =
      std::string(100'000, '[') + std::string(100'000, ']');
  const std::string wide(100'000, 'x');
  for (const std::string& text :
       {deep, std::string(100'000, '['), absl::StrCat("\"", wide, "\""),
        Edited(R"("launch_ps": 5)", absl::StrCat(R"("launch_ps": )", deep)),
        Edited(R"("launch_ps": 5)",
               absl::StrCat(R"("launch_ps": ")", wide, "\"")),
        Edited("launch_ps", wide)}) {
    const absl::Status status = Topology::FromJson(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_LT(status.message().size(), 400) << status.message().substr(0, 200);
  }
}

TEST(TopologyJsonTest, SurvivesHostileTexts) {
  constexpr uint32_t kSeed = 7;
  SCOPED_TRACE(absl::StrCat("seed ", kSeed));
  for (const std::string& text : HostileTexts({kTwoTiers}, kSeed, 3000)) {
    const absl::StatusOr<Topology> topology = Topology::FromJson(text);
    if (topology.ok()) {
      EXPECT_THAT(Topology::FromJson(topology->ToJson()),
                  IsOkAndHolds(*topology));
    } else {
      EXPECT_EQ(topology.status().code(), absl::StatusCode::kInvalidArgument);
    }
  }
}

}  // namespace
}  // namespace tessera

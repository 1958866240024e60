#include "tessera/mesh/topology.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::StatusIs;
using ::testing::HasSubstr;

TEST(TopologyTest, UnitCostsCountBytes) {
  const Topology unit = Topology::Unit();
  EXPECT_EQ(unit.link("dp"), (Link{0, 1'000'000'000'000}));
  EXPECT_EQ(unit.launch_ps(), 0);
  EXPECT_EQ(unit.memory_bytes_per_second(), 1'000'000'000'000'000);
}

TEST(TopologyTest, LocalCpuIsAlikeOnAllAxes) {
  const Topology local = Topology::LocalCpu();
  EXPECT_EQ(local.link("dp"), local.link("tp"));
  EXPECT_GT(local.link("dp").latency_ps, 0);
  EXPECT_GT(local.link("dp").bytes_per_second, 1'000'000'000);
  EXPECT_GT(local.launch_ps(), 0);
  EXPECT_GT(local.memory_bytes_per_second(), 1'000'000'000);
}

TEST(TopologyTest, AxesWithoutALinkOfTheirOwnHaveTheDefault) {
  ASSERT_OK_AND_ASSIGN(const Topology plain,
                       Topology::Create("rack", {10, 100}, 5, 1000));
  ASSERT_OK_AND_ASSIGN(const Topology tp, plain.WithLink("tp", {1, 900}));
  ASSERT_OK_AND_ASSIGN(const Topology both, tp.WithLink("dp", {20, 50}));
  EXPECT_EQ(both.name(), "rack");
  EXPECT_EQ(both.link("tp"), (Link{1, 900}));
  EXPECT_EQ(both.link("dp"), (Link{20, 50}));
  EXPECT_EQ(both.link("t"), (Link{10, 100}));
  EXPECT_EQ(both.link("zz"), (Link{10, 100}));
  EXPECT_EQ(both.launch_ps(), 5);
  EXPECT_EQ(both.memory_bytes_per_second(), 1000);
  EXPECT_EQ(plain.link("tp"), (Link{10, 100}));
}

TEST(TopologyTest, ComparesLinksWhateverTheOrderTheyWereGivenIn) {
  const Topology unit = Topology::Unit();
  const auto with = [](const Topology& t, const char* axis, Link link) {
    return t.WithLink(axis, link).value();
  };
  EXPECT_EQ(with(with(unit, "a", {1, 1}), "b", {2, 2}),
            with(with(unit, "b", {2, 2}), "a", {1, 1}));
  EXPECT_EQ(with(with(unit, "a", {9, 9}), "a", {1, 1}),
            with(unit, "a", {1, 1}));
  EXPECT_NE(with(unit, "a", {2, 1}), with(unit, "a", {1, 1}));
  EXPECT_NE(unit, Topology::LocalCpu());
}

TEST(TopologyTest, RejectsNegativeTimesAndBandwidthsBelowOne) {
  const auto is_rejected = [](absl::string_view found) {
    return StatusIs(absl::StatusCode::kInvalidArgument,
                    HasSubstr(std::string(found)));
  };
  EXPECT_THAT(Topology::Create("t", {-1, 1}, 0, 1), is_rejected("found -1"));
  EXPECT_THAT(Topology::Create("t", {0, 0}, 0, 1), is_rejected("link"));
  EXPECT_THAT(Topology::Create("t", {0, 1}, -5, 1), is_rejected("launch"));
  EXPECT_THAT(Topology::Create("t", {0, 1}, 0, 0), is_rejected("memory"));
  EXPECT_THAT(Topology::Unit().WithLink("tp", {0, -7}), is_rejected("-7"));
}

}  // namespace
}  // namespace tessera

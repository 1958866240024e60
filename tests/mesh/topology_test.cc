#include "tessera/mesh/topology.h"

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/hash/hash_testing.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Link kInner = {1, 900};
constexpr Link kOuter = {10, 100};

auto IsRejected(const std::string& found) {
  return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(found));
}

Topology Hosts(int ranks) {
  return Topology::Create("hosts", kOuter, 5, 1000)
      .value()
      .WithDomain(ranks, kInner)
      .value();
}

Topology PresetOrDie(absl::string_view name) {
  return Topology::Preset(name).value();
}

// The link along the axis of this name.
Link LinkAlong(const Topology& topology, const DeviceMesh& mesh,
               absl::string_view axis_name) {
  return topology.LinkOf(mesh, mesh.FindAxis(axis_name).value());
}

Link LinkAlong(const Topology& topology, const char* mesh,
               absl::string_view axis_name) {
  return LinkAlong(topology, DeviceMesh::Parse(mesh).value(), axis_name);
}

// Whether the domains of `ranks` ranks cut no group along the axis, rank by
// rank.
bool KeepsToDomains(const DeviceMesh& mesh, int axis, int ranks) {
  for (int rank = mesh.offset(); rank < mesh.end_rank(); ++rank) {
    if (!mesh.Contains(rank)) continue;
    const DeviceMesh group = mesh.Slice({axis}, rank).value();
    if (group.offset() / ranks != (group.end_rank() - 1) / ranks) return false;
  }
  return true;
}

// A mesh of one to three axes of up to four coordinates, row-major from 0 or
// with gaps between the ranks and in front of them.
DeviceMesh RandomMesh(bool row_major, std::mt19937& random) {
  const auto up_to = [&](int most) {
    return static_cast<int>(random() % most);
  };
  std::vector<MeshAxis> axes(1 + up_to(3));
  int stride = 1;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (!row_major) stride += up_to(4);
    axes[i] = {absl::StrCat("a", i), 1 + up_to(4), stride};
    stride *= axes[i].size;
  }
  std::reverse(axes.begin(), axes.end());
  const int offset = row_major ? 0 : up_to(10);
  return DeviceMesh::CreateAffine(axes, offset).value();
}

TEST(TopologyTest, UnitCostsCountBytes) {
  const Topology unit = Topology::Unit();
  EXPECT_EQ(LinkAlong(unit, "dp=2", "dp"), (Link{0, 1'000'000'000'000}));
  EXPECT_EQ(unit.inter_mesh_link(), (Link{0, 1'000'000'000'000}));
  EXPECT_EQ(unit.launch_ps(), 0);
  EXPECT_EQ(unit.memory_bytes_per_second(), 1'000'000'000'000'000);
}

TEST(TopologyTest, LocalCpuIsAlikeOnAllAxes) {
  const Topology local = Topology::LocalCpu();
  const Link link = {2'000'000, 8'000'000'000};
  EXPECT_EQ(LinkAlong(local, "dp=64,tp=2", "dp"), link);
  EXPECT_EQ(LinkAlong(local, "dp=64,tp=2", "tp"), link);
  EXPECT_EQ(local.inter_mesh_link(), link);
  EXPECT_EQ(local.launch_ps(), 1'000'000);
  EXPECT_EQ(local.memory_bytes_per_second(), 10'000'000'000);
}

TEST(TopologyTest, FindsPresetsByName) {
  EXPECT_THAT(Topology::PresetNames(),
              ElementsAre("local-cpu", "a100-hdr", "h100-ib", "gb200-nvl72",
                          "ethernet-100g", "unit"));
  for (absl::string_view name : Topology::PresetNames()) {
    ASSERT_OK_AND_ASSIGN(const Topology preset, Topology::Preset(name));
    EXPECT_EQ(preset.name(), name);
  }
  EXPECT_EQ(PresetOrDie("unit"), Topology::Unit());
  EXPECT_EQ(PresetOrDie("local-cpu"), Topology::LocalCpu());
  EXPECT_THAT(Topology::Preset("h100"),
              IsRejected("no preset 'h100', want one of local-cpu, a100-hdr"));
  EXPECT_THAT(Topology::Preset(""), IsRejected("no preset ''"));
}

TEST(TopologyTest, PresetsOfGpusAreFasterWithinADomainThanBetween) {
  for (const auto& [name, ranks] :
       {std::pair("a100-hdr", 8), {"h100-ib", 8}, {"gb200-nvl72", 72}}) {
    SCOPED_TRACE(name);
    const Topology preset = PresetOrDie(name);
    const std::string mesh = absl::StrCat("out=4,in=", ranks);
    const Link in = LinkAlong(preset, mesh.c_str(), "in");
    const Link out = LinkAlong(preset, mesh.c_str(), "out");
    EXPECT_LT(in.latency_ps, out.latency_ps);
    EXPECT_GE(in.bytes_per_second, 9 * out.bytes_per_second);
    EXPECT_EQ(preset.inter_mesh_link(), out);
    EXPECT_GT(preset.launch_ps(), out.latency_ps);
    EXPECT_GT(preset.memory_bytes_per_second(), in.bytes_per_second);
    const std::string larger = absl::StrCat("in=", 2 * ranks);
    EXPECT_EQ(LinkAlong(preset, larger.c_str(), "in"), out);
  }
}

TEST(TopologyTest, PresetsOfNewerMachinesAreFaster) {
  const char* const kSlowestFirst[] = {"ethernet-100g", "a100-hdr", "h100-ib",
                                       "gb200-nvl72"};
  for (int i = 0; i < 3; ++i) {
    SCOPED_TRACE(kSlowestFirst[i]);
    const Topology slower = PresetOrDie(kSlowestFirst[i]);
    const Topology faster = PresetOrDie(kSlowestFirst[i + 1]);
    EXPECT_LT(LinkAlong(slower, "x=8", "x").bytes_per_second,
              LinkAlong(faster, "x=8", "x").bytes_per_second);
    EXPECT_LE(LinkAlong(slower, "x=80", "x").bytes_per_second,
              LinkAlong(faster, "x=80", "x").bytes_per_second);
    EXPECT_LT(slower.memory_bytes_per_second(),
              faster.memory_bytes_per_second());
  }
}

TEST(TopologyTest, AxesWithinADomainHaveItsLink) {
  const Topology hosts = Hosts(8);
  const auto expect = [&](const char* mesh, const char* axis, Link link) {
    EXPECT_EQ(LinkAlong(hosts, mesh, axis), link) << axis << " of " << mesh;
  };
  expect("dp=4,tp=8", "tp", kInner);
  expect("dp=4,tp=8", "dp", kOuter);
  expect("dp=4,tp=16", "tp", kOuter);
  expect("dp=2,cp=2,tp=4", "cp", kInner);
  expect("dp=2,cp=2,tp=8", "cp", kOuter);
  // Of eight groups of 3, the third lies on ranks 6 7 8.
  expect("dp=2,tp=3", "tp", kInner);
  expect("dp=8,tp=3", "tp", kOuter);
  // Strides of slices and of transposed meshes.
  expect("dp=4:2", "dp", kInner);
  expect("dp=4:4", "dp", kOuter);
  expect("tp=8:1,dp=4:8", "tp", kInner);
  expect("tp=2:4,dp=4:1,pp=2:8", "tp", kInner);
  expect("tp=2:4,dp=4:1,pp=2:8", "pp", kOuter);
  // Half of every host.
  expect("dp=4:8,tp=4:1", "tp", kInner);
  expect("dp=4:8,tp=4:1@4", "tp", kInner);
  // Offsets.
  expect("tp=8@8", "tp", kInner);
  expect("tp=8@4", "tp", kOuter);
  expect("tp=4@4", "tp", kInner);
  expect("tp=4@6", "tp", kOuter);
  expect("dp=2,tp=4@4", "tp", kInner);
  expect("dp=2,tp=4@2", "tp", kOuter);
  expect("tp=2:4@3", "tp", kInner);
  expect("tp=2:4@4", "tp", kOuter);
  expect("dp=2:4,tp=2:1@2", "dp", kInner);
  expect("dp=2:4,tp=2:1@3", "dp", kOuter);  // 4 and 8
  expect("dp=4:8,tp=2:4@3", "tp", kInner);
  // Alone.
  expect("one=1,tp=16", "one", kInner);
  expect("one=1@7", "one", kInner);
}

TEST(TopologyTest, SmallestOfSeveralDomainsCounts) {
  ASSERT_OK_AND_ASSIGN(const Topology racks, Hosts(8).WithDomain(64, {5, 500}));
  ASSERT_OK_AND_ASSIGN(const Topology pairs, racks.WithDomain(2, {1, 5000}));
  const auto link = [&](const char* axis) {
    return LinkAlong(pairs, "pp=2,dp=8,cp=4,tp=2", axis);
  };
  EXPECT_EQ(link("tp"), (Link{1, 5000}));
  EXPECT_EQ(link("cp"), kInner);
  EXPECT_EQ(link("dp"), (Link{5, 500}));
  EXPECT_EQ(link("pp"), kOuter);
}

TEST(TopologyTest, DomainRuleIsSoundAndExactForRowMajorMeshes) {
  constexpr uint32_t kSeed = 20240611;
  SCOPED_TRACE(absl::StrCat("seed ", kSeed));
  std::mt19937 random(kSeed);
  int within = 0;
  int between = 0;
  for (int round = 0; round < 4000; ++round) {
    const bool row_major = round % 2 == 0;
    const DeviceMesh mesh = RandomMesh(row_major, random);
    const int ranks = 1 + static_cast<int>(random() % 40);
    const Topology hosts = Hosts(ranks);
    for (int axis = 0; axis < mesh.num_axes(); ++axis) {
      const bool has_inner_link = hosts.LinkOf(mesh, axis) == kInner;
      const bool keeps = KeepsToDomains(mesh, axis, ranks);
      SCOPED_TRACE(absl::StrCat("axis ", axis, " of ", mesh.ToString(),
                                ", domains of ", ranks));
      if (row_major) {
        EXPECT_EQ(has_inner_link, keeps);
      } else if (has_inner_link) {
        EXPECT_TRUE(keeps);
      }
      if (mesh.axis(axis).size > 1) ++(has_inner_link ? within : between);
    }
  }
  EXPECT_GT(within, 500);
  EXPECT_GT(between, 500);
}

TEST(TopologyTest, LinkOfTakesNoTimeThatGrowsWithTheRanks) {
  // 2^31 - 2 ranks: would take minutes if it did.
  const Topology hosts = Hosts(2'000'000'000);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(LinkAlong(hosts, "dp=1073741823,tp=2", "dp"), kOuter);
    EXPECT_EQ(LinkAlong(hosts, "dp=1073741823,tp=2", "tp"), kInner);
  }
}

TEST(TopologyTest, LinkOfAnAxisByNameComesFirst) {
  ASSERT_OK_AND_ASSIGN(const Topology tp, Hosts(8).WithLink("tp", {2, 800}));
  ASSERT_OK_AND_ASSIGN(const Topology both, tp.WithLink("dp", {20, 50}));
  const char* const mesh = "dp=4,t=1,zz=2,tp=4";
  EXPECT_EQ(LinkAlong(both, mesh, "tp"), (Link{2, 800}));
  EXPECT_EQ(LinkAlong(both, mesh, "dp"), (Link{20, 50}));
  EXPECT_EQ(LinkAlong(both, mesh, "t"), kInner);
  EXPECT_EQ(LinkAlong(both, mesh, "zz"), kInner);
  EXPECT_EQ(both.name(), "hosts");
  EXPECT_EQ(both.launch_ps(), 5);
  EXPECT_EQ(both.memory_bytes_per_second(), 1000);
  EXPECT_EQ(both.inter_mesh_link(), kOuter);
  EXPECT_EQ(LinkAlong(tp, mesh, "dp"), kOuter);
}

TEST(TopologyTest, MeshesAreLinkedByALinkOfTheirOwn) {
  ASSERT_OK_AND_ASSIGN(const Topology topology,
                       Hosts(8).WithInterMeshLink({30, 10}));
  EXPECT_EQ(topology.inter_mesh_link(), (Link{30, 10}));
  EXPECT_EQ(LinkAlong(topology, "dp=2,tp=8", "dp"), kOuter);
  EXPECT_EQ(Hosts(8).inter_mesh_link(), kOuter);
}

TEST(TopologyTest, ComparesAndHashesByValue) {
  const Topology unit = Topology::Unit();
  const auto with = [](const Topology& t, const char* axis, Link link) {
    return t.WithLink(axis, link).value();
  };
  const auto domain = [](const Topology& t, int ranks, Link link) {
    return t.WithDomain(ranks, link).value();
  };
  EXPECT_TRUE(absl::VerifyTypeImplementsAbslHashCorrectly({
      unit,
      Topology::LocalCpu(),
      PresetOrDie("h100-ib"),
      Hosts(8),
      Hosts(4),
      unit.WithInterMeshLink({1, 1}).value(),
      Topology::Create("unit", {0, 1'000'000'000'000}, 0, 1).value(),
      Topology::Create("unit", {0, 1'000'000'000'000}, 1, 1).value(),
      with(with(unit, "a", {1, 1}), "b", {2, 2}),
      with(with(unit, "b", {2, 2}), "a", {1, 1}),
      with(with(unit, "a", {9, 9}), "a", {1, 1}),
      with(unit, "a", {1, 1}),
      with(unit, "a", {2, 1}),
      with(unit, "a", {1, 2}),
      domain(domain(unit, 2, {1, 1}), 4, {2, 2}),
      domain(domain(unit, 4, {2, 2}), 2, {1, 1}),
      domain(unit, 2, {1, 1}),
      domain(domain(unit, 2, {3, 3}), 2, {1, 1}),
  }));
  EXPECT_EQ(with(with(unit, "a", {1, 1}), "b", {2, 2}),
            with(with(unit, "b", {2, 2}), "a", {1, 1}));
  EXPECT_EQ(with(with(unit, "a", {9, 9}), "a", {1, 1}),
            with(unit, "a", {1, 1}));
  EXPECT_EQ(domain(domain(unit, 2, {1, 1}), 4, {2, 2}),
            domain(domain(unit, 4, {2, 2}), 2, {1, 1}));
  EXPECT_NE(with(unit, "a", {2, 1}), with(unit, "a", {1, 1}));
  EXPECT_NE(unit, Topology::LocalCpu());
}

TEST(TopologyTest, RejectsFiguresAndNamesThatMakeNoSense) {
  EXPECT_THAT(Topology::Create("t", {-1, 1}, 0, 1), IsRejected("found -1"));
  EXPECT_THAT(Topology::Create("t", {0, 0}, 0, 1), IsRejected("link"));
  EXPECT_THAT(Topology::Create("t", {0, 1}, -5, 1), IsRejected("launch"));
  EXPECT_THAT(Topology::Create("t", {0, 1}, 0, 0), IsRejected("memory"));
  EXPECT_THAT(Topology::Create("", {0, 1}, 0, 1), IsRejected("found ''"));
  EXPECT_THAT(Topology::Create("a b", {0, 1}, 0, 1), IsRejected("'a b'"));
  EXPECT_THAT(Topology::Create("\xff", {0, 1}, 0, 1), IsRejected("a name"));
  const Topology unit = Topology::Unit();
  EXPECT_THAT(unit.WithLink("tp", {0, -7}), IsRejected("-7"));
  EXPECT_THAT(unit.WithLink("2tp", {0, 1}), IsRejected("found '2tp'"));
  EXPECT_THAT(unit.WithDomain(0, {0, 1}), IsRejected("found 0"));
  EXPECT_THAT(unit.WithDomain(8, {-3, 1}), IsRejected("found -3"));
  EXPECT_THAT(unit.WithInterMeshLink({0, 0}), IsRejected("found 0"));
}

}  // namespace
}  // namespace tessera

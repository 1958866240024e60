#include "tessera/sweep/sweep.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/sweep/measure.h"
#include "tessera/sweep/works.h"
#include "tests/status_matchers.h"

namespace tessera::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// Times are of one turn each.
SweepSpec Spec(const std::vector<std::string>& meshes,
               const std::vector<int64_t>& extents) {
  SweepSpec spec;
  for (const std::string& mesh : meshes) {
    spec.meshes.push_back(ParseSweepMesh(mesh).value());
  }
  spec.shapes = {Shape::Create(extents).value()};
  spec.turns = 1;
  spec.turn_seconds = 0;
  return spec;
}

std::vector<SweepRow> Sweep(const SweepSpec& spec) {
  std::vector<SweepRow> rows;
  EXPECT_OK(RunSweep(spec, [&](const SweepRow& row) { rows.push_back(row); }));
  return rows;
}

SweepRow OnlyRow(const SweepSpec& spec) {
  const std::vector<SweepRow> rows = Sweep(spec);
  EXPECT_THAT(rows, SizeIs(1));
  return rows.empty() ? SweepRow() : rows.front();
}

SweepRow RowOf(const std::string& mesh, const std::string& from,
               const std::string& to,
               const std::vector<int64_t>& extents = {64, 64}) {
  SweepSpec spec = Spec({mesh}, extents);
  spec.from = {from};
  spec.to = {to};
  return OnlyRow(spec);
}

std::vector<std::string> Texts(const std::vector<DeviceMesh>& meshes) {
  std::vector<std::string> texts;
  for (const DeviceMesh& mesh : meshes) texts.push_back(mesh.ToString());
  return texts;
}

// --- Meshes -----------------------------------------------------------------

TEST(FactorizationsTest, AreAllProductsInEveryOrder) {
  EXPECT_THAT(Texts(Factorizations(1).value()), ElementsAre("a=1"));
  EXPECT_THAT(Texts(Factorizations(7).value()), ElementsAre("a=7"));
  EXPECT_THAT(Texts(Factorizations(8).value()),
              ElementsAre("a=8", "a=2,b=4", "a=4,b=2", "a=2,b=2,c=2"));
  EXPECT_THAT(Texts(Factorizations(12).value()), SizeIs(8));
}

TEST(FactorizationsTest, RejectsWorldsOutOfRange) {
  for (const int world : {-1, 0, 65537}) {
    EXPECT_THAT(Factorizations(world).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("world of 1 to 65536")));
  }
}

TEST(ParseSweepMeshTest, ReadsSizesAndNamedAxes) {
  EXPECT_EQ(ParseSweepMesh("8").value().ToString(), "a=8");
  EXPECT_EQ(ParseSweepMesh("2x4").value().ToString(), "a=2,b=4");
  EXPECT_EQ(ParseSweepMesh("dp=2,tp=4").value().ToString(), "dp=2,tp=4");
  EXPECT_EQ(ParseSweepMesh("x=2").value().ToString(), "x=2");
  for (const char* text : {"2x", "x2", "2x-1", "0x2", "2*2"}) {
    EXPECT_FALSE(ParseSweepMesh(text).ok()) << text;
  }
}

// --- Rows -------------------------------------------------------------------

TEST(RunSweepTest, RowsSayWhatWasMeasured) {
  const SweepRow row = RowOf("2x2", "[P, S(0)]", "[S(1), S(0)]");
  EXPECT_EQ(row.mesh, "a=2,b=2");
  EXPECT_EQ(row.tensor, "f32[64,64]");
  EXPECT_EQ(row.from, "[P(sum), S(0)]");
  EXPECT_EQ(row.to, "[S(1), S(0)]");
  EXPECT_EQ(row.skipped, "");
  EXPECT_EQ(row.plan, "[P(sum), S(0)] -RS(a)-> [S(1), S(0)]");
  EXPECT_THAT(row.steps, ElementsAre("RS(a)"));
  EXPECT_EQ(row.launches, 1);
  EXPECT_EQ(row.bytes, 32 * 64 * 4);
  EXPECT_EQ(row.bytes_received, 32 * 64 * 4 / 2);
  EXPECT_GT(row.planning_seconds, 0);
  EXPECT_GT(row.predicted_seconds, 0);
  EXPECT_GT(row.seconds, 0);
  EXPECT_GT(row.memcpy_seconds, 0);
  ASSERT_TRUE(row.bare_seconds.has_value());
  EXPECT_GT(*row.bare_seconds, 0);
}

TEST(RunSweepTest, GoesThroughMeshesSizesAndLayoutsInOrder) {
  SweepSpec spec = Spec({"2", "1x2"}, {8, 16});
  spec.bytes = {1024, 4096};
  spec.from = {"S(0)"};
  spec.to = {"R", "S(1)"};
  std::vector<std::string> found;
  for (const SweepRow& row : Sweep(spec)) {
    found.push_back(row.mesh + " " + row.tensor + " " + row.to);
  }
  EXPECT_THAT(found, ElementsAre("a=2 f32[16,16] [R]", "a=2 f32[16,16] [S(1)]",
                                 "a=2 f32[64,16] [R]", "a=2 f32[64,16] [S(1)]",
                                 "a=1,b=2 f32[16,16] [R, R]",
                                 "a=1,b=2 f32[16,16] [S(1), S(1)]",
                                 "a=1,b=2 f32[64,16] [R, R]",
                                 "a=1,b=2 f32[64,16] [S(1), S(1)]"));
}

TEST(RunSweepTest, AllPairsAreThoseOfDifferentLayouts) {
  SweepSpec spec = Spec({"2"}, {4});
  spec.all_pairs = true;
  std::vector<std::string> found;
  for (const SweepRow& row : Sweep(spec)) {
    EXPECT_EQ(row.skipped, "");
    found.push_back(row.from + row.to);
  }
  EXPECT_THAT(found,
              ElementsAre("[R][P(sum)]", "[R][S(0)]", "[P(sum)][R]",
                          "[P(sum)][S(0)]", "[S(0)][R]", "[S(0)][P(sum)]"));
}

TEST(RunSweepTest, UnevenCutsOverSeveralAxesRun) {
  for (const SweepRow& row :
       {RowOf("2x2", "P", "S(0)", {5, 3}), RowOf("2x2x2", "S(0)", "R", {5}),
        RowOf("2x2x2", "S(0)", "S(1)", {5, 3})}) {
    EXPECT_EQ(row.skipped, "");
    EXPECT_GT(row.seconds, 0) << row.plan;
  }
}

TEST(RunSweepTest, HasNoBareTimeWithoutCollectives) {
  EXPECT_FALSE(RowOf("2", "R", "S(0)").bare_seconds.has_value());
  const SweepRow exchange = RowOf("8", "S(0)", "S(1)", {5, 3});
  EXPECT_THAT(exchange.steps, ElementsAre("XC(a)"));
  EXPECT_FALSE(exchange.bare_seconds.has_value());
  EXPECT_FALSE(exchange.BareRatio().has_value());
}

// --- Skipped ----------------------------------------------------------------

TEST(RunSweepTest, SkipsLayoutsThatDoNotFitAndSaysWhy) {
  SweepSpec spec = Spec({"4", "2x2"}, {8, 8});
  spec.from = {"[S(0)]"};
  spec.to = {"R", "S(2)"};
  const std::vector<SweepRow> rows = Sweep(spec);
  ASSERT_THAT(rows, SizeIs(4));
  EXPECT_EQ(rows[0].skipped, "");
  EXPECT_THAT(rows[1].skipped, HasSubstr("dim 2"));
  EXPECT_THAT(rows[2].skipped, HasSubstr("found 1"));
  EXPECT_EQ(rows[2].from, "[S(0)]");
  EXPECT_EQ(rows[2].to, "R");
}

TEST(RunSweepTest, SkipsTensorsThatCannotHaveTheSize) {
  SweepSpec spec = Spec({"2"}, {1, 1024});
  spec.bytes = {1000};
  spec.from = {"R"};
  spec.to = {"S(0)"};
  EXPECT_THAT(OnlyRow(spec).skipped,
              HasSubstr("want 1000 bytes, found that f32[1,1024] has 4096"));
}

TEST(RunSweepTest, SkipsWhatNeedsTooMuchMemory) {
  SweepSpec spec = Spec({"2"}, {1024, 1024});
  spec.from = {"P"};
  spec.to = {"R"};
  spec.max_bytes = int64_t{8} << 20;
  EXPECT_THAT(OnlyRow(spec).skipped,
              AllOf(HasSubstr("want at most 8388608 bytes of memory"),
                    HasSubstr("2 ranks with")));
}

TEST(RunSweepTest, SkipsMeshesThatAreNotRanksOfThisProcess) {
  EXPECT_THAT(RowOf("x=1024", "R", "S(0)").skipped, HasSubstr("at most 256"));
  // More axes than there are plans for.
  EXPECT_THAT(RowOf("2x2x2x2x2x2x2x2x2", "P", "R").skipped,
              HasSubstr("at most 256"));
  EXPECT_THAT(RowOf("x=2@4", "R", "S(0)").skipped, HasSubstr("ranks up to 5"));
}

TEST(RunSweepTest, RejectsSpecsThatSayNothing) {
  const auto error = [](const SweepSpec& spec) {
    return RunSweep(spec, [](const SweepRow&) {});
  };
  const auto says = [](const char* what) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what));
  };
  SweepSpec spec = Spec({"2"}, {4});
  EXPECT_THAT(error(spec), says("want layouts"));
  spec.from = {"R"};
  EXPECT_THAT(error(spec), says("want layouts"));
  spec.all_pairs = true;
  EXPECT_THAT(error(spec), says("or all pairs"));
  spec.all_pairs = false;
  spec.to = {"S(0)"};
  EXPECT_OK(error(spec));
  spec.turns = 0;
  EXPECT_THAT(error(spec), says("found 0"));
  spec = Spec({}, {4});
  EXPECT_THAT(error(spec), says("mesh"));
  spec = Spec({"2x2x2x2x2"}, {4, 4, 4, 4});
  spec.all_pairs = true;
  EXPECT_THAT(error(spec), says("at most 1e+06 combinations"));
  spec.shapes.clear();
  EXPECT_THAT(error(spec), says("shape"));
}

// --- Bandwidths -------------------------------------------------------------

// nccl-tests' doc/PERFORMANCE.md, by hand for n = 4 ranks that hold 16 KiB
// tensors and take a millisecond: all-reduce 2(n-1)/n, the others (n-1)/n.
TEST(SweepRowTest, BandwidthsAreThoseOfNcclTests) {
  const struct {
    const char* from;
    const char* to;
    const char* step;
    double algbw;
    double busbw;
  } cases[] = {
      {"P", "R", "AR(a)", 16384e3, 24576e3},
      {"P", "S(0)", "RS(a)", 16384e3, 12288e3},
      {"S(0)", "R", "AG(a)", 16384e3, 12288e3},
      // Every rank has a quarter, of which it keeps a quarter.
      {"S(0)", "S(1)", "A2A(a)", 4096e3, 3072e3},
  };
  for (const auto& c : cases) {
    SweepRow row = RowOf("4", c.from, c.to);
    EXPECT_THAT(row.steps, ElementsAre(c.step));
    row.seconds = 1e-3;
    EXPECT_DOUBLE_EQ(row.AlgBandwidth(), c.algbw) << c.step;
    EXPECT_DOUBLE_EQ(row.BusBandwidth(), c.busbw) << c.step;
  }
}

TEST(SweepRowTest, RatiosAreOfTheTimes) {
  SweepRow row;
  row.seconds = 3;
  row.memcpy_seconds = 2;
  EXPECT_EQ(row.MemcpyRatio(), 1.5);
  EXPECT_EQ(row.BareRatio(), std::nullopt);
  row.bare_seconds = 4;
  EXPECT_EQ(row.BareRatio(), 0.75);
}

TEST(BytesThatMustMoveTest, AreTheTargetsOrWhatIsReduced) {
  const DeviceMesh mesh = ParseSweepMesh("4").value();
  const Layout whole = Layout::Parse("f32[5,8] [R]", mesh).value();
  const auto bytes = [&](const char* from, const char* to) {
    return internal::BytesThatMustMove(whole.With(from).value(),
                                       whole.With(to).value());
  };
  EXPECT_EQ(bytes("[R]", "[S(0)]"), 2 * 8 * 4);  // ceil(5 / 4) rows
  EXPECT_EQ(bytes("[S(0)]", "[R]"), 5 * 8 * 4);
  EXPECT_EQ(bytes("[P]", "[S(0)]"), 5 * 8 * 4);
  EXPECT_EQ(bytes("[P]", "[P]"), 5 * 8 * 4);
  EXPECT_EQ(bytes("[S(0)]", "[S(1)]"), 5 * 2 * 4);
}

}  // namespace
}  // namespace tessera::testing

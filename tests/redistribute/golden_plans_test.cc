// Plans as they are printed. Those on `unit` are frozen: a change here changes
// what users have seen.

#include <string>

#include "gtest/gtest.h"
#include "tessera/mesh/topology.h"
#include "tessera/redistribute/planner.h"

namespace tessera {
namespace {

std::string Line(const Topology& topology, const std::string& mesh,
                 const std::string& source, const std::string& target) {
  const Layout from =
      Layout::Parse(source, DeviceMesh::Parse(mesh).value()).value();
  return MakePlan(from, from.With(target).value(), topology).value().ToString();
}

struct Golden {
  const char* mesh;
  const char* source;
  const char* target;
  const char* plan;
};

// Weights, activations and gradients on their way between the layouts of data,
// tensor and pipeline parallelism.
constexpr Golden kOnUnit[] = {
    {"dp=4,tp=2", "bf16[4096,14336] [S(0), S(1)]", "[R, S(1)]",
     "[S(0), S(1)] -AG(dp)-> [R, S(1)]"},
    {"dp=4,tp=2", "bf16[4096,14336] [S(0), S(0)]", "[R, R]",
     "[S(0), S(0)] -AG(dp,tp)-> [R, R]"},
    {"dp=4,tp=2", "bf16[4096,14336] [S(0), S(1)]", "[R, R]",
     "[S(0), S(1)] -XC(dp,tp)-> [R, R]"},
    {"dp=4,tp=2", "bf16[4096,14336] [P(sum), S(1)]", "[S(0), S(1)]",
     "[P(sum), S(1)] -RS(dp)-> [S(0), S(1)]"},
    {"dp=4,tp=2", "bf16[4096,14336] [P(sum), P(sum)]", "[R, R]",
     "[P(sum), P(sum)] -AR(dp,tp)-> [R, R]"},
    {"dp=4,tp=2", "bf16[4096,14336] [P(sum), P(sum)]", "[S(0), S(0)]",
     "[P(sum), P(sum)] -RS(dp,tp)-> [S(0), S(0)]"},
    {"dp=4,tp=2", "bf16[4096,14336] [P(avg), R]", "[R, R]",
     "[P(avg), R] -SL(tp)-> [P(avg), S(0)] -AR(dp)-> [R, S(0)] -AG(tp)-> [R, "
     "R]"},
    {"dp=4,tp=2", "bf16[4096,14336] [P(max), S(0)]", "[R, R]",
     "[P(max), S(0)] -AR(dp)-> [R, S(0)] -AG(tp)-> [R, R]"},
    {"dp=4,tp=2", "bf16[4096,14336] [R, R]", "[S(0), S(1)]",
     "[R, R] -SL(dp)-> [S(0), R] -SL(tp)-> [S(0), S(1)]"},
    {"dp=4,tp=2", "bf16[4096,14336] [R, S(0)]", "[R, S(1)]",
     "[R, S(0)] -A2A(tp)-> [R, S(1)]"},
    {"dp=4,tp=2", "bf16[4096,14336] [S(0), S(0)]", "[S(1), S(1)]",
     "[S(0), S(0)] -A2A(dp,tp)-> [S(1), S(1)]"},
    {"dp=4,tp=2", "bf16[4096,14336] [S(0), S(1)]", "[S(1), S(0)]",
     "[S(0), S(1)] -XC(dp,tp)-> [S(1), S(0)]"},
    {"dp=4,tp=2", "bf16[4096,14336] [S(0), R]", "[S(1), P(sum)]",
     "[S(0), R] -XC(dp,tp)-> [S(1), S(1)] -FI(tp)-> [S(1), P(sum)]"},
    {"pp=2,dp=4,tp=2", "bf16[4096,14336] [S(0), S(1), P(sum)]",
     "[P(sum), R, S(1)]",
     "[S(0), S(1), P(sum)] -RS(tp)-> [S(0), S(1), S(0)] -XC(dp,tp)-> [S(0), R, "
     "S(1)] -FI(pp)-> [P(sum), R, S(1)]"},
};

TEST(GoldenPlansTest, UnitIsFrozen) {
  for (const Golden& golden : kOnUnit) {
    EXPECT_EQ(Line(Topology::Unit(), golden.mesh, golden.source, golden.target),
              golden.plan);
  }
}

TEST(GoldenPlansTest, OneFlatAllReduceWhereLinksAreAlike) {
  const Topology h100 = Topology::Preset("h100-ib").value();
  for (const char* meta : {"f32[64,64] ", "f32[4096,4096] "}) {
    for (const Topology& topology : {Topology::Unit(), h100}) {
      EXPECT_EQ(
          Line(topology, "x=2,y=2", meta + std::string("[P, P]"), "[R, R]"),
          "[P(sum), P(sum)] -AR(x,y)-> [R, R]");
    }
  }
}

TEST(GoldenPlansTest, SlowAxesReduceWhatFastOnesHaveScattered) {
  // Four hosts of eight GPUs.
  EXPECT_EQ(Line(Topology::Preset("h100-ib").value(), "host=4,gpu=8",
                 "f32[4096,4096] [P, P]", "[R, R]"),
            "[P(sum), P(sum)] -RS(gpu)-> [P(sum), S(0)] -AR(host)-> [R, S(0)] "
            "-AG(gpu)-> [R, R]");
  const Topology slow_y =
      Topology::Unit().WithLink("y", {0, 1'000'000'000}).value();
  EXPECT_EQ(Line(slow_y, "x=2,y=2", "f32[64,64] [P, P]", "[R, R]"),
            "[P(sum), P(sum)] -RS(x)-> [S(0), P(sum)] -AR(y)-> [S(0), R] "
            "-AG(x)-> [R, R]");
}

}  // namespace
}  // namespace tessera

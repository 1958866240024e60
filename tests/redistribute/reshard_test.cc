// Reshardings for which the plans of a compiled peer are published: what ours
// receive, hold and need.
//
// The tests print what they find, a line per case: --gtest_filter='Reshard*'.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iomanip>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/mesh/topology.h"
#include "tessera/redistribute/planner.h"
#include "tessera/redistribute/verify.h"
#include "tests/redistribute/least_workspace.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::LeastWorkspace;
using ::tessera::testing::StatusIs;

// Figures are elements, the most over all ranks: what some rank has to receive
// at least, what one receives by the peer's plan, and the largest local piece
// in that. Then mesh, shape, source and target.
constexpr absl::string_view kCases = R"(
192 512 256 x=2,y=2 16,8,8 [S(1)[1], S(1)[0]] -> [S(0), S(2)]
32 32 64 x=2,y=2 16,8 [S(1), S(0)] -> [R, S(0)]
24 52 24 x=2,y=3 12,12 [S(0), S(1)] -> [S(1), S(0)]
32 32 64 x=2,y=2 16,8 [S(0), R] -> [S(0)[1], S(0)[0]]
72 72 72 x=2,y=3 12,12 [R, S(0)] -> [S(0), R]
8 8 16 x=2,y=2,z=2 16,8 [S(0), S(1), S(0)] -> [S(0), S(1), S(1)]
4 12 32 x=2,y=2,z=2 16,4 [S(1), R, R] -> [S(0), S(0), S(0)]
5 15 20 x=2,y=2 4,10 [S(1), R] -> [S(0), S(0)]
96 160 256 x=2,y=2,z=2 16,8,8 [S(1), S(1), R] -> [S(0), S(2), S(2)]
256 256 512 x=2,y=2 16,8,8 [R, S(0)] -> [S(0), S(0)]
96 160 256 x=2,y=2,z=2 16,8,8 [S(1), S(0), R] -> [S(2), S(2), S(2)]
192 448 256 x=2,y=2 16,8,8 [S(1)[1], S(1)[0]] -> [S(0), S(0)]
32 40 32 x=2,y=2,z=2 16,8 [S(0)[1], S(0)[0], S(0)[2]] -> [R, S(1), S(0)]
192 256 256 x=2,y=2,z=2 16,8,8 [S(1), S(0), R] -> [S(2), S(2), R]
28 40 128 x=4,y=2,z=4 16,8,8 [R, S(1), S(1)] -> [S(0), S(2), S(0)]
128 224 256 x=2,y=2,z=2,w=2 16,8,8 [S(1), R, S(0), R] -> [S(2), S(2), R, S(0)]
32 252 128 x=4,y=2,z=4 16,8,8 [S(1)[0], S(1)[2], S(1)[1]] -> [S(0), S(0), S(2)]
32 252 128 x=4,y=2,z=4 16,8,8 [S(1)[2], S(1)[0], S(1)[1]] -> [S(0), S(0), S(2)]
96 96 256 x=2,y=2,z=2,w=2 16,8,8 [S(1), R, S(0), R] -> [S(2), S(2), S(2), S(2)]
128 192 256 x=2,y=2,z=2 16,8,8 [S(1), R, S(2)] -> [S(2), S(2), S(2)]
64 64 64 x=2,y=2,z=2 16,8 [S(0), S(0), R] -> [R, R, S(0)]
48 128 128 x=2,y=2,z=2 16,4,8 [S(1), S(1), R] -> [S(0), S(2), S(2)]
128 192 128 x=2,y=2 8,8,8 [S(0), S(1)] -> [S(1), S(2)]
16 16 64 x=2,y=2,z=2 16,8 [S(1), R, R] -> [S(0), S(0), S(1)]
56 72 64 x=2,y=2,z=2 16,8 [S(0)[2], S(0)[1], S(0)[0]] -> [R, S(1), R]
16 16 16 x=4,y=2,z=4 16,8 [S(1), R, S(0)] -> [R, S(1), S(0)]
96 160 256 x=2,y=2,z=2 16,8,8 [S(1), R, S(0)] -> [S(2), S(2), S(2)]
7 7 8 x=2,y=2,z=2,w=4 16,8 [R, S(0), S(0), S(0)] -> [S(1), S(0), R, S(1)]
0 0 128 x=2,y=2,z=2 16,8 [R, R, R] -> [S(0), S(1), S(1)]
4 4 4 x=4,y=2,z=4 16,8 [S(0), S(0), S(1)] -> [S(1), S(0), S(0)]
128 128 256 x=2,y=2,z=2 16,8,8 [S(0), S(1), R] -> [S(2), S(1), R]
32 64 64 x=2,y=2 16,8 [S(0), S(1)] -> [S(0), R]
2 3 8 x=2,y=2,z=2 8,4 [S(0), S(0), R] -> [S(0), S(1), S(1)]
8 8 16 x=4,y=2,z=4 16,8 [R, S(1), S(0)] -> [S(1), R, S(0)]
112 288 128 x=2,y=2,z=2 16,8,8 [S(1), S(0), S(1)] -> [S(2), S(2), S(2)]
)";

struct ReshardCase {
  int64_t necessary;
  int64_t peer_received;
  int64_t peer_peak;
  std::string mesh;
  std::string extents;  // "16,8,8"
  std::string source;
  std::string target;
};

int64_t ToNumber(absl::string_view text) {
  int64_t number = -1;
  EXPECT_TRUE(absl::SimpleAtoi(text, &number)) << text;
  return number;
}

std::vector<ReshardCase> Cases() {
  std::vector<ReshardCase> cases;
  for (absl::string_view line :
       absl::StrSplit(kCases, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> fields =
        absl::StrSplit(line, absl::MaxSplits(' ', 5));
    const std::vector<std::string> ends = absl::StrSplit(fields[5], " -> ");
    cases.push_back({ToNumber(fields[0]), ToNumber(fields[1]),
                     ToNumber(fields[2]), fields[3], fields[4], ends[0],
                     ends[1]});
  }
  return cases;
}

// A case with one more dim, which nothing cuts and by which all figures grow.
struct Scaled {
  ReshardCase figures;
  int64_t factor;
  Layout source;
  Layout target;

  std::string ToString() const {
    return source.mesh().ToString() + " " + source.ToString() + " -> " +
           target.PlacementsToString();
  }
};

constexpr int64_t kElementSize = 2;  // of bf16

// The case as a bf16 tensor of that many bytes or a little less.
Scaled AtSize(const ReshardCase& figures, int64_t bytes) {
  int64_t elements = 1;
  for (absl::string_view extent : absl::StrSplit(figures.extents, ',')) {
    elements *= ToNumber(extent);
  }
  const int64_t factor = bytes / kElementSize / elements;
  const Layout source =
      Layout::Parse(absl::StrCat("bf16[", figures.extents, ",", factor, "] ",
                                 figures.source),
                    DeviceMesh::Parse(figures.mesh).value())
          .value();
  return {figures, factor, source, source.With(figures.target).value()};
}

std::vector<Scaled> CasesAtSize(int64_t bytes) {
  std::vector<Scaled> cases;
  for (const ReshardCase& figures : Cases()) {
    cases.push_back(AtSize(figures, bytes));
  }
  return cases;
}

std::vector<Scaled> LargeCases() { return CasesAtSize(int64_t{1} << 30); }
std::vector<Scaled> SmallCases() { return CasesAtSize(int64_t{4} << 10); }

// GPUs of one host.
Topology UniformLinks() {
  return Topology::Create("uniform",
                          {.latency_ps = 600'000,  // 0.6 us
                           .bytes_per_second = 450'000'000'000},
                          6'600'000, 3'350'000'000'000)
      .value();
}

// The most elements that a rank holds at any time in the value's layouts.
int64_t LargestPiece(const Plan& plan) {
  int64_t largest = plan.source().MostElements();
  for (const Step& step : plan.steps()) {
    largest = std::max(largest, step.after.MostElements());
  }
  return largest;
}

TEST(ReshardTest, LargeTensorsReceiveLittleMoreThanTheyMust) {
  double sum_of_logs = 0;
  int ratios = 0;
  std::cout << "received necessary   peer  ratio   peak  (elements)\n";
  for (const Scaled& scaled : LargeCases()) {
    SCOPED_TRACE(scaled.ToString());
    ASSERT_OK_AND_ASSIGN(const Plan plan, MakePlan(scaled.source, scaled.target,
                                                   UniformLinks()));
    EXPECT_OK(Verify(plan));
    const ReshardCase& figures = scaled.figures;
    const int64_t received = plan.bytes_received() / kElementSize;
    EXPECT_GE(received, figures.necessary * scaled.factor) << plan;
    EXPECT_LE(received, figures.peer_received * scaled.factor) << plan;
    EXPECT_LE(LargestPiece(plan), figures.peer_peak * scaled.factor) << plan;
    double ratio = 1;
    if (figures.necessary == 0) {
      EXPECT_EQ(received, 0) << plan;
    } else {
      ratio = static_cast<double>(received) /
              static_cast<double>(figures.necessary * scaled.factor);
      sum_of_logs += std::log(ratio);
      ++ratios;
    }
    std::cout << std::setw(8) << received / scaled.factor << std::setw(10)
              << figures.necessary << std::setw(7) << figures.peer_received
              << std::fixed << std::setprecision(3) << std::setw(7) << ratio
              << std::setw(7) << LargestPiece(plan) / scaled.factor << "  "
              << figures.mesh << "  " << plan << "\n";
  }
  const double mean = std::exp(sum_of_logs / ratios);
  std::cout << "geometric mean of " << ratios << " ratios: " << mean << "\n";
  EXPECT_EQ(ratios, 34);
  EXPECT_LE(mean, 1.05);
}

TEST(ReshardTest, LargeTensorsGetByWithTheLeastWorkspace) {
  const Topology topology = UniformLinks();
  for (const Scaled& scaled : LargeCases()) {
    SCOPED_TRACE(scaled.ToString());
    const auto plan_within = [&](int64_t limit) {
      return MakePlan(scaled.source, scaled.target, topology,
                      {.max_workspace_bytes = limit});
    };
    ASSERT_OK_AND_ASSIGN(
        const int64_t least,
        LeastWorkspace(scaled.source, scaled.target, topology));
    EXPECT_EQ(least, 0);
    ASSERT_OK_AND_ASSIGN(const Plan plan, plan_within(least));
    EXPECT_OK(Verify(plan));
    EXPECT_LE(plan.workspace_bytes(), least) << plan;
    EXPECT_THAT(plan_within(least - 1),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

TEST(ReshardTest, SmallTensorsTakeFewLaunches) {
  const Topology topology = Topology::Preset("h100-ib").value();
  std::cout << "launches\n";
  for (const Scaled& scaled : SmallCases()) {
    SCOPED_TRACE(scaled.ToString());
    ASSERT_OK_AND_ASSIGN(const Plan plan,
                         MakePlan(scaled.source, scaled.target, topology));
    EXPECT_OK(Verify(plan));
    EXPECT_LE(plan.launches(), 3) << plan;
    std::cout << std::setw(8) << plan.launches() << "  " << scaled.figures.mesh
              << "  " << plan << "\n";
  }
}

}  // namespace
}  // namespace tessera

#include "tessera/sweep/benchmark.h"

#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/status_matchers.h"

namespace tessera::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

class Collector : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& report) override {
    runs.insert(runs.end(), report.begin(), report.end());
  }

  std::vector<Run> runs;
};

TEST(RegisterSweepTest, RunsEveryCombinationOnce) {
  SweepSpec spec;
  spec.meshes = {ParseSweepMesh("2").value(), ParseSweepMesh("2x2").value()};
  spec.shapes = {Shape::Create({8, 8}).value()};
  spec.from = {"[S(0)]"};
  spec.to = {"R"};
  ASSERT_OK(RegisterSweep(spec));
  Collector collector;
  benchmark::RunSpecifiedBenchmarks(&collector);
  benchmark::ClearRegisteredBenchmarks();

  ASSERT_THAT(collector.runs, SizeIs(2));
  const auto& measured = collector.runs[0];
  EXPECT_THAT(measured.benchmark_name(),
              HasSubstr("sweep/f32[8,8]/a=2/[S(0)]->[R]"));
  EXPECT_FALSE(measured.error_occurred);
  EXPECT_EQ(measured.report_label, "[S(0)] -AG(a)-> [R]");
  EXPECT_GT(measured.GetAdjustedRealTime(), 0);
  EXPECT_EQ(measured.counters.at("bytes"), 8 * 8 * 4);
  EXPECT_EQ(measured.counters.count("ratio_bare"), 1u);
  EXPECT_DOUBLE_EQ(measured.counters.at("busbw"),
                   measured.counters.at("algbw") / 2);

  const auto& skipped = collector.runs[1];
  EXPECT_TRUE(skipped.error_occurred);
  EXPECT_THAT(skipped.error_message, HasSubstr("skipped: layout: want one"));
}

TEST(RegisterSweepTest, RejectsWhatRunSweepRejects) {
  EXPECT_THAT(RegisterSweep(SweepSpec()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("mesh")));
}

}  // namespace
}  // namespace tessera::testing

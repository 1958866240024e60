#include "absl/strings/str_cat.h"
#include "tessera/comm/local/run_ranks.h"
#include "tests/comm/conformance/conformance.h"

namespace tessera::testing {
namespace {

ConformanceWorld Local(int ranks, CpuStreams streams) {
  return {.name = absl::StrCat(
              ranks, streams == CpuStreams::kInline ? "Inline" : "Worker"),
          .ranks = ranks,
          .run = [=](ConformanceProgram program) {
            LocalRunOptions options;
            options.device.streams = streams;
            return RunLocalRanks(
                ranks,
                [&](LocalRank& rank) { return RunConformance(program, rank); },
                options);
          }};
}

INSTANTIATE_TEST_SUITE_P(Local, CommConformance,
                         ::testing::Values(Local(1, CpuStreams::kInline),
                                           Local(2, CpuStreams::kInline),
                                           Local(3, CpuStreams::kWorker),
                                           Local(4, CpuStreams::kInline),
                                           Local(4, CpuStreams::kWorker),
                                           Local(7, CpuStreams::kInline),
                                           Local(8, CpuStreams::kWorker)),
                         WorldName);

}  // namespace
}  // namespace tessera::testing

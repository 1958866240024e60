// The suite of all backends, under NCCL on as many GPUs as there are.

#include "tests/comm/conformance/conformance.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/gpu/run_gpu_ranks.h"

namespace tessera::testing {
namespace {

std::vector<ConformanceWorld> Worlds() {
  const int ranks = std::min(FindGpus().count, 8);
  if (ranks == 0) return {};
  return {{.name = absl::StrCat(ranks),
           .ranks = ranks,
           .run =
               [ranks](ConformanceProgram program) {
                 return RunGpuRanks(ranks, [&](ScheduledRank& rank) {
                   return RunConformance(program, rank);
                 });
               },
           .averaging = Averaging::kAfterwards,
           .compares_calls = false}};
}

TEST(GpuConformanceTest, HasGpus) { TESSERA_NEEDS_GPUS(1); }

INSTANTIATE_TEST_SUITE_P(Nccl, CommConformance, ::testing::ValuesIn(Worlds()),
                         WorldName);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CommConformance);

}  // namespace
}  // namespace tessera::testing

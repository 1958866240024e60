#include "absl/strings/str_cat.h"
#include "tests/comm/conformance/conformance.h"
#include "tests/emulation/run_emulated_ranks.h"
#include "tests/sanitized.h"

namespace tessera::testing {
namespace {

// On emulated GPUs, whose NCCL reduces in ascending rank.
ConformanceWorld Nccl(int ranks) {
  return {.name = absl::StrCat(ranks),
          .ranks = ranks,
          .run =
              [=](ConformanceProgram program) {
                return emulation::RunEmulatedRanks(
                    ranks,
                    [&](emulation::EmulatedRank& rank) {
                      return RunConformance(program, rank);
                    },
                    {.gpus = {.seed = static_cast<uint64_t>(ranks)}});
              },
          .every = kSanitized ? 7 : 1,
          .averaging = Averaging::kAfterwards,
          .compares_calls = false};
}

INSTANTIATE_TEST_SUITE_P(Nccl, CommConformance,
                         ::testing::Values(Nccl(1), Nccl(2), Nccl(3), Nccl(4),
                                           Nccl(7), Nccl(8)),
                         WorldName);

}  // namespace
}  // namespace tessera::testing

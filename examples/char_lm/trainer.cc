#include "char_lm/trainer.h"

#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "char_lm/process.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/run_ranks.h"
#include "tessera/comm/nccl/run_nccl_ranks.h"

namespace char_lm {
namespace {

// Runs the program of each rank that this process has.
absl::Status RunRanks(const Options& options, RankProgram program) {
  if (options.process != nullptr) return options.process->Run(program);
  if (options.on_gpus()) {
    return tessera::RunNcclRanks(options.mesh.size(),
                                 [&](tessera::NcclRank& rank) {
                                   return program(rank.rank, rank.comms,
                                                  rank.stream);
                                 },
                                 {.timeout = kNcclTimeout});
  }
  return tessera::RunLocalRanks(options.mesh.size(),
                                [&](tessera::LocalRank& rank) {
                                  return program(rank.rank, rank.comms,
                                                 rank.stream);
                                },
                                {.device = CpuOptions(options)});
}

// The ranks of this process: how many, and the first of them.
struct RanksHere {
  int count;
  int first;
};

absl::StatusOr<RanksHere> FindRanks(const Options& options) {
  const int wanted = options.mesh.size();
  if (options.process == nullptr) return RanksHere{wanted, 0};
  const int found = options.process->num_ranks();
  if (found != wanted) {
    return absl::InvalidArgumentError(
        absl::StrCat("mesh ", options.mesh.ToString(), " has ", wanted,
                     " ranks, the launcher has started ", found));
  }
  return RanksHere{1, options.process->rank()};
}

}  // namespace

absl::StatusOr<TrainResult> Train(const Options& options, const Text& text,
                                  const Observer& observer) {
  TESSERA_ASSIGN_OR_RETURN(const RanksHere here, FindRanks(options));
  std::vector<RankResult> ranks(here.count);
  TESSERA_RETURN_IF_ERROR(
      RunRanks(options,
               [&](int rank, tessera::CommSet& comms,
                   tessera::Stream& compute) -> absl::Status {
                 TESSERA_ASSIGN_OR_RETURN(
                     ranks[rank - here.first],
                     TrainRank(options, text, observer, comms, compute));
                 return absl::OkStatus();
               }));
  return Combine(std::move(ranks), here.first, options);
}

}  // namespace char_lm

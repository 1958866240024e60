#ifndef CHAR_LM_TRAIN_RANK_H_
#define CHAR_LM_TRAIN_RANK_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "char_lm/options.h"
#include "char_lm/text.h"
#include "tessera/comm/comm_log.h"
#include "tessera/comm/comm_set.h"
#include "tessera/device/memory.h"
#include "tessera/device/stream.h"
#include "tessera/device/trace.h"

namespace char_lm {

// Memory that comes and goes on a GPU, for the sum of losses.
inline constexpr char kLossTag[] = "loss";

// What a run under Tessera leaves, as its ranks saw it.
struct TrainResult {
  std::vector<double> losses;  // per step, the mean over all targets
  std::vector<double> norms;   // of gradients, per step, before clipping
  double seconds = 0;
  // Of rank 0 in the last step.
  tessera::CommLog::Counters communication;
  std::vector<tessera::MemoryReport> memory;  // per rank
  std::vector<tessera::RankTrace> traces;     // per rank, where asked for
  // What formulas say of the peaks, per rank, by tag.
  std::vector<std::map<std::string, int64_t>> planned_memory;
};

struct StepReport {
  int step = 0;
  double loss = 0;
  double norm = 0;               // of gradients, before clipping
  double tokens_per_second = 0;  // over all ranks
};

// Called on rank 0, where there is something to call.
struct Observer {
  // Before the first step, with a table of placements and flat layouts.
  std::function<void(const std::string& units)> prepared;
  // After each step.
  std::function<void(const StepReport&)> stepped;
};

// What the program of one rank leaves.
struct RankResult {
  std::vector<double> losses;
  std::vector<double> norms;
  double seconds = 0;
  tessera::CommLog::Counters communication;  // in the last step
  tessera::MemoryReport memory;
  tessera::Trace trace;  // of the last step, where the device has one
  std::map<std::string, int64_t> planned_memory;
};

// The program of one rank, on any backend: `comms` are of a world that has the
// mesh's ranks, and the rank computes on `compute`, a GPU's where
// options.on_gpus(). Losses are those of real computation where the device
// computes.
absl::StatusOr<RankResult> TrainRank(const Options& options, const Text& text,
                                     const Observer& observer,
                                     tessera::CommSet& comms,
                                     tessera::Stream& compute);

// What ranks leave together: those of this process, from rank `first` on.
TrainResult Combine(std::vector<RankResult> ranks, int first,
                    const Options& options);

}  // namespace char_lm

#endif  // CHAR_LM_TRAIN_RANK_H_
